"""AlterPartition: a leader proposes another ISR (KIP-497, KIP-966). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment, broker_of_epoch
from blumfeld.metadata.image.step import changed_partition
from blumfeld.metadata.partitions.partition_change import RECOVERED, RECOVERING, active_in, partition_change
from blumfeld.metadata.slices import SLICE_LOOKS, SLICE_RECORDS
from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)
from blumfeld.wire.schema import Message


def alter_partition(
    state: ControllerState, request: AlterPartitionRequest, _moment: Moment
) -> ControllerDecision:
    """Change ISRs as their leaders ask; each partition has its own result. A request for many partitions is decided on
    in parts.

    Errors:
    * the whole answer: STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED. If the broker's next process registers between
      two parts, what the earlier parts changed stays.
    * a partition, in this order: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_CONTROLLER (the leader
      has newer metadata than this controller), FENCED_LEADER_EPOCH, INVALID_REQUEST,
      INVALID_UPDATE_VERSION, INELIGIBLE_REPLICA; NEW_LEADER_ELECTED when the change itself took leadership
      from the leader that asked
    """
    wanted = [(topic.topic_id, partition) for topic in request.topics for partition in topic.partitions]
    answers = [ResponseTopicData(topic_id=topic.topic_id) for topic in request.topics]
    places = [
        answer.partitions
        for answer, topic in zip(answers, request.topics, strict=True)
        for _ in topic.partitions
    ]
    return _alter(state, request, wanted, places, AlterPartitionResponse(topics=answers), 0)


def _alter(
    state: ControllerState,
    request: AlterPartitionRequest,
    wanted: Sequence[tuple[bytes, RequestPartitionData]],
    places: Sequence[list[ResponsePartitionData]],
    response: AlterPartitionResponse,
    done: int,
) -> ControllerDecision:
    """Decide on the partitions from number ``done`` on, as far as one part goes.

    :param places: where the result of each goes
    """
    try:
        broker_of_epoch(state, request.broker_id, request.broker_epoch)
    except BrokerError as error:
        return ControllerDecision([], AlterPartitionResponse(error_code=error.code))
    part = _Part(state, request.broker_id)
    end = min(len(wanted), done + SLICE_LOOKS)
    while done < end and len(part.records) < SLICE_RECORDS:
        places[done].append(part.outcome(*wanted[done]))
        done += 1
    rest = None
    if done < len(wanted):

        def rest(state: ControllerState, _: Moment) -> ControllerDecision:
            return _alter(state, request, wanted, places, response, done)

    return ControllerDecision(part.records, response, atomic=False, rest=rest)


class _Part:
    """The changes of one part. Each sees those before it."""

    def __init__(self, state: ControllerState, broker_id: int) -> None:
        self.records: list[Message] = []
        self._state = state
        self._broker_id = broker_id
        self._config = state.image.broker_config(state.config)
        self._usable = active_in(state.image)
        self._changed: dict[tuple[bytes, int], PartitionImage] = {}

    def outcome(self, topic_id: bytes, wanted: RequestPartitionData) -> ResponsePartitionData:
        result = ResponsePartitionData(partition_index=wanted.partition_index)
        try:
            after = self._change(self._state.image.topic_by_id(topic_id), wanted)
        except BrokerError as error:
            result.error_code = error.code
            return result
        if after.leader != self._broker_id:
            result.error_code = ErrorCode.NEW_LEADER_ELECTED
            return result
        result.leader_id = after.leader
        result.leader_epoch = after.leader_epoch
        result.isr = list(after.isr)
        result.leader_recovery_state = after.leader_recovery_state
        result.partition_epoch = after.partition_epoch
        return result

    def _change(self, topic: TopicImage | None, wanted: RequestPartitionData) -> PartitionImage:
        """Returns the partition after the change."""
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
        key = (topic.topic_id, wanted.partition_index)
        partition = self._changed.get(key, topic.partitions.get(wanted.partition_index))
        if partition is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        isr = [b.broker_id for b in wanted.new_isr_with_epochs] or list(wanted.new_isr)
        _check(self._state, self._broker_id, partition, wanted, isr)
        config = self._state.image.topic_config(topic.name, self._config)
        change = partition_change(self._state, topic, partition, config, self._usable)
        change.isr = isr
        change.recovery_state = wanted.leader_recovery_state
        record = change.record()
        if record is None:
            return partition
        self.records.append(record)
        self._changed[key] = after = changed_partition(partition, record)
        return after


def _check(
    state: ControllerState,
    broker_id: int,
    partition: PartitionImage,
    wanted: RequestPartitionData,
    isr: list[int],
) -> None:
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        raise BrokerError(ErrorCode.NOT_CONTROLLER)
    if wanted.leader_epoch < partition.leader_epoch:
        raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH)
    if broker_id != partition.leader:
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    if wanted.partition_epoch < partition.partition_epoch:
        raise BrokerError(ErrorCode.INVALID_UPDATE_VERSION)
    if (
        len(set(isr)) != len(isr)
        or not all(replica in partition.replicas for replica in isr)
        or partition.leader not in isr
    ):
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    if wanted.leader_recovery_state not in (RECOVERED, RECOVERING):
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    recovering = wanted.leader_recovery_state == RECOVERING
    if recovering and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    epochs = {b.broker_id: b.broker_epoch for b in wanted.new_isr_with_epochs}
    for replica in isr:
        broker = state.image.brokers.get(replica)
        if (
            broker is None
            or not state.image.is_active(replica)
            or epochs.get(replica, -1) not in (-1, broker.epoch)
        ):
            raise BrokerError(ErrorCode.INELIGIBLE_REPLICA)
