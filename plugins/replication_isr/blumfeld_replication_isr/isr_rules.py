"""The ISR rules of one partition's leader in one leader epoch (KIP-497, Kafka's ``Partition``), pure.

The driver tells what happened and when; the rules say where the high watermark is and which ISR the leader
should ask the controller for. They read no clock and send nothing. Followers' offsets come from their fetches:
to fetch from an offset acknowledges everything below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

NEVER_MS = float("-inf")


@attrs.define
class FollowerState:
    """The state of one follower, as its leader knows it."""

    replica_id: int
    log_end_offset: int = -1
    """-1 until its first fetch in this leader epoch."""
    log_start_offset: int = -1
    broker_epoch: int = -1
    last_fetch_ms: float = NEVER_MS
    leader_end_at_last_fetch: int = 0
    last_caught_up_ms: float = NEVER_MS

    def fetched(
        self, offset: int, log_start_offset: int, broker_epoch: int, leader_end_offset: int, now_ms: float
    ) -> None:
        """It has everything below ``offset``, from ``log_start_offset`` on.

        Caught up now if it has the leader's whole log; as of its fetch before if it has what the log was then:
        so a follower of a busy leader, always a fetch behind, still counts as caught up.
        """
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.leader_end_at_last_fetch = leader_end_offset
        self.last_fetch_ms = now_ms

    def left_isr(self) -> None:
        """It left the ISR: that it was caught up before means no longer that it is about to join.

        Kafka goes on to count it as caught up, for ``replica.lag.time.max.ms``. So when a broker comes back after a cut
        or a restart, Kafka's high watermark stands still until that broker has copied what it missed.
        """
        self.last_caught_up_ms = self.last_fetch_ms = NEVER_MS

    def caught_up(self, leader_end_offset: int, now_ms: float, lag_max_ms: float) -> bool:
        """Whether it has the whole log, or had it less than ``lag_max_ms`` ago."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_max_ms


class IsrRules:
    """ISR, high watermark and the one ISR change that may be on its way to the controller.

    ``eligible(replica_id)`` says whether a broker may be in an ISR now: registered, unfenced, not shutting
    down. ``high_watermark`` never goes back.

    :param epoch_start_offset: end of the records of earlier leader epochs. A follower may join the ISR once it has all
        below: before that, its log may still have records of another history
    """

    def __init__(
        self,
        *,
        leader_id: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        partition_epoch: int,
        min_insync_replicas: int,
        log_end_offset: int,
        epoch_start_offset: int,
        high_watermark: int,
        lag_max_ms: float,
        now_ms: float,
        eligible: Callable[[int], bool],
    ) -> None:
        self.leader_id = leader_id
        self.isr = tuple(isr)
        self.partition_epoch = partition_epoch
        self.min_insync_replicas = min_insync_replicas
        self.log_end_offset = log_end_offset
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark = min(high_watermark, log_end_offset)
        self.lag_max_ms = lag_max_ms
        self.proposed: tuple[int, ...] | None = None
        self._eligible = eligible
        self.followers = {
            # A member of the ISR has until lag_max_ms to make its first fetch.
            r: FollowerState(r, last_caught_up_ms=now_ms if r in self.isr else NEVER_MS)
            for r in replicas
            if r != leader_id
        }

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The ISR, with whom a change in flight would add: the controller may have decided already."""
        if self.proposed is None:
            return self.isr
        return self.isr + tuple(r for r in self.proposed if r not in self.isr)

    def log_end_moved(self, log_end_offset: int, now_ms: float) -> bool:
        """The leader's own log grew (or was cut back); whether the high watermark moved."""
        self.log_end_offset = log_end_offset
        return self.advance(now_ms)

    def advance(self, now_ms: float) -> bool:
        """Recompute the high watermark; whether it moved.

        It is the lowest log end over the maximal ISR and over those who are caught up and about to join.
        """
        if len(self.isr) < self.min_insync_replicas:
            return False
        lowest = self.log_end_offset
        if self.followers:
            members = self.maximal_isr
            for follower in self.followers.values():
                if follower.log_end_offset < lowest and (
                    follower.replica_id in members
                    or (
                        follower.caught_up(self.log_end_offset, now_ms, self.lag_max_ms)
                        and self._eligible(follower.replica_id)
                    )
                ):
                    lowest = follower.log_end_offset
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True

    def follower_fetched(
        self, replica_id: int, broker_epoch: int, offset: int, now_ms: float, log_start_offset: int = 0
    ) -> bool:
        """A follower fetched from ``offset``; whether the high watermark moved. Strangers are ignored."""
        follower = self.followers.get(replica_id)
        if follower is None:
            return False
        follower.fetched(offset, log_start_offset, broker_epoch, self.log_end_offset, now_ms)
        return self.advance(now_ms)

    def low_watermark(self, log_start_offset: int, alive: Callable[[int], bool]) -> int:
        """Returns the lowest log start of the leader and of the followers on live brokers; -1 if one of them has not
        fetched yet.

        :param log_start_offset: the leader's
        """
        starts = [f.log_start_offset for f in self.followers.values() if alive(f.replica_id)]
        return min(log_start_offset, *starts) if starts else log_start_offset

    def preferred_read_replica(
        self, rack: str, fetch_offset: int, rack_of: Callable[[int], str | None]
    ) -> int:
        """Returns the replica that a consumer in ``rack`` had better read from, as Kafka's RackAwareReplicaSelector
        chooses it (KIP-392); -1 for the leader.

        A follower is eligible if it is in the ISR and has the offset. Of several in the rack the one with the most
        records is taken.
        """
        if not rack or rack_of(self.leader_id) == rack:
            return -1
        eligible = [
            follower
            for follower in self.followers.values()
            if follower.replica_id in self.isr
            and 0 <= follower.log_start_offset <= fetch_offset <= follower.log_end_offset
            and rack_of(follower.replica_id) == rack
        ]
        if not eligible:
            return -1
        best = max(eligible, key=lambda f: (f.log_end_offset, f.last_caught_up_ms, f.replica_id))
        return best.replica_id

    def expansion(self, replica_id: int) -> tuple[int, ...] | None:
        """The ISR with this follower in it, if it has earned its place: it holds everything committed, in this
        leader's epoch.
        """
        follower = self.followers.get(replica_id)
        if follower is None or self.proposed is not None or replica_id in self.isr:
            return None
        if follower.log_end_offset < max(self.high_watermark, self.epoch_start_offset):
            return None
        return (*self.isr, replica_id) if self._eligible(replica_id) else None

    def shrinkage(self, now_ms: float) -> tuple[int, ...] | None:
        """The ISR without those who have not been caught up for ``lag_max_ms``, if there are such."""
        if self.proposed is not None:
            return None
        kept = tuple(
            r
            for r in self.isr
            if r == self.leader_id
            or r not in self.followers
            or self.followers[r].caught_up(self.log_end_offset, now_ms, self.lag_max_ms)
        )
        return kept if len(kept) < len(self.isr) else None

    def broker_epoch_of(self, replica_id: int) -> int:
        """As of its last fetch; -1 when unknown, which the controller takes."""
        follower = self.followers.get(replica_id)
        return -1 if follower is None else follower.broker_epoch

    def propose(self, isr: tuple[int, ...]) -> None:
        """This ISR is on its way to the controller; no other is sent before :meth:`settle`."""
        self.proposed = isr

    def settle(
        self,
        isr: Sequence[int] | None,
        partition_epoch: int | None,
        now_ms: float,
        min_isr: int | None = None,
    ) -> bool:
        """The controller decided (or with ``None`` refused: back to the ISR that was); whether the high watermark
        moved. An older partition epoch than ours changes nothing.
        """
        if isr is None or partition_epoch is None:
            self.proposed = None
        elif partition_epoch >= self.partition_epoch:
            self.proposed = None
            for replica_id in self.isr:
                if replica_id not in isr and replica_id in self.followers:
                    self.followers[replica_id].left_isr()
            self.isr = tuple(isr)
            self.partition_epoch = partition_epoch
        if min_isr is not None:
            self.min_insync_replicas = min_isr
        return self.advance(now_ms)

    def set_replicas(self, replicas: Sequence[int]) -> None:
        """The replica set changed (reassignment): newcomers start unknown, leavers are forgotten."""
        self.followers = {
            r: self.followers.get(r) or FollowerState(r) for r in replicas if r != self.leader_id
        }
