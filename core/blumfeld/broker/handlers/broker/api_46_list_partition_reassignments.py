"""ListPartitionReassignments (key 46), v0: partitions whose replicas are being changed (KIP-455).

Answered from this node's image; where nodes don't forward, from the controller's, at the controller only. The answer
leaves out partitions that aren't being reassigned or don't exist.
"""

from __future__ import annotations

from collections.abc import Collection

from blumfeld.broker.handlers.controller_requests import check_controller
from blumfeld.broker.ports import Ports
from blumfeld.spi.cluster import TopicImage
from blumfeld.spi.completion import Steps
from blumfeld.spi.consensus import ReplicaDriver
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import STEP_ELEMENTS, small_at_once
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from blumfeld.wire.schema import Message


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of ListPartitionReassignments."""

    def serve(request: ListPartitionReassignmentsRequest, context: RequestContext) -> Steps[Message]:
        if not context.authorize("Describe", "Cluster", "kafka-cluster"):
            return failed(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
        if not ports.controller.forwards:
            check_controller(ports)
        elif ports.controller.replica_driver is ReplicaDriver.PUSHES:
            message = (
                "while the cluster migrates from its ZooKeeper, ask a broker that is in KRaft mode already"
            )
            return failed(request, ErrorCode.UNSUPPORTED_VERSION, message)
        topics = ports.controller.controller_image.topics
        wanted: dict[str, Collection[int]] = {}
        if request.topics is None:
            wanted = {name: topic.partitions for name, topic in topics.items()}
        for number, requested_topic in enumerate(request.topics or ()):
            if requested_topic.name in topics:
                wanted[requested_topic.name] = requested_topic.partition_indexes
            if not number % STEP_ELEMENTS:
                yield None
        ongoing_topics: list[OngoingTopicReassignment] = []
        for name, indexes in wanted.items():
            ongoing = yield from _ongoing(topics[name], indexes)
            if ongoing.partitions:
                ongoing_topics.append(ongoing)
            yield None
        return ListPartitionReassignmentsResponse(error_message=None, topics=ongoing_topics)

    return [
        ApiHandler(key=46, min_version=0, max_version=0, handle=small_at_once(serve), error_response=failed)
    ]


def failed(_request: ListPartitionReassignmentsRequest, code: int, message: str | None) -> Message:
    """Returns an answer with this error at the top."""
    return ListPartitionReassignmentsResponse(error_code=code, error_message=message)


def _ongoing(topic: TopicImage, indexes: Collection[int]) -> Steps[OngoingTopicReassignment]:
    ongoing = OngoingTopicReassignment(name=topic.name)
    for number, index in enumerate(indexes):
        p = topic.partitions.get(index)
        if p is not None and (p.adding_replicas or p.removing_replicas):
            ongoing.partitions.append(
                OngoingPartitionReassignment(
                    partition_index=p.partition,
                    replicas=list(p.replicas),
                    adding_replicas=list(p.adding_replicas),
                    removing_replicas=list(p.removing_replicas),
                )
            )
        if not number % STEP_ELEMENTS:
            yield None
    return ongoing
