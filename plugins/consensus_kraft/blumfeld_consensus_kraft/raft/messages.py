"""Messages between voters and observers, without the wire's form.

``leader_id`` is -1 where the sender knows none. Errors are the protocol's codes.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from blumfeld.spi.leader_epochs import EpochEnd
from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_kraft.raft.voters import ReplicaKey

NO_LEADER = -1


class SnapshotId(NamedTuple):
    """A snapshot: all records below ``end_offset``, the last of them written in ``epoch``."""

    end_offset: int
    epoch: int


class VoteRequest(NamedTuple):
    """Asks for a vote, or whether the voter would give one (``pre_vote``, KIP-996: in the present epoch)."""

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    last_epoch: int
    end_offset: int
    pre_vote: bool


class VoteAnswer(NamedTuple):
    """The answer of a voter."""

    error: ErrorCode
    epoch: int
    leader_id: int = NO_LEADER
    granted: bool = False


class BeginEpoch(NamedTuple):
    """BeginQuorumEpoch: the sender leads."""

    epoch: int
    leader_id: int
    voter: ReplicaKey


class EndEpoch(NamedTuple):
    """EndQuorumEpoch: the sender leads no longer. ``successors`` are in the order in which they should try."""

    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...]

    def place_of(self, replica: ReplicaKey) -> int:
        """Returns the place of a replica among the successors, from 0 on; behind the last if it is none."""
        places = (place for place, key in enumerate(self.successors) if key.matches(replica))
        return next(places, len(self.successors))


class EpochAnswer(NamedTuple):
    """The answer to BeginEpoch and EndEpoch."""

    error: ErrorCode
    epoch: int
    leader_id: int = NO_LEADER


class FetchRequest(NamedTuple):
    """A replica has everything below ``offset`` on its disk, the last of it written in ``last_epoch``."""

    replica: ReplicaKey
    epoch: int
    offset: int
    last_epoch: int
    high_watermark: int = -1


class FetchAnswer(NamedTuple):
    """At most one of ``diverging``, ``snapshot`` and ``records`` is there."""

    error: ErrorCode
    epoch: int
    leader_id: int = NO_LEADER
    high_watermark: int = -1
    diverging: EpochEnd | None = None
    """The end of the largest epoch that the leader has and that is not above ``last_epoch``."""
    snapshot: SnapshotId | None = None
    """The leader has no records at ``offset`` any more: take this snapshot."""
    records: Any = None
    """Batches, opaque here; ``None`` where there are none (yet)."""


Request: TypeAlias = VoteRequest | BeginEpoch | EndEpoch | FetchRequest
