"""AlterPartition: a leader proposes another ISR (KIP-497, KIP-966). Pure."""

from __future__ import annotations

from blumfeld.metadata.brokers.registration import broker_of_epoch
from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.metadata.image.step import changed_partition
from blumfeld.metadata.partitions.change import (
    RECOVERED,
    RECOVERING,
    active_in,
    effective_config,
    partition_change,
    topic_config,
)
from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)
from blumfeld.wire.messages.metadata_records import PartitionChangeRecord
from blumfeld.wire.schema import Message


def alter_partition(
    state: ControllerState, request: AlterPartitionRequest, _moment: Moment
) -> ControllerDecision:
    """Change ISRs as their leaders ask; each partition has its own result.

    Errors:
    * the whole answer: STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED
    * a partition, in this order: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_CONTROLLER (the leader
      has newer metadata than this controller), FENCED_LEADER_EPOCH, INVALID_REQUEST,
      INVALID_UPDATE_VERSION, INELIGIBLE_REPLICA; NEW_LEADER_ELECTED when the change itself took leadership
      from the leader that asked
    """
    try:
        broker_of_epoch(state, request.broker_id, request.broker_epoch)
    except BrokerError as error:
        return ControllerDecision([], AlterPartitionResponse(error_code=error.code))
    records: list[Message] = []
    answers = []
    for topic_request in request.topics:
        topic = state.image.topic_by_id(topic_request.topic_id)
        answer = ResponseTopicData(topic_id=topic_request.topic_id)
        for wanted in topic_request.partitions:
            result = ResponsePartitionData(partition_index=wanted.partition_index)
            try:
                record, outcome = _change(state, request.broker_id, topic, wanted)
                if record is not None:
                    records.append(record)
                _fill(result, outcome)
                if outcome.leader != request.broker_id:
                    result.error_code = ErrorCode.NEW_LEADER_ELECTED
            except BrokerError as error:
                result.error_code = error.code
            answer.partitions.append(result)
        answers.append(answer)
    return ControllerDecision(records, AlterPartitionResponse(topics=answers), atomic=False)


def _fill(result: ResponsePartitionData, outcome: PartitionImage) -> None:
    result.leader_id = outcome.leader
    result.leader_epoch = outcome.leader_epoch
    result.isr = list(outcome.isr)
    result.leader_recovery_state = outcome.leader_recovery_state
    result.partition_epoch = outcome.partition_epoch


def _change(
    state: ControllerState, broker_id: int, topic: TopicImage | None, wanted: RequestPartitionData
) -> tuple[PartitionChangeRecord | None, PartitionImage]:
    if topic is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(wanted.partition_index)
    if partition is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    isr = [b.broker_id for b in wanted.new_isr_with_epochs] or list(wanted.new_isr)
    _check(state, broker_id, partition, wanted, isr)
    if tuple(isr) == partition.isr and wanted.leader_recovery_state == partition.leader_recovery_state:
        return None, partition
    config = topic_config(state, topic, effective_config(state))
    change = partition_change(state, topic, partition, config, active_in(state.image))
    change.isr = isr
    change.recovery_state = wanted.leader_recovery_state
    record = change.record()
    return record, partition if record is None else changed_partition(partition, record)


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
