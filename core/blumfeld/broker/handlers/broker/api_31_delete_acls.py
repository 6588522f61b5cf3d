"""DeleteAcls (key 31), v1-3: SECURITY_DISABLED in a build without an authorizer, as Apache Kafka without one."""

from __future__ import annotations

from blumfeld.broker.handlers.common import no_authorizer
from blumfeld.broker.ports import Ports
from blumfeld.spi.context import ApiHandler
from blumfeld.spi.steps import errors_by_elements
from blumfeld.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def handlers(_ports: Ports) -> list[ApiHandler]:
    """Returns the handler of DeleteAcls."""
    return [
        ApiHandler(
            key=31,
            min_version=1,
            max_version=3,
            listeners=("broker", "controller"),
            handle=no_authorizer,
            error_response=errors_by_elements(failed, ("filters",), ("filter_results",)),
        )
    ]


def failed(request: DeleteAclsRequest, code: int, message: str | None) -> DeleteAclsResponse:
    """Returns an answer with this error for every filter."""
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=code, error_message=message) for _ in request.filters
        ]
    )
