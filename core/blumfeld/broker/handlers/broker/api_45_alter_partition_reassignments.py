"""AlterPartitionReassignments (key 45), v0-1: other replicas for partitions (KIP-455).

v1  a client may forbid a change of the replication factor (KIP-860).
"""

from __future__ import annotations

from blumfeld.broker.handlers.controller_requests import forward
from blumfeld.broker.ports import Ports
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import in_parts
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from blumfeld.wire.schema import Message


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of AlterPartitionReassignments."""

    def handle(
        request: AlterPartitionReassignmentsRequest, context: RequestContext
    ) -> Message | Completion[Message]:
        if not context.authorize("Alter", "Cluster", "kafka-cluster"):
            return failed(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
        return forward(ports, request, context, request.timeout_ms, lambda answer: answer)

    return [
        ApiHandler(
            key=45,
            min_version=0,
            max_version=1,
            listeners=("broker", "controller"),
            handle=in_parts(handle, failed, ("topics", "partitions"), ("responses", "partitions")),
            error_response=failed,
        )
    ]


def failed(request: AlterPartitionReassignmentsRequest, code: int, message: str | None) -> Message:
    """Returns an answer with this error at the top, and for every partition, as Kafka's."""
    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=p.partition_index, error_code=code, error_message=message
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
