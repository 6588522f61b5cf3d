"""AssignReplicasToDirs: brokers report the log directories of their replicas (KIP-858). Pure."""

from __future__ import annotations

from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment, broker_of_epoch
from blumfeld.metadata.image.step import changed_partition
from blumfeld.metadata.partitions.directories import has_online_directory
from blumfeld.metadata.partitions.partition_change import active_in, partition_change
from blumfeld.spi.cluster import BrokerImage, PartitionImage, TopicImage
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestTopicData,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)
from blumfeld.wire.messages.metadata_records import PartitionChangeRecord
from blumfeld.wire.schema import Message


def assign_replicas_to_dirs(
    state: ControllerState, request: AssignReplicasToDirsRequest, _moment: Moment
) -> ControllerDecision:
    """Record the directories of replicas; each partition has its own result.

    A replica in a directory that its broker does not have online loses its leadership, and leaves the ISR
    if the ISR keeps another member. A replica that was in a lost directory before may lead again. Both
    happen in the same record.

    Errors:
    * the whole answer: STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED
    * a partition: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (the broker has no
      replica of it)
    """
    try:
        broker = broker_of_epoch(state, request.broker_id, request.broker_epoch)
    except BrokerError as error:
        return ControllerDecision([], AssignReplicasToDirsResponse(error_code=error.code))
    assigning = _Assigning(state, broker)
    response = AssignReplicasToDirsResponse(directories=[assigning.directory(d) for d in request.directories])
    return ControllerDecision(assigning.records(), response, atomic=False)


class _Assigning:
    """The assignments of one request. Each sees those before it, so the last one of a partition counts."""

    def __init__(self, state: ControllerState, broker: BrokerImage) -> None:
        self._state = state
        self._broker = broker
        self._config = state.image.broker_config(state.config)
        self._changes: list[PartitionChangeRecord] = []
        self._changed: dict[tuple[bytes, int], PartitionImage] = {}

    def records(self) -> list[Message]:
        return list(self._changes)

    def directory(self, wanted: RequestDirectoryData) -> ResponseDirectoryData:
        topics = [self._topic(wanted.id, topic) for topic in wanted.topics]
        return ResponseDirectoryData(id=wanted.id, topics=topics)

    def _topic(self, directory_id: bytes, wanted: RequestTopicData) -> ResponseTopicData:
        answer = ResponseTopicData(topic_id=wanted.topic_id)
        topic = self._state.image.topic_by_id(wanted.topic_id)
        for partition in wanted.partitions:
            result = ResponsePartitionData(partition_index=partition.partition_index)
            try:
                self._assign(directory_id, topic, partition.partition_index)
            except BrokerError as error:
                result.error_code = error.code
            answer.partitions.append(result)
        return answer

    def _assign(self, directory_id: bytes, topic: TopicImage | None, index: int) -> None:
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
        key = (topic.topic_id, index)
        partition = self._changed.get(key, topic.partitions.get(index))
        if partition is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        broker_id = self._broker.broker_id
        if broker_id not in partition.replicas:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        config = self._state.image.topic_config(topic.name, self._config)
        change = partition_change(self._state, topic, partition, config, active_in(self._state.image))
        change.assign(broker_id, directory_id)
        if not has_online_directory(self._broker, directory_id):
            change.isr = [replica for replica in change.isr if replica != broker_id]
        record = change.record()
        if record is not None:
            self._changes.append(record)
            self._changed[key] = changed_partition(partition, record)
