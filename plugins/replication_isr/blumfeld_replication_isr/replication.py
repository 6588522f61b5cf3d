"""Replication by an in-sync replica set, as Kafka's: acks=all waits for every member of the ISR.

A leader asks the controller for changes of its ISR (:mod:`~.leader`). Followers are spread over fetchers, a few
connections for each leader (:mod:`~.fetcher`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blumfeld.metadata.partitions.directories import has_online_directory
from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.hooks import Composition, Metric
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.replication import FollowerHost, FollowerReplica, LeaderReplica, ReplicaHost
from blumfeld.spi.runtime import Timer
from blumfeld.spi.scheduler import Lane, Work
from blumfeld.wire.errors import BrokerError
from blumfeld.wire.schema import Message
from blumfeld_replication_isr.isr_changes import IsrChanges
from blumfeld_replication_isr.leader import IsrLeader

if TYPE_CHECKING:
    from blumfeld_replication_isr.fetcher import Fetcher
    from blumfeld_replication_isr.fetcher_owner import IdleFetcher
    from blumfeld_replication_isr.follower import IsrFollower

SUBMIT_TIMEOUT_MS = 5_000
"""Time after which a change of ISRs without an answer is asked for again. A leader's high watermark may wait for that
answer, and to ask twice does no harm. Kafka waits ``controller.socket.timeout.ms``, 30 s."""
STEP_LEADERS = 100
"""Leaders that are looked at in one step: 0.2 ms. Those of one turn share a request to the controller."""
FETCHER_PARTITIONS_MAX = 1_000
"""Partitions of one fetcher. Both nodes look at each partition of a full request, and the leader at each partition of a
session, so more would hold up their other connections. A leader of more partitions gets more fetchers."""


class IsrReplication:
    """Implements ``Replication``. Made → started → stopped."""

    def __init__(self, composition: Composition) -> None:
        self.runtime = composition.runtime
        self.lag_max_ms = composition.config.int("replica.lag.time.max.ms")
        self.changes = IsrChanges(self)
        """Changes of ISRs on their way to the controller."""
        self._composition = composition
        self._leaders: dict[IsrLeader, None] = {}
        self._timer: Timer | None = None
        self._check: Work | None = None
        """The last look at all leaders."""
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        """Fetchers by leader and number."""
        self._leader_epochs: dict[int, int] = {}
        """Broker epoch of each leader that is fetched from: the process that its connections lead to."""
        self._isr_shrinks = self._isr_expands = 0
        self._defects = RepeatedEvents(self.runtime)

    @property
    def node_id(self) -> int:
        """This node."""
        return self._composition.node_id

    def promise(self) -> str:
        """The meaning of an ack of all, in words."""
        return "written by every member of the ISR"

    async def start(self) -> None:
        """Look for laggards twice in each ``replica.lag.time.max.ms``, as Kafka does."""
        self._later()

    def become_leader(self, host: ReplicaHost, image: PartitionImage, high_watermark: int) -> LeaderReplica:
        """Lead ``host.partition`` in ``image.leader_epoch``."""
        leader = IsrLeader(self, host, image, high_watermark)
        self._leaders[leader] = None
        return leader

    def become_follower(self, host: FollowerHost, image: PartitionImage) -> FollowerReplica:
        """Follow ``image.leader`` in ``image.leader_epoch``. The first fetch leaves at the end of this turn."""
        from blumfeld_replication_isr.follower import IsrFollower

        follower = IsrFollower(host, image)
        self._fetcher_for(image.leader, follower).add(follower)
        return follower

    async def stop(self) -> None:
        """Stop the periodic work. Legal without start."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._check is not None:
            self._check.cancel()
        self.changes.stop()
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
                lambda: self._isr_shrinks,
            ),
            Metric(
                "blumfeld_isr_expands_total",
                "Replicas that joined the ISR of a partition led here (Kafka's IsrExpandsPerSec)",
                "counter",
                lambda: self._isr_expands,
            ),
            Metric(
                "blumfeld_replica_max_lag_records",
                "Records that the slowest follower of a partition led here lacks (Kafka's MaxLag, seen by the leader)",
                "gauge",
                lambda: max((leader.max_lag for leader in self._leaders), default=0),
            ),
        ]

    # For followers

    def _fetcher_for(self, leader_id: int, follower: IsrFollower) -> Fetcher:
        """Returns the fetcher with the partition's number, or the next one that has room."""
        self._look_at_leader(leader_id)
        config = self._composition.config
        fetchers = config.int("num.replica.fetchers")
        topic_id, index = follower.key
        number = (int.from_bytes(topic_id[-4:]) + index) % fetchers
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
        listener = next(one.name for one in composition.listeners if one.inter_broker)
        events = composition.log("replication")
        fetcher = self._fetchers[leader_id, number] = Fetcher(
            self,
            leader_id,
            number,
            composition.peers.channel(leader_id, listener, f"fetch-{number}"),
            FetchSettings.of(composition.config),
            events,
            self._defects,
        )
        return fetcher

    def close_idle(self, fetcher: IdleFetcher) -> None:
        """Stop a fetcher that has had no partition for a while."""
        del self._fetchers[fetcher.leader_id, fetcher.number]
        fetcher.stop()

    # For leaders

    def isr_changed(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """Count the replicas that left an ISR or joined it."""
        self._isr_shrinks += sum(replica not in after for replica in before)
        self._isr_expands += sum(replica not in before for replica in after)

    def gone(self, leader: IsrLeader) -> None:
        """It has stopped."""
        self._leaders.pop(leader, None)

    def eligible(self, replica_id: int, directory_id: bytes) -> bool:
        """Whether a broker may be in an ISR now with a replica in this directory: registered, unfenced, not shutting
        down, and the directory isn't offline (KIP-858)."""
        broker = self._composition.metadata.image.brokers.get(replica_id)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            return False
        return has_online_directory(broker, directory_id)

    def alive(self, replica_id: int) -> bool:
        """Whether a broker is registered and not fenced."""
        broker = self._composition.metadata.image.brokers.get(replica_id)
        return broker is not None and not broker.fenced

    def epoch_of(self, replica_id: int) -> int:
        """The broker epoch of a broker that is registered and not fenced; -1 if it isn't."""
        broker = self._composition.metadata.image.brokers.get(replica_id)
        return -1 if broker is None or broker.fenced else broker.epoch

    def rack_of(self, replica_id: int) -> str | None:
        """The rack of a broker, if it is known."""
        broker = self._composition.metadata.image.brokers.get(replica_id)
        return None if broker is None else broker.rack

    def own_epoch(self) -> int:
        """This node's broker epoch, as registered. Not the image's: that may be an earlier process's (KIP-903)."""
        return self._composition.membership.broker_epoch

    def submit(self, command: Message) -> Completion[Message]:
        """Ask the controller."""
        return self._composition.metadata.submit(command, SUBMIT_TIMEOUT_MS, wait_image=False)

    def say_refused(self, event: str, error: BaseException, **values: Any) -> None:
        """Log a refusal of the controller, once for each error in ten seconds."""
        text = str(error) or type(error).__name__
        key = (event, error.code if isinstance(error, BrokerError) else type(error))
        self._defects.say(self._composition.log("replication").warning, event, key, error=text, **values)

    def say_defect(self, event: str, partition: str, defect: Exception) -> None:
        """Log a defect of one partition, once for each kind in ten seconds."""
        self._defects.say(
            self._composition.log("replication").error,
            event,
            (event, partition, type(defect)),
            partition=partition,
            exc_info=defect,
        )

    def _later(self) -> None:
        self._timer = self.runtime.call_later(self.lag_max_ms / 2, self._check_lag)

    def _check_lag(self) -> None:
        self._later()
        if self._check is not None:
            self._check.cancel()
        self._check = self.runtime.scheduler.run(Lane.REPLICATION, self._check_all())

    def _check_all(self) -> Steps[None]:
        for number, leader in enumerate(list(self._leaders), start=1):
            if not number % STEP_LEADERS:
                yield None
            try:
                leader.check_lag()
            except Exception as defect:  # the leaders behind it would keep dead members in their ISRs
                self.say_defect("a leader met a defect in the check of its ISR", leader.partition, defect)
