"""The errors of requests that a replica refuses, whatever its role. Pure functions."""

from __future__ import annotations

from typing import Final

from blumfeld.log.quorum_state import EPOCH_MAX
from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_kraft.raft.messages import BeginEpoch, EndEpoch, FetchRequest, VoteRequest
from blumfeld_consensus_kraft.raft.voters import ReplicaKey

EPOCH_LEAP_MAX: Final = 100
"""By how many epochs one request may lead. Voters ask by pre-votes before they begin an epoch, so an honest leap is
small. A replica that was away for longer asks the voters itself, and their answers may name any epoch."""
EPOCH_COUNTS = (ErrorCode.NONE, ErrorCode.INVALID_VOTER_KEY)
"""After these the replica knows the epoch and the leader of the request, also where the request meant another disk."""


def vote_error(request: VoteRequest, epoch: int, me: ReplicaKey) -> ErrorCode:
    """A candidate has a log that ends below its epoch; a pre-vote is asked for in the present epoch."""
    last_epoch_max = request.epoch if request.pre_vote else request.epoch - 1
    is_valid = (
        0 <= request.last_epoch <= last_epoch_max
        and request.end_offset >= 0
        and request.candidate.id >= 0
        and request.candidate.id != me.id
    )
    if not is_valid:
        return ErrorCode.INVALID_REQUEST
    if request.epoch < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leaps(request.epoch, epoch):
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if request.voter.matches(me) else ErrorCode.INVALID_VOTER_KEY


def begin_error(request: BeginEpoch, epoch: int, me: ReplicaKey) -> ErrorCode:
    """The new leader must mean this replica, and not an earlier disk of this node."""
    if request.epoch < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.leader_id < 0 or request.leader_id == me.id:
        return ErrorCode.INVALID_REQUEST
    if leaps(request.epoch, epoch):
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if request.voter.matches(me) else ErrorCode.INVALID_VOTER_KEY


def end_error(request: EndEpoch, epoch: int, me: ReplicaKey) -> ErrorCode:
    """Only the end of the present epoch, or of a later one, counts."""
    if request.epoch < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.leader_id < 0 or request.leader_id == me.id:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.UNKNOWN_LEADER_EPOCH if leaps(request.epoch, epoch) else ErrorCode.NONE


def leaps(requested: int, epoch: int) -> bool:
    """Whether a request names an epoch that no honest sender reaches while this replica is in ``epoch``."""
    return requested > min(epoch + EPOCH_LEAP_MAX, EPOCH_MAX)


def fetch_error(request: FetchRequest, epoch: int) -> ErrorCode:
    """A fetch is for the present epoch, and a replica has no records of a later epoch than it knows."""
    if request.offset < 0 or not 0 <= request.last_epoch <= request.epoch:
        return ErrorCode.INVALID_REQUEST
    if request.epoch < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH if request.epoch > epoch else ErrorCode.NONE
