"""CreateAcls (key 30), v1-3: SECURITY_DISABLED in a build without an authorizer, as Apache Kafka without one."""

from __future__ import annotations

from blumfeld.broker.handlers.common import no_authorizer
from blumfeld.broker.ports import Ports
from blumfeld.spi.context import ApiHandler
from blumfeld.spi.steps import errors_by_elements
from blumfeld.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handlers(_ports: Ports) -> list[ApiHandler]:
    """Returns the handler of CreateAcls."""
    return [
        ApiHandler(
            key=30,
            min_version=1,
            max_version=3,
            listeners=("broker", "controller"),
            handle=no_authorizer,
            error_response=errors_by_elements(failed, ("creations",), ("results",)),
        )
    ]


def failed(request: CreateAclsRequest, code: int, message: str | None) -> CreateAclsResponse:
    """Returns an answer with this error for every ACL."""
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=message) for _ in request.creations]
    )
