"""DescribeAcls (key 29), v1-3: in a build without an authorizer there are no ACLs, and the answer says so.

SECURITY_DISABLED, as Apache Kafka without an authorizer. Clients know that answer: MirrorMaker 2, for example, leaves
ACLs out then.
"""

from __future__ import annotations

from blumfeld.broker.handlers.common import no_authorizer
from blumfeld.broker.ports import Ports
from blumfeld.spi.context import ApiHandler
from blumfeld.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def handlers(_ports: Ports) -> list[ApiHandler]:
    """Returns the handler of DescribeAcls."""
    return [
        ApiHandler(
            key=29,
            min_version=1,
            max_version=3,
            listeners=("broker", "controller"),
            handle=no_authorizer,
            error_response=failed,
        )
    ]


def failed(_request: DescribeAclsRequest, code: int, message: str | None) -> DescribeAclsResponse:
    """Returns an answer with this error."""
    return DescribeAclsResponse(error_code=code, error_message=message)
