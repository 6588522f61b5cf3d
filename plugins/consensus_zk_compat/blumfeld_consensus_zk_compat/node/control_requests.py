"""LeaderAndIsr, UpdateMetadata and StopReplica, as a broker obeys them.

A request of an earlier controller, or for an earlier process of this node, changes nothing. Requests that come before
the broker has begun to host replicas wait for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.replication import Replicas
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.scheduler import Lane
from blumfeld.spi.steps import waited
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from blumfeld.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from blumfeld.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.node.image import NodeImage
from blumfeld_consensus_zk_compat.node.pushed_records import new_topics, records_of

SLICE = 200
"""Replicas that are ordered to lead, follow or stop between two yields."""
UNKNOWN_BROKER_EPOCH = -1
"""The broker epoch in the requests of a controller before KIP-380: such a request is not checked for it."""

TopicConfigs = Callable[[Sequence[str]], Completion[list[Message]]]
"""Reads the configuration of topics from the tree, as records."""


class ControlRequests:
    """Serves the three requests.

    :param broker_epoch: this process's, as it was registered last
    :param topic_configs: reads what the image doesn't have yet
    :param told: is called when a request is obeyed: after LeaderAndIsr with (topic id, partition) of each replica,
        after UpdateMetadata with none
    :param pushed: is called with the epochs of the controller and of this broker before UpdateMetadata is obeyed
    """

    def __init__(
        self,
        *,
        node_id: int,
        runtime: Runtime,
        events: EventLog,
        image: NodeImage,
        replicas: Callable[[], Replicas],
        broker_epoch: Callable[[], int],
        topic_configs: TopicConfigs,
        told: Callable[[Sequence[tuple[bytes, int]]], None],
        pushed: Callable[[int, int], None],
    ) -> None:
        self._node_id = node_id
        self._runtime = runtime
        self._events = events
        self._image = image
        self._replicas = replicas
        self._broker_epoch = broker_epoch
        self._topic_configs = topic_configs
        self._told = told
        self._pushed = pushed
        self._controller_epoch = -1
        self.placed: dict[TopicPartition, tuple[bytes, int]] = {}
        """Replicas that a controller has placed here and not deleted → topic id and newest leader epoch."""
        self._ready: Completion[None] = Completion()

    @property
    def controller_epoch(self) -> int:
        """The latest that a push named; -1 before the first."""
        return self._controller_epoch

    def begin(self) -> None:
        """The broker hosts replicas from now on. May be called again."""
        if not self._ready.done:
            self._ready.complete(None)

    def serve(self, request: Message) -> Completion[Message]:
        """Obey, and answer when it is done."""
        if isinstance(request, LeaderAndIsrRequest):
            steps = self._lead_and_follow(request)
        elif isinstance(request, StopReplicaRequest):
            steps = self._stop(request)
        else:
            assert isinstance(request, UpdateMetadataRequest)
            steps = self._update(request)
        answer: Completion[Message] = self._runtime.scheduler.completed(Lane.METADATA, steps)
        return answer

    def _refusal(
        self, request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
    ) -> ErrorCode:
        """Returns the error for the whole request; NONE if it is to be obeyed."""
        if UNKNOWN_BROKER_EPOCH != request.broker_epoch < self._broker_epoch():
            return ErrorCode.STALE_BROKER_EPOCH
        if request.controller_epoch < self._controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self._controller_epoch = request.controller_epoch
        return ErrorCode.NONE

    def moved_away(self, at: TopicPartition, leader_epoch: int) -> None:
        """The tree has no replica of a partition here: delete it, unless a later order has placed it again.

        :param leader_epoch: the partition's, when the tree was read
        """

        def stopped(done: Completion[ErrorCode]) -> None:
            if done.error is None and done.result() == ErrorCode.NONE:
                self.placed.pop(at, None)

        self._replicas().stop(at, leader_epoch, self._controller_epoch, delete=True).when_done(stopped)

    # LeaderAndIsr

    def _lead_and_follow(self, request: LeaderAndIsrRequest) -> Steps[Message]:
        yield self._ready
        if refused := self._refusal(request):
            return LeaderAndIsrResponse(error_code=refused)
        yield from self._with_configs(request)
        if refused := self._refusal(request):  # while configurations were read
            return LeaderAndIsrResponse(error_code=refused)
        replicas = self._replicas()
        outcomes: list[tuple[bytes, LeaderAndIsrPartitionError, Completion[ErrorCode]]] = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                at = TopicPartition(topic.topic_name, state.partition_index)
                outcome = replicas.apply(at, topic.topic_id, image_of(state), request.controller_epoch)
                self.placed[at] = topic.topic_id, state.leader_epoch
                error = LeaderAndIsrPartitionError(partition_index=state.partition_index)
                outcomes.append((topic.topic_id, error, outcome))
                if not len(outcomes) % SLICE:
                    yield None
        topics: dict[bytes, LeaderAndIsrTopicError] = {}
        for topic_id, error, outcome in outcomes:
            error.error_code = yield from waited(outcome)
            topics.setdefault(topic_id, LeaderAndIsrTopicError(topic_id=topic_id)).partition_errors.append(
                error
            )
        self._told([(topic_id, error.partition_index) for topic_id, error, _ in outcomes])
        return LeaderAndIsrResponse(topics=list(topics.values()))

    def _with_configs(self, request: LeaderAndIsrRequest) -> Steps[None]:
        """Read the configuration of topics that the image doesn't have: a log is opened with it."""
        image = self._image.image
        unknown = [t.topic_name for t in request.topic_states if image.topic_by_id(t.topic_id) is None]
        if unknown:
            yield from waited(self._image.step(lambda _: self._configs_of(unknown)))

    def _configs_of(self, topics: Sequence[str]) -> Steps[Sequence[Message]]:
        records: Sequence[Message] = yield from waited(self._topic_configs(topics))
        return records

    # StopReplica

    def _stop(self, request: StopReplicaRequest) -> Steps[Message]:
        yield self._ready
        if refused := self._refusal(request):
            return StopReplicaResponse(error_code=refused)
        replicas = self._replicas()
        errors: list[StopReplicaPartitionError] = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                at = TopicPartition(topic.topic_name, state.partition_index)
                delete = state.delete_partition
                code = yield from waited(
                    replicas.stop(at, state.leader_epoch, request.controller_epoch, delete=delete)
                )
                if delete and code == ErrorCode.NONE:
                    self.placed.pop(at, None)
                errors.append(
                    StopReplicaPartitionError(
                        topic_name=at.topic, partition_index=at.partition, error_code=code
                    )
                )
                if state.delete_partition or not len(errors) % SLICE:
                    yield None  # a deletion closes files and renames a directory
        return StopReplicaResponse(partition_errors=errors)

    # UpdateMetadata

    def _update(self, request: UpdateMetadataRequest) -> Steps[Message]:
        yield self._ready
        if refused := self._refusal(request):
            return UpdateMetadataResponse(error_code=refused)
        self._pushed(request.controller_epoch, self._broker_epoch())
        yield from waited(self._image.step(partial(self._records, request)))
        self._told(())
        return UpdateMetadataResponse()

    def _records(self, request: UpdateMetadataRequest, image: MetadataImage) -> Steps[Sequence[Message]]:
        unknown = new_topics(image, request)
        configs = (yield from self._configs_of(unknown)) if unknown else ()
        if request.controller_epoch < self._controller_epoch:
            raise BrokerError(ErrorCode.STALE_CONTROLLER_EPOCH)
        records: list[Message] = []
        for record in records_of(image, request, self._node_id):
            records.append(record)
            if not len(records) % SLICE:
                yield None  # a controller of Kafka tells of the whole cluster in one request
        return [*records, *configs]


def image_of(state: LeaderAndIsrPartitionState) -> PartitionImage:
    """The partition as LeaderAndIsr says."""
    return PartitionImage(
        partition=state.partition_index,
        replicas=tuple(state.replicas),
        isr=tuple(state.isr),
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        adding_replicas=tuple(state.adding_replicas),
        removing_replicas=tuple(state.removing_replicas),
        leader_recovery_state=state.leader_recovery_state,
    )
