"""Replication by an in-sync replica set, as Kafka's: acks=all waits for every member of the ISR.

A leader asks the controller for changes of its ISR (:mod:`~.leader`). Followers are spread over fetchers, a few
connections for each leader (:mod:`~.fetcher`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.completion import Steps
from blumfeld.spi.hooks import Composition, Metric
from blumfeld.spi.replication import FollowerHost, FollowerReplica, LeaderReplica, ReplicaHost
from blumfeld.spi.runtime import Timer
from blumfeld.spi.scheduler import Lane, Work
from blumfeld_replication_isr.isr_changes import IsrChanges
from blumfeld_replication_isr.leader import IsrLeader
from blumfeld_replication_isr.node import Node

if TYPE_CHECKING:
    from blumfeld_replication_isr.fetcher import Fetcher

STEP_LEADERS = 100
"""Leaders that are looked at in one step: 0.2 ms. Those of one turn share a request to the controller."""
FETCHER_PARTITIONS_MAX = 1_000
"""Partitions of one fetcher. Both nodes look at each partition of a full request, and the leader at each partition of a
session, so more would hold up their other connections. A leader of more partitions gets more fetchers."""


class IsrReplication:
    """Implements ``Replication``. Made → started → stopped."""

    def __init__(self, composition: Composition) -> None:
        self._node = Node(composition)
        self._changes = IsrChanges(self._node)
        self._composition = composition
        self._leaders: dict[IsrLeader, None] = {}
        self._timer: Timer | None = None
        self._check: Work | None = None
        """The last look at all leaders."""
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        """Fetchers by leader and number."""
        self._leader_epochs: dict[int, int] = {}
        """Broker epoch of each leader that is fetched from: the process that its connections lead to."""

    def promise(self) -> str:
        """The meaning of an ack of all, in words."""
        return "written by every member of the ISR"

    async def start(self) -> None:
        """Look for laggards twice in each ``replica.lag.time.max.ms``, as Kafka does."""
        self._later()

    def become_leader(self, host: ReplicaHost, image: PartitionImage, high_watermark: int) -> LeaderReplica:
        """Lead ``host.partition`` in ``image.leader_epoch``."""
        leader = IsrLeader(self._node, self._changes, host, image, high_watermark, self._gone)
        self._leaders[leader] = None
        return leader

    def become_follower(self, host: FollowerHost, image: PartitionImage) -> FollowerReplica:
        """Follow ``image.leader`` in ``image.leader_epoch``. The first fetch leaves at the end of this turn."""
        number = int.from_bytes(host.topic_id[-4:]) + host.partition.partition
        return self._fetcher_for(image.leader, number).follow(host, image)

    async def stop(self) -> None:
        """Stop the periodic work. Legal without start."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._check is not None:
            self._check.cancel()
        self._changes.stop()
        fetchers, self._fetchers = self._fetchers, {}
        for fetcher in fetchers.values():
            fetcher.stop()

    def metrics(self) -> list[Metric]:
        """Returns what a scrape reads. The lag is that of all leaders of this node."""
        return [
            Metric(
                "blumfeld_isr_shrinks_total",
                "Replicas that left the ISR of a partition led here (Kafka's IsrShrinksPerSec)",
                "counter",
                lambda: self._changes.shrinks,
            ),
            Metric(
                "blumfeld_isr_expands_total",
                "Replicas that joined the ISR of a partition led here (Kafka's IsrExpandsPerSec)",
                "counter",
                lambda: self._changes.expands,
            ),
            Metric(
                "blumfeld_replica_max_lag_records",
                "Records that the slowest follower of a partition led here lacks (Kafka's MaxLag, seen by the leader)",
                "gauge",
                lambda: max((leader.max_lag for leader in self._leaders), default=0),
            ),
        ]

    # For followers

    def _fetcher_for(self, leader_id: int, number: int) -> Fetcher:
        """Returns the fetcher with the partition's number, or the next one that has room."""
        self._look_at_leader(leader_id)
        fetchers = self._composition.config.int("num.replica.fetchers")
        number %= fetchers
        while (fetcher := self._fetchers.get((leader_id, number))) is not None:
            if len(fetcher) < FETCHER_PARTITIONS_MAX:
                return fetcher
            number += fetchers
        return self._made(leader_id, number)

    def _look_at_leader(self, leader_id: int) -> None:
        """Leave the connections to an earlier process of the leader. After a power cut nothing else ends them."""
        broker = self._composition.metadata.image.brokers.get(leader_id)
        epoch = -1 if broker is None else broker.epoch
        before = self._leader_epochs.get(leader_id)
        self._leader_epochs[leader_id] = epoch
        if before is not None and before != epoch:
            for (leader, _), fetcher in self._fetchers.items():
                if leader == leader_id:
                    fetcher.reconnect()

    def _made(self, leader_id: int, number: int) -> Fetcher:
        # Imported here: a node alone follows nobody.
        from blumfeld_replication_isr.fetch_request import FetchSettings
        from blumfeld_replication_isr.fetcher import Fetcher

        composition = self._composition
        listener = next(candidate.name for candidate in composition.listeners if candidate.inter_broker)
        fetcher = self._fetchers[leader_id, number] = Fetcher(
            self._node,
            leader_id,
            composition.peers.channel(leader_id, listener, f"fetch-{number}"),
            FetchSettings.of(composition.config),
            idle=partial(self._close, leader_id, number),
        )
        return fetcher

    def _close(self, leader_id: int, number: int) -> None:
        """Stop a fetcher that has had no partition for a while."""
        self._fetchers.pop((leader_id, number)).stop()

    # For leaders

    def _gone(self, leader: IsrLeader) -> None:
        self._leaders.pop(leader, None)

    def _later(self) -> None:
        self._timer = self._node.runtime.call_later(self._node.lag_max_ms / 2, self._check_lag)

    def _check_lag(self) -> None:
        self._later()
        if self._check is not None:
            self._check.cancel()
        self._check = self._node.runtime.scheduler.run(Lane.REPLICATION, self._check_all())

    def _check_all(self) -> Steps[None]:
        for number, leader in enumerate(list(self._leaders), start=1):
            if not number % STEP_LEADERS:
                yield None
            try:
                leader.check_lag()
            except Exception as defect:  # the leaders behind it would keep dead members in their ISRs
                self._node.say_defect(
                    "a leader met a defect in the check of its ISR", leader.partition, defect
                )
