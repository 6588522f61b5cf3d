"""A change of a partition when replicas come, go or lead: its next leader, ISR and ELR (KIP-966). Pure."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from blumfeld.config.values import TopicConfig
from blumfeld.metadata.decision import ControllerState
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.partition_index import NO_LEADER
from blumfeld.metadata.partitions.directories import directory_of, may_lead_from
from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.wire.messages.metadata_records import PartitionChangeRecord

Usable = Callable[[int, bytes], bool]
"""(Broker id, directory of its replica) → whether the replica may lead from there."""

RECOVERED, RECOVERING = 0, 1


class Election(Enum):
    """The reach of an election that looks for a leader."""

    ONLINE = auto()
    """The present leader stays if it may. Otherwise the first replica that has every committed record leads."""
    PREFERRED = auto()
    """As ``ONLINE``, but the first replica leads if it may."""
    UNCLEAN = auto()
    """As ``ONLINE``, but if no such replica is active, the first active one leads. It may lack records."""


class PartitionChange:
    """A partition change under construction: set the fields, then take the record. Kafka's
    ``PartitionChangeBuilder``, with its "balanced" recovery: ``last_known_elr`` has the last leader of a partition
    whose ISR is empty, and nothing else.

    :param usable: whether a replica may lead by itself: its broker is registered, unfenced, not shutting
        down, and has the directory online
    :param min_isr: ``min.insync.replicas`` where eligible leader replicas are kept (KIP-966), else ``None``
    :param lost: a broker whose page cache is gone: it restarted without a clean shutdown, and may lack committed
        records. It leaves the ISR, and doesn't become eligible.
    """

    def __init__(
        self,
        topic_id: bytes,
        partition: PartitionImage,
        usable: Usable,
        *,
        min_isr: int | None = None,
        election: Election = Election.ONLINE,
        lost: int | None = None,
    ) -> None:
        self.partition = partition
        self.replicas = list(partition.replicas)
        self.adding = list(partition.adding_replicas)
        self.removing = list(partition.removing_replicas)
        self.isr = [replica for replica in partition.isr if replica != lost]
        self.directories = {replica: directory_of(partition, replica) for replica in partition.replicas}
        """Directory of each replica. The election looks here, not at the old partition. A replica that is added needs
        an entry.
        """
        self.recovery_state = partition.leader_recovery_state
        self._topic_id = topic_id
        self._usable_from = usable
        self._min_isr = min_isr
        self._election = election
        self._lost = lost
        self._elr = list(partition.eligible_leader_replicas)

    def assign(self, broker_id: int, directory_id: bytes) -> None:
        """Set the directory of the broker's replica."""
        self.directories[broker_id] = directory_id

    def forget_eligible(self) -> None:
        """Let no replica be eligible any more: the new ISR was chosen without regard to committed records."""
        self._elr = []
        self.recovery_state = RECOVERING

    def record(self) -> PartitionChangeRecord | None:
        """Returns the record to append, or ``None`` if nothing changes. A new leader implies a new leader epoch."""
        old = self.partition
        self._end_reassignment()
        self._populate_elr()
        leader = self._elect()
        record = PartitionChangeRecord(partition_id=old.partition, topic_id=self._topic_id)
        # A replica that was removed must not fetch on in the same leader epoch.
        if leader != old.leader or not set(old.replicas) <= set(self.replicas):
            record.leader = leader
        # Without ELR an emptied ISR is not written: the last one is the only record of which replicas have
        # every committed record.
        if (self.isr or self._min_isr is not None) and tuple(self.isr) != old.isr:
            record.isr = self.isr
        if tuple(self._elr) != old.eligible_leader_replicas:
            record.eligible_leader_replicas = self._elr
        last_known = self._last_leader(leader)
        if last_known != old.last_known_elr:
            record.last_known_elr = list(last_known)
        if self.recovery_state != old.leader_recovery_state:
            record.leader_recovery_state = self.recovery_state
        self._reassign(record)
        untouched = PartitionChangeRecord(partition_id=old.partition, topic_id=self._topic_id)
        return None if record == untouched else record

    def _end_reassignment(self) -> None:
        """Remove the replicas that go (KIP-455), as soon as the ISR without them has every added replica.

        If fewer come than go, the ISR must have all replicas that stay: otherwise a smaller replication factor could
        leave fewer copies in sync than there are now (Kafka's ``PartitionReassignmentReplicas``).
        """
        if not self.adding and not self.removing:
            return
        replicas = [replica for replica in self.replicas if replica not in self.removing]
        isr = [replica for replica in self.isr if replica not in self.removing]
        coming = [replica for replica in self.adding if replica not in self.removing]
        awaited = replicas if len(coming) < len(self.removing) else coming
        if replicas and isr and set(awaited) <= set(isr):
            self.replicas, self.isr = replicas, isr
            self.adding, self.removing = [], []

    def _reassign(self, record: PartitionChangeRecord) -> None:
        old = self.partition
        directories = [self.directories[replica] for replica in self.replicas]
        if directories != [directory_of(old, replica) for replica in old.replicas]:
            record.directories = directories
        if tuple(self.replicas) != old.replicas:
            record.replicas = self.replicas
        if tuple(self.removing) != old.removing_replicas:
            record.removing_replicas = self.removing
        if tuple(self.adding) != old.adding_replicas:
            record.adding_replicas = self.adding

    def _populate_elr(self) -> None:
        """Members that leave the ISR below ``min.insync.replicas`` are eligible: the high watermark stands from then
        on, so they have every committed record. An ISR of that size needs no others.
        """
        if self._min_isr is None:
            # The feature was turned off. Eligible replicas keep their promise only where no ISR was there since.
            if self.partition.isr:
                self._elr = []
            return
        if len(self.isr) >= min(self._min_isr, len(self.replicas)):
            self._elr = []
            return
        candidates = dict.fromkeys([*self.partition.isr, *self._elr])
        there = [r for r in candidates if r in self.replicas]
        self._elr = [r for r in there if r not in self.isr and r != self._lost]

    def _elect(self) -> int:
        partition = self.partition
        first = self.replicas[0] if self.replicas else NO_LEADER
        candidates = [partition.leader, *self.replicas]
        if self._election is Election.PREFERRED:
            candidates.insert(0, first)
        for replica in candidates:
            if self._may_lead(replica):
                if replica not in self.isr:
                    self._elr.remove(replica)
                    self.isr = [replica]
                return replica
        if self._last_known_may_lead():
            return self._elect_unclean(partition.last_known_elr[0])
        if self._election is Election.UNCLEAN:
            for replica in self.replicas:
                if self.usable(replica):
                    return self._elect_unclean(replica)
        return NO_LEADER

    def usable(self, replica: int) -> bool:
        """Whether this is a replica, and its broker and directory let it lead."""
        return replica in self.replicas and self._usable_from(replica, self.directories[replica])

    def _may_lead(self, replica: int) -> bool:
        has_all = replica in self.isr or (not self.isr and replica in self._elr)
        return has_all and self.usable(replica)

    def _last_known_may_lead(self) -> bool:
        """Whether every replica with all committed records lost its page cache, so that the last leader is the best
        guess. Kafka elects it without being asked.
        """
        last = self.partition.last_known_elr
        if self._min_isr is None or self.isr or self._elr or len(last) != 1:
            return False
        return self.usable(last[0])

    def _elect_unclean(self, replica: int) -> int:
        # From here on the log may differ from those of the eligible replicas: they are eligible no more.
        self.isr = [replica]
        self._elr = []
        self.recovery_state = RECOVERING
        return replica

    def _last_leader(self, leader: int) -> tuple[int, ...]:
        """Returns the last leader, for a partition that has none and whose ISR is empty."""
        old = self.partition
        if leader != NO_LEADER:
            return ()
        if self._min_isr is None or self.isr or not old.isr:
            return old.last_known_elr
        if old.leader != NO_LEADER:
            return (old.leader,)
        # It became leaderless before the feature was on. Its last ISR member led it.
        return old.isr if len(old.isr) == 1 else old.last_known_elr


def partition_change(
    state: ControllerState,
    topic: TopicImage,
    partition: PartitionImage,
    config: TopicConfig,
    usable: Usable,
    *,
    election: Election | None = None,
    lost: int | None = None,
) -> PartitionChange:
    """Begin a change of this partition under its topic's configuration.

    :param election: how to elect; ``None``: as ``unclean.leader.election.enable`` says
    :param lost: as :class:`PartitionChange`
    """
    if election is None:
        election = Election.UNCLEAN if config.unclean_leader_election_enable else Election.ONLINE
    return PartitionChange(
        topic.topic_id,
        partition,
        usable,
        min_isr=config.min_insync_replicas if state.image.elr_enabled else None,
        election=election,
        lost=lost,
    )


def active_in(image: MetadataImage) -> Usable:
    """Returns the test whether a replica may lead, by the image alone."""
    return lambda broker, directory: image.is_active(broker) and may_lead_from(image, broker, directory)
