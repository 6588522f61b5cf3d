"""AlterPartition, as a controller with a tree decides on it. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.metadata.partitions.isr import alter_partition
from blumfeld.spi.cluster import TopicImage
from blumfeld.wire.messages.alter_partition import AlterPartitionRequest, RequestPartitionData


def alter_or_tell_again(
    state: ControllerState, request: AlterPartitionRequest, moment: Moment
) -> ControllerDecision:
    """Change ISRs as their leaders ask. A leader whose earlier request was decided, and its answer lost, asks the same
    again under an old partition epoch: it gets the partition as it is, as from Kafka 3.9.

    Nothing else would tell it. A leader of KRaft is refused with INVALID_UPDATE_VERSION, and reads the change in the
    log; in ZooKeeper mode no push tells a leader of an ISR that it has asked for.
    """
    topics = []
    for topic in request.topics:
        image = state.image.topic_by_id(topic.topic_id)
        topics.append(replace(topic, partitions=[_as_now(image, wanted) for wanted in topic.partitions]))
    return alter_partition(state, replace(request, topics=topics), moment)


def _as_now(topic: TopicImage | None, wanted: RequestPartitionData) -> RequestPartitionData:
    """Return the request for a partition, under its present epoch if it is as wanted."""
    partition = None if topic is None else topic.partitions.get(wanted.partition_index)
    if partition is None or wanted.partition_epoch >= partition.partition_epoch:
        return wanted
    isr = tuple(member.broker_id for member in wanted.new_isr_with_epochs) or tuple(wanted.new_isr)
    is_as_wanted = (isr, wanted.leader_epoch, wanted.leader_recovery_state) == (
        partition.isr,
        partition.leader_epoch,
        partition.leader_recovery_state,
    )
    return replace(wanted, partition_epoch=partition.partition_epoch) if is_as_wanted else wanted
