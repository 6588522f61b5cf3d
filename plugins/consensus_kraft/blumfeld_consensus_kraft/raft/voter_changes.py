"""The rules of a change of the voters: what the leader refuses, and the set that comes of it (KIP-853). Pure functions.

One voter comes or goes at a time, and the next change waits until the last one is committed. So the majorities of two
neighbouring sets overlap, and a set may count as soon as it stands in the log.
"""

from __future__ import annotations

from typing import NamedTuple

from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_kraft.raft.leadership import UNKNOWN
from blumfeld_consensus_kraft.raft.voters import (
    DYNAMIC_KRAFT_VERSION,
    NO_DIRECTORY,
    ReplicaKey,
    Voter,
    VoterChange,
    VoterSet,
)


class Refusal(NamedTuple):
    """A change that isn't made."""

    error: ErrorCode
    message: str


def refused(latest: VoterChange, high_watermark: int) -> Refusal | None:
    """Returns the error of any change now: UNSUPPORTED_VERSION where the voters are static; REQUEST_TIMED_OUT while the
    leader doesn't know what is committed, or an earlier change isn't. Kafka uses that code, which clients repeat.
    """
    if high_watermark == UNKNOWN:
        return Refusal(
            ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed a record of its epoch yet: try again"
        )
    if latest.kraft_version < DYNAMIC_KRAFT_VERSION:
        return Refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the voters can't change: the quorum has kraft.version {latest.kraft_version}, and "
            f"{DYNAMIC_KRAFT_VERSION} is needed",
        )
    if latest.offset >= high_watermark:
        return Refusal(
            ErrorCode.REQUEST_TIMED_OUT,
            f"an earlier change of the voters, at offset {latest.offset}, is not committed yet: try again",
        )
    return None


def with_added(latest: VoterChange, voter: Voter, listener: str) -> VoterSet | Refusal:
    """Returns the set with a new voter.

    :param listener: the quorum's listener, on which other voters reach it

    Refusals: INVALID_REQUEST: it has no directory id, no endpoint on ``listener``, or does not support the
    ``kraft.version``. DUPLICATE_VOTER: a voter has its node id, on this disk or on another one.
    """
    if voter.key.id < 0 or voter.key.directory_id == NO_DIRECTORY:
        return Refusal(ErrorCode.INVALID_REQUEST, "a new voter needs a node id and a directory id")
    if voter.key.id in latest.voters.voters:
        return Refusal(
            ErrorCode.DUPLICATE_VOTER,
            f"node {voter.key.id} is a voter already: if it lost its disk, remove that voter first",
        )
    return _checked(latest, voter, listener) or latest.voters.with_voter(voter)


def with_removed(latest: VoterChange, key: ReplicaKey) -> VoterSet | Refusal:
    """Returns the set without a voter.

    Refusals: VOTER_NOT_FOUND: no voter has this node id and this directory id. INVALID_REQUEST: it is the only voter.
    """
    voter = latest.voters.voters.get(key.id)
    if voter is None or voter.key != key:
        return Refusal(ErrorCode.VOTER_NOT_FOUND, f"no voter has the node id {key.id} and this directory id")
    if len(latest.voters.ids) == 1:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"node {key.id} is the only voter: a quorum without voters has no leader",
        )
    return latest.voters.without(key.id)


def with_updated(latest: VoterChange, voter: Voter, listener: str) -> VoterSet | Refusal:
    """Returns the set with other endpoints and versions of a voter.

    Refusals: VOTER_NOT_FOUND: no voter has this node id and this directory id. INVALID_REQUEST: it has no endpoint on
    ``listener``, or does not support the ``kraft.version``.
    """
    known = latest.voters.voters.get(voter.key.id)
    if known is None or known.key != voter.key:
        return Refusal(
            ErrorCode.VOTER_NOT_FOUND, f"no voter has the node id {voter.key.id} and this directory id"
        )
    return _checked(latest, voter, listener) or latest.voters.with_voter(voter)


def _checked(latest: VoterChange, voter: Voter, listener: str) -> Refusal | None:
    if not any(endpoint.listener == listener for endpoint in voter.endpoints):
        listeners = ", ".join(endpoint.listener for endpoint in voter.endpoints) or "none"
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"node {voter.key.id} must name an endpoint on the quorum's listener {listener}; it names: {listeners}",
        )
    if not voter.kraft_version_min <= latest.kraft_version <= voter.kraft_version_max:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"node {voter.key.id} supports kraft.version {voter.kraft_version_min} to {voter.kraft_version_max}, the "
            f"quorum has {latest.kraft_version}",
        )
    return None
