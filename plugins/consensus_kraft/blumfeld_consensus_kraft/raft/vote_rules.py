"""Whether a replica gives its vote, or its pre-vote. Pure functions."""

from __future__ import annotations

from blumfeld_consensus_kraft.raft.log_view import LogView
from blumfeld_consensus_kraft.raft.messages import VoteRequest
from blumfeld_consensus_kraft.raft.roles import Follower, Leader, Prospective, Role, Unattached
from blumfeld_consensus_kraft.raft.voters import ReplicaKey


def grants(
    request: VoteRequest, role: Role, log: LogView, voted: ReplicaKey | None, *, is_free: bool
) -> bool:
    """Returns whether a replica in this role grants a vote or a pre-vote for its present epoch.

    :param voted: the candidate that has its vote in this epoch
    :param is_free: whether it may give its vote if it has given none: it knows no leader in this epoch
    """
    has_records = (request.last_epoch, request.end_offset) >= (log.last_epoch, log.end_offset)
    if request.pre_vote:
        return has_records and not hears_leader(role)
    if voted is not None:
        return may_vote_for_others(role) and voted.matches(request.candidate)
    return has_records and is_free and may_vote_for_others(role)


def may_vote_for_others(role: Role) -> bool:
    """Whether a replica in this role may have a vote left. The other roles voted for themselves, or follow a leader."""
    return isinstance(role, Unattached | Prospective)


def hears_leader(role: Role) -> bool:
    """Whether a replica in this role leads, or was answered by its leader. Then it refuses pre-votes (KIP-996), and no
    request takes it into a later epoch.
    """
    return isinstance(role, Leader) or (isinstance(role, Follower) and role.has_fetched)
