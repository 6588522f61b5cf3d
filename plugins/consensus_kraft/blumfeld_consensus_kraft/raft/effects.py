"""Effects: the orders of a replica's state machine to its driver. The order of a list is part of the contract.

Nothing that stands behind a :class:`Persist` may be done before it is on the device. While that can't be written, the
driver may refuse requests that wait, and say which node leads: both promise nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from blumfeld_consensus_kraft.raft.messages import (
    EpochAnswer,
    FetchAnswer,
    FetchRequest,
    Request,
    SnapshotId,
    VoteAnswer,
)
from blumfeld_consensus_kraft.raft.voters import ReplicaKey


class Persist(NamedTuple):
    """Write ``quorum-state`` durably."""

    epoch: int
    leader_id: int
    voted: ReplicaKey | None


class Send(NamedTuple):
    """Send a request; then call ``answered`` or ``send_failed`` with it, once."""

    node_id: int
    """Below -1: a bootstrap server, whose node id isn't known."""
    request: Request


class Reply(NamedTuple):
    """The answer to the request that was received."""

    answer: VoteAnswer | EpochAnswer | FetchAnswer


class ReadAndReply(NamedTuple):
    """The answer to a fetch, with the records from ``offset`` on, or parked until there are some."""

    request: FetchRequest
    answer: FetchAnswer


class Lead(NamedTuple):
    """This replica leads the epoch. Its first record must be a LeaderChange."""

    epoch: int
    granting: tuple[ReplicaKey, ...]


class StopLeading(NamedTuple):
    """This replica leads no longer: fail what waits for a commit, forget the controller."""

    epoch: int


class LeaderIs(NamedTuple):
    """The epoch or its leader, as far as this replica knows them, changed."""

    epoch: int
    leader_id: int


class Append(NamedTuple):
    """Append a leader's batches as they are and flush them; then call ``log_changed``."""

    records: Any


class Truncate(NamedTuple):
    """Cut the log and the history of voters; then call ``log_changed``."""

    end_offset: int


class Download(NamedTuple):
    """Fetch a snapshot from the leader, and let the log begin behind it.

    Call ``leader_is_there`` for each chunk, then ``log_changed``, or ``download_failed``.
    """

    leader_id: int
    epoch: int
    snapshot: SnapshotId


class Commit(NamedTuple):
    """Everything below ``high_watermark`` is committed."""

    high_watermark: int


Effect: TypeAlias = (
    Persist
    | Send
    | Reply
    | ReadAndReply
    | Lead
    | StopLeading
    | LeaderIs
    | Append
    | Truncate
    | Download
    | Commit
)
