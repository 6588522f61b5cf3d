"""Replication by an in-sync replica set, as Kafka's: acks=all waits for every member of the ISR.

The leader's part is whole. Following another leader comes with the cluster: until then it is refused.
"""

from __future__ import annotations

from collections import deque

from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition
from blumfeld.spi.replication import FollowerHost, FollowerReplica, LeaderReplica, ReplicaHost
from blumfeld.spi.runtime import Timer
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.schema import Message
from blumfeld_replication_isr.leader import IsrLeader

SUBMIT_TIMEOUT_MS = 30_000
CHECKED_AT_ONCE = 1_000
"""Leaders that are looked at in one turn: a millisecond or two."""


class IsrReplication:
    """Implements ``Replication``. Made → started → stopped."""

    def __init__(self, composition: Composition) -> None:
        self.runtime = composition.runtime
        self.lag_max_ms = composition.config.int("replica.lag.time.max.ms")
        self._composition = composition
        self._leaders: dict[IsrLeader, None] = {}
        self._timer: Timer | None = None
        self._unchecked: deque[IsrLeader] = deque()
        """Leaders that this round has yet to look at."""
        self._slice_timer: Timer | None = None

    def promise(self) -> str:
        """What an ack of all means."""
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
        """Not yet: raises BrokerError UNSUPPORTED_VERSION."""
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{host.partition} is led by node {image.leader}, and this build can't follow yet",
        )

    async def stop(self) -> None:
        """Stop the periodic work. Legal without start."""
        for timer in (self._timer, self._slice_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._slice_timer = None

    # For leaders

    def gone(self, leader: IsrLeader) -> None:
        """It has stopped."""
        self._leaders.pop(leader, None)

    def eligible(self, replica_id: int) -> bool:
        """Whether a broker may be in an ISR now: registered, unfenced, not shutting down."""
        broker = self._composition.metadata.image.brokers.get(replica_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def alive(self, replica_id: int) -> bool:
        """Whether a broker is registered and not fenced."""
        broker = self._composition.metadata.image.brokers.get(replica_id)
        return broker is not None and not broker.fenced

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

    def _later(self) -> None:
        self._timer = self.runtime.call_later(self.lag_max_ms / 2, self._check_lag)

    def _check_lag(self) -> None:
        self._later()
        self._unchecked = deque(self._leaders)
        self._check_some()

    def _check_some(self) -> None:
        for _ in range(min(CHECKED_AT_ONCE, len(self._unchecked))):
            self._unchecked.popleft().check_lag()
        if self._unchecked:
            self._slice_timer = self.runtime.call_later(0, self._check_some)
