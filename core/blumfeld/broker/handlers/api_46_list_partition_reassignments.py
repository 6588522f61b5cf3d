"""ListPartitionReassignments (key 46), v0: partitions whose replicas are being changed (KIP-455).

Answered from this node's image; a partition that isn't being reassigned, or isn't there, is left out.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from blumfeld.spi.cluster import TopicImage
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from blumfeld.wire.schema import Message

if TYPE_CHECKING:
    from blumfeld.broker.broker import Broker


def handlers(broker: Broker) -> list[ApiHandler]:
    """ListPartitionReassignments."""

    def handle(request: ListPartitionReassignmentsRequest, context: RequestContext) -> Message:
        if not context.authorize("Describe", "Cluster", "kafka-cluster"):
            return failed(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
        topics = broker.image.topics
        wanted = {name: list(topic.partitions) for name, topic in topics.items()}
        if request.topics is not None:
            wanted = {t.name: t.partition_indexes for t in request.topics if t.name in topics}
        found = [_ongoing(topics[name], indexes) for name, indexes in wanted.items()]
        return ListPartitionReassignmentsResponse(
            error_message=None, topics=[topic for topic in found if topic.partitions]
        )

    return [ApiHandler(key=46, min_version=0, max_version=0, handle=handle, error_response=failed)]


def failed(_request: ListPartitionReassignmentsRequest, code: int, message: str | None) -> Message:
    """The answer as a whole has the error."""
    return ListPartitionReassignmentsResponse(error_code=code, error_message=message)


def _ongoing(topic: TopicImage, indexes: Collection[int]) -> OngoingTopicReassignment:
    partitions = [topic.partitions[index] for index in indexes if index in topic.partitions]
    return OngoingTopicReassignment(
        name=topic.name,
        partitions=[
            OngoingPartitionReassignment(
                partition_index=p.partition,
                replicas=list(p.replicas),
                adding_replicas=list(p.adding_replicas),
                removing_replicas=list(p.removing_replicas),
            )
            for p in partitions
            if p.adding_replicas or p.removing_replicas
        ],
    )
