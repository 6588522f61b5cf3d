"""Changes of a partition when replicas come, go or lead: elections and the ISR (KIP-966). Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from blumfeld.config.values import BROKER_CONFIGS, BrokerConfig, TopicConfig, usable
from blumfeld.metadata.decision import ControllerState
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.partition_index import NO_LEADER, Sweep, all_of, along
from blumfeld.metadata.partitions.directories import directory_of, may_lead_from
from blumfeld.metadata.slices import SLICE_LOOKS, SLICE_RECORDS
from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE, PartitionImage, TopicImage
from blumfeld.wire.messages.metadata_records import PartitionChangeRecord
from blumfeld.wire.schema import Message

Usable = Callable[[int, bytes], bool]
"""(Broker id, directory of its replica) → whether the replica may lead from there."""

RECOVERED, RECOVERING = 0, 1


class PartitionChange:
    """A partition change under construction: set the fields, then take the record.

    :param usable: whether a replica may lead by itself: its broker is registered, unfenced, not shutting
        down, and has the directory online
    :param min_isr: ``min.insync.replicas`` where eligible leader replicas are kept (KIP-966), else ``None``
    :param unclean: ``unclean.leader.election.enable``: a replica that may lack records may lead
    """

    def __init__(
        self,
        topic_id: bytes,
        partition: PartitionImage,
        usable: Usable,
        *,
        min_isr: int | None = None,
        unclean: bool = False,
    ) -> None:
        self.partition = partition
        self.isr = list(partition.isr)
        self.directories = [directory_of(partition, replica) for replica in partition.replicas]
        """Directory of each replica, in the order of ``replicas``. The election looks here, not at the old
        partition.
        """
        self.recovery_state = partition.leader_recovery_state
        self._topic_id = topic_id
        self._usable_from = usable
        self._min_isr = min_isr
        self._unclean = unclean
        self._elr = list(partition.eligible_leader_replicas)
        self._last_known_elr = list(partition.last_known_elr)

    def assign(self, broker_id: int, directory_id: bytes) -> None:
        """Set the directory of the broker's replica."""
        self.directories[self.partition.replicas.index(broker_id)] = directory_id

    def record(self) -> PartitionChangeRecord | None:
        """Returns the record to append, or ``None`` if nothing changes. A new leader implies a new leader epoch."""
        old = self.partition
        self._populate_elr()
        leader = self._elect()
        record = PartitionChangeRecord(partition_id=old.partition, topic_id=self._topic_id)
        if leader != old.leader:
            record.leader = leader
        # Without ELR an emptied ISR is not written: the last one is the only record of which replicas have
        # every committed record.
        if (self.isr or self._min_isr is not None) and tuple(self.isr) != old.isr:
            record.isr = self.isr
        if tuple(self._elr) != old.eligible_leader_replicas:
            record.eligible_leader_replicas = self._elr
        if tuple(self._last_known_elr) != old.last_known_elr:
            record.last_known_elr = self._last_known_elr
        if self.recovery_state != old.leader_recovery_state:
            record.leader_recovery_state = self.recovery_state
        if self.directories != [directory_of(old, replica) for replica in old.replicas]:
            record.directories = self.directories
        untouched = PartitionChangeRecord(partition_id=old.partition, topic_id=self._topic_id)
        return None if record == untouched else record

    def _populate_elr(self) -> None:
        if self._min_isr is None:
            return
        if len(self.isr) >= min(self._min_isr, len(self.partition.replicas)):
            self._elr = []
            self._last_known_elr = []
            return
        candidates = dict.fromkeys([*self.partition.isr, *self._elr])
        self._elr = [r for r in candidates if r not in self.isr]
        known = dict.fromkeys([*candidates, *self._last_known_elr])
        self._last_known_elr = [r for r in known if r not in self.isr and r not in self._elr]

    def _elect(self) -> int:
        if self._may_lead(self.partition.leader):
            return self.partition.leader
        for replica in self.partition.replicas:
            if self._may_lead(replica):
                if replica in self._elr:
                    self._elr.remove(replica)
                    self.isr = [replica]
                return replica
        if self._unclean:
            for replica in self.partition.replicas:
                if self._usable(replica):
                    return self._elect_unclean(replica)
        return NO_LEADER

    def _usable(self, replica: int) -> bool:
        replicas = self.partition.replicas
        return replica in replicas and self._usable_from(replica, self.directories[replicas.index(replica)])

    def _may_lead(self, replica: int) -> bool:
        in_sync = replica in self.isr or (not self.isr and replica in self._elr)
        return in_sync and self._usable(replica)

    def _elect_unclean(self, replica: int) -> int:
        self.isr = [replica]
        self._elr = [r for r in self._elr if r != replica]
        self._last_known_elr = [r for r in self._last_known_elr if r != replica]
        self.recovery_state = RECOVERING
        return replica


def effective_config(state: ControllerState) -> BrokerConfig:
    """Returns the broker configuration: values set at run time for all brokers, then the manifest's."""
    given = state.image.config(BROKER_RESOURCE, "")
    known = usable(BROKER_CONFIGS, given)
    return state.config.with_overrides(dynamic_default=known) if known else state.config


def topic_config(state: ControllerState, topic: TopicImage, config: BrokerConfig) -> TopicConfig:
    """Returns the topic's configuration. Keys that a later Kafka stored and this build does not know are ignored."""
    given = state.image.config(TOPIC_RESOURCE, topic.name)
    return TopicConfig.stored(given, config)


def partition_change(
    state: ControllerState,
    topic: TopicImage,
    partition: PartitionImage,
    config: TopicConfig,
    usable: Usable,
) -> PartitionChange:
    """Begin a change of this partition under its topic's configuration."""
    return PartitionChange(
        topic.topic_id,
        partition,
        usable,
        min_isr=config.min_insync_replicas if state.image.elr_enabled else None,
        unclean=config.unclean_leader_election_enable,
    )


def active_in(image: MetadataImage) -> Usable:
    """Returns the test whether a replica may lead, by the image alone."""
    return lambda broker, directory: image.is_active(broker) and may_lead_from(image, broker, directory)


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
    active = active_in(state.image)
    return _changes(
        state,
        lambda broker, directory: broker != broker_id and active(broker, directory),
        along(found := state.image.index.in_sync(broker_id), all_of(found)),
        removed=broker_id,
    )


def without_directories(
    state: ControllerState, broker_id: int, directories: Collection[bytes], ahead: Sweep | None = None
) -> Changes:
    """Remove the broker's replicas in these directories from every leadership, and from every ISR that keeps
    another member.

    :param ahead: where the call before it ended
    """
    active = active_in(state.image)

    def lost(partition: PartitionImage) -> bool:
        return broker_id in partition.isr and directory_of(partition, broker_id) in directories

    found = state.image.index.in_sync(broker_id)
    return _changes(
        state,
        lambda broker, directory: broker != broker_id and active(broker, directory),
        along(found, ahead or all_of(found)),
        lost,
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


def _elections(state: ControllerState, usable: Usable, ahead: Sweep | None) -> Changes:
    def electable(partition: PartitionImage) -> bool:
        return any(usable(replica, directory_of(partition, replica)) for replica in partition.replicas)

    found = state.image.index.led(NO_LEADER)
    return _changes(state, usable, along(found, ahead or all_of(found)), electable)


def _changes(
    state: ControllerState,
    usable: Usable,
    partitions: Iterable[tuple[bytes, int, Sweep]],
    concerned: Callable[[PartitionImage], bool] | None = None,
    removed: int | None = None,
) -> Changes:
    found: list[Message] = []
    broker_config = effective_config(state)
    topic: TopicImage | None = None
    config: TopicConfig | None = None
    for looks, (topic_id, number, ahead) in enumerate(partitions, start=1):
        if topic is None or topic.topic_id != topic_id:
            topic, config = state.image.topics[state.image.topic_names[topic_id]], None
        partition = topic.partitions[number]
        if concerned is None or concerned(partition):
            config = config or topic_config(state, topic, broker_config)
            change = partition_change(state, topic, partition, config, usable)
            change.isr = [replica for replica in change.isr if replica != removed]
            record = change.record()
            if record is not None:
                found.append(record)
        if len(found) == SLICE_RECORDS or looks == SLICE_LOOKS:
            return Changes(found, ahead)
    return Changes(found, None)
