"""A leader's knowledge of the other replicas: the high watermark, the check of the quorum, successors. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from blumfeld_consensus_kraft.raft.settings import Settings
from blumfeld_consensus_kraft.raft.voters import ReplicaKey, VoterSet

UNKNOWN = -1
NEVER_MS = float("-inf")
OBSERVER_FORGOTTEN_MS = 300_000
"""An observer that fetched nothing for so long is forgotten."""
OBSERVERS_MAX = 10_000
"""The leader remembers no more observers: the one that has been silent longest goes. Each start on a new disk is
another one."""
CAUGHT_UP_MAX_MS = 3_600_000
"""As Kafka's ``LeaderState.isReplicaCaughtUp``."""
CHECK_QUORUM_FACTOR = 1.5
"""A leader waits longer than its followers, which look for another leader after ``fetch_timeout_ms``."""


class Progress(msgspec.Struct):
    """One replica, as the leader knows it from its fetches."""

    key: ReplicaKey
    end_offset: int = UNKNOWN
    """It has everything below on its device. ``UNKNOWN`` until it fetched in this epoch."""
    last_fetch_ms: float = NEVER_MS
    last_caught_up_ms: float = NEVER_MS
    leader_end_at_last_fetch: int = UNKNOWN

    def fetched(self, offset: int, leader_end: int, now_ms: float) -> None:
        """It fetched from ``offset``. Caught up: as Kafka's replicas of partitions."""
        if offset >= leader_end:
            self.last_caught_up_ms = now_ms
        elif self.leader_end_at_last_fetch != UNKNOWN and offset >= self.leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = offset
        self.leader_end_at_last_fetch = leader_end
        self.last_fetch_ms = now_ms


class Leadership:
    """The leader's side of one epoch.

    :param epoch_start: offset of the epoch's LeaderChange
    """

    def __init__(
        self, me: ReplicaKey, voters: VoterSet, settings: Settings, epoch_start: int, now_ms: float
    ) -> None:
        self._me = me
        self.epoch_start = epoch_start
        self.high_watermark = UNKNOWN
        """``UNKNOWN`` until a record of this epoch is committed."""
        self._check_quorum_ms = settings.fetch_timeout_ms * CHECK_QUORUM_FACTOR
        self._begin_ms = settings.fetch_timeout_ms / 2
        self._replicas: dict[ReplicaKey, Progress] = {}
        self._voters = voters
        self.check_quorum_at = now_ms + self._check_quorum_ms
        self._heard: set[int] = set()
        """Voters that were heard since the check began anew."""
        self.begin_at = now_ms
        """The time at which BeginQuorumEpoch is due for voters that are silent."""

    def set_voters(self, voters: VoterSet, now_ms: float) -> None:
        """Another set counts from now on. The check of the quorum begins anew: a leader that was alone had none."""
        self._voters = voters
        self._heard.clear()
        self.check_quorum_at = now_ms + self._check_quorum_ms
        self.begin_at = now_ms

    def progress(self, key: ReplicaKey) -> Progress:
        """Returns the progress of a replica, which begins now if it is unknown."""
        progress = self._replicas.get(key)
        if progress is None:
            progress = next(
                (replica for replica in self._replicas.values() if self._is_same_voter(replica.key, key)),
                None,
            )
        if progress is None:
            progress = self._replicas[key] = Progress(key)
        return progress

    def _is_same_voter(self, known: ReplicaKey, key: ReplicaKey) -> bool:
        """A static voter is its node id, whatever directory it says."""
        return known.id == key.id and known in self._voters and key in self._voters

    def heard(self, key: ReplicaKey, now_ms: float) -> None:
        """A replica fetched, records or a snapshot. A majority with the leader itself begins the check anew."""
        if key.id == self._me.id or key not in self._voters:
            return
        self._heard.add(key.id)
        if len(self._heard) >= self._others_needed():
            self._heard.clear()
            self.check_quorum_at = now_ms + self._check_quorum_ms

    def _others_needed(self) -> int:
        """Returns the number of other voters that make a majority, with this one if it is a voter."""
        return max(self._voters.majority - (1 if self._me in self._voters else 0), 0)

    def quorum_is_lost(self, now_ms: float) -> bool:
        """Whether no majority fetched for too long."""
        return self._others_needed() > 0 and now_ms >= self.check_quorum_at

    def fetched(self, key: ReplicaKey, offset: int, leader_end: int, now_ms: float) -> None:
        """A replica has everything below ``offset`` on its device. A reader without a node id is no replica."""
        if key.id < 0:
            return
        self.heard(key, now_ms)
        if key not in self._replicas and key not in self._voters:
            self._make_room_for_an_observer(now_ms)
        self.progress(key).fetched(offset, leader_end, now_ms)

    def moved_high_watermark(self, own_flushed_end: int) -> bool:
        """Move the high watermark to what a majority has flushed; whether it moved.

        Records of earlier epochs are committed only together with one of this epoch (raft's rule 5.4.2).
        """
        ends = sorted(
            (
                own_flushed_end if key.id == self._me.id else self.progress(key).end_offset
                for key in self._voter_keys()
            ),
            reverse=True,
        )
        if not ends:
            return False
        end = ends[self._voters.majority - 1]
        if end <= self.epoch_start or end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True

    def _voter_keys(self) -> Iterable[ReplicaKey]:
        return (voter.key for voter in self._voters.voters.values())

    def is_caught_up(self, key: ReplicaKey, now_ms: float) -> bool:
        """Whether a replica had all records once, and fetched within the last hour: then it may become a voter."""
        progress = self._replicas.get(key)
        return (
            progress is not None
            and progress.last_caught_up_ms != NEVER_MS
            and now_ms - progress.last_fetch_ms < CAUGHT_UP_MAX_MS
        )

    def silent_voters(self, now_ms: float) -> list[int]:
        """Returns the voters that have not fetched lately: BeginQuorumEpoch is due to them. Sets ``begin_at`` anew."""
        self.begin_at = now_ms + self._begin_ms
        return [
            key.id
            for key in self._voter_keys()
            if key.id != self._me.id and self.progress(key).last_fetch_ms <= now_ms - self._begin_ms
        ]

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters; the one with the most records comes first."""
        others = [key for key in self._voter_keys() if key.id != self._me.id]
        return tuple(sorted(others, key=lambda key: (-self.progress(key).end_offset, key.id)))

    def observers(self, now_ms: float) -> list[Progress]:
        """The replicas that fetch and are no voters; those that fell silent are forgotten."""
        self._forget_silent_observers(now_ms)
        return self._observers()

    def _observers(self) -> list[Progress]:
        return [replica for replica in self._replicas.values() if replica.key not in self._voters]

    def _forget_silent_observers(self, now_ms: float) -> None:
        for replica in self._observers():
            if now_ms - replica.last_fetch_ms > OBSERVER_FORGOTTEN_MS:
                del self._replicas[replica.key]

    def _make_room_for_an_observer(self, now_ms: float) -> None:
        self._forget_silent_observers(now_ms)
        known = self._observers()
        if len(known) >= OBSERVERS_MAX:
            del self._replicas[min(known, key=lambda replica: replica.last_fetch_ms).key]
