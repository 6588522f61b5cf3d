"""ElectLeaders (key 43), v0-2: the preferred leader of partitions, or any leader at all (KIP-183, KIP-460).

v1  unclean elections, one error for the whole. v2  flexible. The controller decides.
"""

from __future__ import annotations

from blumfeld.broker.handlers.common import CLUSTER_NAME
from blumfeld.broker.handlers.controller_requests import forward
from blumfeld.broker.ports import Ports
from blumfeld.metadata.partitions.requested_elections import failed
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import in_parts
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from blumfeld.wire.schema import Message

ONE_ERROR_SINCE_VERSION = 1


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of ElectLeaders."""

    def handle(request: ElectLeadersRequest, context: RequestContext) -> Message | Completion[Message]:
        def complete(answer: Message) -> Message:
            assert isinstance(answer, ElectLeadersResponse)
            if context.api_version < ONE_ERROR_SINCE_VERSION:  # the partitions have it
                answer.error_code = ErrorCode.NONE
            return answer

        if not context.authorize("Alter", "Cluster", CLUSTER_NAME):
            return complete(failed(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None))
        return forward(ports, request, context, request.timeout_ms, complete)

    serve = in_parts(
        handle,
        _failed,
        ("topic_partitions", "partitions"),
        ("replica_election_results", "partition_result"),
    )
    return [
        ApiHandler(
            key=43,
            min_version=0,
            max_version=2,
            listeners=("broker", "controller"),
            handle=serve,
            error_response=_failed,
        )
    ]


def _failed(request: ElectLeadersRequest, code: int, message: str | None) -> Message:
    return failed(request, code, message)
