"""Elections over many partitions, when a broker or a directory comes or goes (KIP-966). Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import chain
from typing import NamedTuple

from blumfeld.config.values import TopicConfig
from blumfeld.metadata.decision import ControllerState
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.partition_index import NO_LEADER, Sweep, all_of, along
from blumfeld.metadata.partitions.directories import directory_of, may_lead_from
from blumfeld.metadata.partitions.partition_change import Election, Usable, active_in, partition_change
from blumfeld.metadata.slices import SLICE_LOOKS, SLICE_RECORDS
from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.wire.schema import Message


class Changes(NamedTuple):
    """Changes of many partitions, as far as one turn goes."""

    records: list[Message]
    ahead: Sweep | None
    """The partitions that are still to be looked at; ``None`` if there are none."""


def without_broker(state: ControllerState, broker_id: int) -> Changes:
    """Remove the broker from every leadership, and from every ISR that keeps another member.

    If partitions are left, call it again when these records are in the image: what it has changed is no longer in the
    index, so it always begins at the front.
    """
    partitions = state.image.index.in_sync(broker_id)
    return _changes(
        state, _without(state.image, broker_id), along(partitions, all_of(partitions)), removed=broker_id
    )


def without_lost_broker(state: ControllerState, broker_id: int) -> Changes:
    """Remove a broker that lost its page cache from every leadership, ISR and ELR (KIP-966). Where eligible replicas
    are kept: elsewhere the last ISR stays, as after any other restart.

    Call it again as :func:`without_broker`.
    """
    if not state.image.elr_enabled:
        return without_broker(state, broker_id)
    in_sync, eligible = state.image.index.in_sync(broker_id), state.image.index.eligible(broker_id)
    return _changes(
        state,
        _without(state.image, broker_id),
        chain(along(in_sync, all_of(in_sync)), along(eligible, all_of(eligible))),
        lost=broker_id,
    )


def _without(image: MetadataImage, broker_id: int) -> Usable:
    active = active_in(image)
    return lambda broker, directory: broker != broker_id and active(broker, directory)


def without_directories(
    state: ControllerState, broker_id: int, directories: Collection[bytes], ahead: Sweep | None = None
) -> Changes:
    """Remove the broker's replicas in these directories from every leadership, and from every ISR that keeps
    another member.

    :param ahead: where the call before it ended
    """

    def offline(partition: PartitionImage) -> bool:
        return broker_id in partition.isr and directory_of(partition, broker_id) in directories

    partitions = state.image.index.in_sync(broker_id)
    return _changes(
        state,
        _without(state.image, broker_id),
        along(partitions, ahead or all_of(partitions)),
        offline,
        removed=broker_id,
    )


def with_broker(
    state: ControllerState,
    broker_id: int,
    offline_directories: Collection[bytes] = (),
    ahead: Sweep | None = None,
) -> Changes:
    """Elect leaders for partitions without one, now that the broker may lead from all but its offline directories.

    :param ahead: where the call before it ended
    """
    image = state.image
    active = active_in(image)

    def usable(broker: int, directory: bytes) -> bool:
        if broker != broker_id:
            return active(broker, directory)
        return directory not in offline_directories and may_lead_from(image, broker, directory)

    return _elections(state, usable, ahead)


def with_any_broker(state: ControllerState, ahead: Sweep | None = None) -> Changes:
    """Elect leaders for partitions without one, as a controller does that takes over: the one before it may have died
    between two parts of :func:`with_broker`.

    :param ahead: where the call before it ended
    """
    if not any(state.image.is_active(broker) for broker in state.image.brokers):
        return Changes([], None)
    return _elections(state, active_in(state.image), ahead)


def with_preferred_leaders(state: ControllerState, ahead: Sweep | None = None) -> Changes:
    """Elect the first replica of each partition that it doesn't lead, where it may lead.

    :param ahead: where the call before it ended
    """
    usable = active_in(state.image)

    def electable(partition: PartitionImage) -> bool:
        first = partition.replicas[0]
        return usable(first, directory_of(partition, first))

    partitions = state.image.index.not_preferred()
    return _changes(
        state, usable, along(partitions, ahead or all_of(partitions)), electable, election=Election.PREFERRED
    )


def _elections(state: ControllerState, usable: Usable, ahead: Sweep | None) -> Changes:
    def electable(partition: PartitionImage) -> bool:
        return any(usable(replica, directory_of(partition, replica)) for replica in partition.replicas)

    partitions = state.image.index.led(NO_LEADER)
    return _changes(state, usable, along(partitions, ahead or all_of(partitions)), electable)


def _changes(
    state: ControllerState,
    usable: Usable,
    partitions: Iterable[tuple[bytes, int, Sweep]],
    concerned: Callable[[PartitionImage], bool] | None = None,
    removed: int | None = None,
    lost: int | None = None,
    election: Election | None = None,
) -> Changes:
    changes: list[Message] = []
    broker_config = state.image.broker_config(state.config)
    topic: TopicImage | None = None
    config: TopicConfig | None = None
    for looks, (topic_id, number, ahead) in enumerate(partitions, start=1):
        if topic is None or topic.topic_id != topic_id:
            topic, config = state.image.topics[state.image.topic_names[topic_id]], None
        partition = topic.partitions[number]
        if concerned is None or concerned(partition):
            config = config or state.image.topic_config(topic.name, broker_config)
            change = partition_change(state, topic, partition, config, usable, lost=lost, election=election)
            change.isr = [replica for replica in change.isr if replica != removed]
            record = change.record()
            if record is not None:
                changes.append(record)
        if len(changes) == SLICE_RECORDS or looks == SLICE_LOOKS:
            return Changes(changes, ahead)
    return Changes(changes, None)
