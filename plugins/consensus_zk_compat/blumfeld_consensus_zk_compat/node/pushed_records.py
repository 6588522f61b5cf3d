"""UpdateMetadata as records of the node's image. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.partitions.directories import LOST_DIRECTORY, MIGRATING_DIRECTORY
from blumfeld.spi.cluster import PartitionImage
from blumfeld.wire.messages.metadata_records import (
    BrokerEndpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from blumfeld.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from blumfeld.wire.schema import Message

DURING_DELETE = -2
"""The leader of a partition whose topic is being deleted."""
UNKNOWN_EPOCH = -1
"""UpdateMetadata has no broker epochs. The controller checks those of an ISR (KIP-903); this node has them from the
followers' fetches."""


def new_topics(image: MetadataImage, request: UpdateMetadataRequest) -> list[str]:
    """Returns the names of the topics that the image doesn't have, and that aren't being deleted."""
    return [
        state.topic_name
        for state in request.topic_states
        if image.topic_by_id(state.topic_id) is None and not _is_deleted(state)
    ]


def records_of(image: MetadataImage, request: UpdateMetadataRequest, own_id: int) -> Iterator[Message]:
    """Yield the records that bring the image to what a push says.

    :param own_id: this node, whose registration is its own affair
    """
    ids = {broker.id for broker in request.live_brokers}
    yield from _brokers(image, request.live_brokers, ids, own_id)
    for state in request.topic_states:
        yield from _topic(image, state, ids)


def _brokers(
    image: MetadataImage, live: list[UpdateMetadataBroker], ids: Collection[int], own_id: int
) -> Iterator[Message]:
    for broker_id, known in image.registrations.items():
        if broker_id not in ids and broker_id != own_id:
            yield UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=known.broker_epoch)
    for broker in live:
        registration = _registration(broker)
        if broker.id != own_id and image.registrations.get(broker.id) != registration:
            yield registration


def _registration(broker: UpdateMetadataBroker) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.id,
        broker_epoch=UNKNOWN_EPOCH,
        end_points=[
            BrokerEndpoint(
                name=at.listener, host=at.host, port=at.port, security_protocol=at.security_protocol
            )
            for at in broker.endpoints
        ],
        rack=broker.rack,
        fenced=False,
    )


def _is_deleted(state: UpdateMetadataTopicState) -> bool:
    return any(partition.leader == DURING_DELETE for partition in state.partition_states)


def _topic(
    image: MetadataImage, state: UpdateMetadataTopicState, live_ids: Collection[int]
) -> Iterator[Message]:
    known = image.topics.get(state.topic_name)
    if _is_deleted(state):
        if known is not None and known.topic_id == state.topic_id:
            yield RemoveTopicRecord(topic_id=known.topic_id)
        return
    if known is not None and known.topic_id != state.topic_id:
        yield RemoveTopicRecord(topic_id=known.topic_id)
        known = None
    if known is None:
        yield TopicRecord(name=state.topic_name, topic_id=state.topic_id)
    for partition in state.partition_states:
        before = None if known is None else known.partitions.get(partition.partition_index)
        directories = _directories(partition, live_ids) if partition.offline_replicas else ()
        if before is None or _is_newer(partition, directories, before):
            yield PartitionRecord(
                partition_id=partition.partition_index,
                topic_id=state.topic_id,
                replicas=list(partition.replicas),
                isr=list(partition.isr),
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.zk_version,
                directories=list(directories),
            )


def _directories(state: UpdateMetadataPartitionState, live_ids: Collection[int]) -> tuple[bytes, ...]:
    """Returns the directory of each replica; none if no disk is lost. A replica that is offline although its broker
    lives is on a lost disk; the others are offline as long as the image has no such broker."""
    lost = {replica for replica in state.offline_replicas if replica in live_ids}
    if not lost:
        return ()
    return tuple(LOST_DIRECTORY if replica in lost else MIGRATING_DIRECTORY for replica in state.replicas)


def _is_newer(
    state: UpdateMetadataPartitionState, directories: tuple[bytes, ...], before: PartitionImage
) -> bool:
    """Whether a push tells something new. The tree that was read at the start may be ahead of the first pushes.

    A disk that is lost or well again need not change an epoch.
    """
    if (state.leader_epoch, state.zk_version) == (before.leader_epoch, before.partition_epoch):
        told = tuple(state.replicas), tuple(state.isr), directories
        return told != (before.replicas, before.isr, before.directories)
    return (state.leader_epoch, state.zk_version) > (before.leader_epoch, before.partition_epoch)
