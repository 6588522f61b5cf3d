"""The errors of requests that a replica refuses. The codes are those of Kafka 4.3.1."""

from __future__ import annotations

import pytest

from blumfeld.log.quorum_state import EPOCH_MAX
from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_kraft.raft.checks import EPOCH_LEAP_MAX
from blumfeld_consensus_kraft.raft.messages import BeginEpoch, EndEpoch, EpochAnswer, VoteAnswer
from blumfeld_consensus_kraft.raft.roles import Unattached
from blumfeld_consensus_kraft.raft.settings import Stored
from blumfeld_consensus_kraft.raft.voters import ReplicaKey
from tests.plugins.consensus_kraft.raft.one_replica import ME, Replica, replies, voters_of

DISK_A, DISK_B = b"A" * 16, b"B" * 16


@pytest.fixture
def replica() -> Replica:
    return Replica("112")


def test_a_pre_vote_of_an_older_epoch_is_fenced() -> None:
    assert Replica("112").vote(1, (1, 9), pre=True).error is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    ("epoch", "last", "candidate", "pre"),
    [
        (5, (5, 9), 2, False),
        (5, (6, 9), 2, True),
        (5, (-1, 9), 2, False),
        (5, (2, -1), 2, False),
        (5, (2, 9), -1, False),
    ],
    ids=[
        "a candidate's log has no record of the epoch that it begins",
        "a pre-vote has no record of a later epoch",
        "an epoch below 0",
        "an offset below 0",
        "a node id below 0",
    ],
)
def test_a_vote_that_no_replica_can_ask_for_is_invalid(
    replica: Replica, epoch: int, last: tuple[int, int], candidate: int, pre: bool
) -> None:
    assert replica.vote(epoch, last, candidate=candidate, pre=pre).error is ErrorCode.INVALID_REQUEST
    assert replica.raft.epoch == 2


@pytest.mark.parametrize("voter", [ReplicaKey(1, DISK_B), ReplicaKey(3, DISK_A)])
@pytest.mark.parametrize("pre", [False, True])
def test_a_vote_that_another_disk_or_node_is_asked_for_is_not_given(voter: ReplicaKey, pre: bool) -> None:
    replica = Replica("112", me=ReplicaKey(1, DISK_A))
    answer = replica.vote(3, (2, 9), voter=voter, pre=pre)
    assert (answer.error, answer.granted) == (ErrorCode.INVALID_VOTER_KEY, False)
    assert replica.raft.voted is None


LEAP = 2 + EPOCH_LEAP_MAX
"""The latest epoch into which one request moves a replica that is in epoch 2."""


@pytest.mark.parametrize("pre", [False, True])
@pytest.mark.parametrize("epoch", [LEAP + 1, EPOCH_MAX, EPOCH_MAX + 1])
def test_a_vote_that_leaps_is_refused(replica: Replica, epoch: int, pre: bool) -> None:
    assert replica.vote(epoch, (2, 9), pre=pre) == VoteAnswer(ErrorCode.UNKNOWN_LEADER_EPOCH, 2)
    assert isinstance(replica.raft.role, Unattached)


@pytest.mark.parametrize("epoch", [LEAP + 1, EPOCH_MAX])
def test_the_begin_and_the_end_of_an_epoch_that_leaps_are_refused(replica: Replica, epoch: int) -> None:
    assert begin(replica, BeginEpoch(epoch, 2, ME)) == EpochAnswer(ErrorCode.UNKNOWN_LEADER_EPOCH, 2)
    (answer,) = replies(replica.raft.end_epoch(EndEpoch(epoch, 2, (ME,)), 0.0))
    assert answer == EpochAnswer(ErrorCode.UNKNOWN_LEADER_EPOCH, 2)
    assert isinstance(replica.raft.role, Unattached)


def test_a_small_leap_of_a_voter_counts() -> None:
    """Some elections may have passed this replica by."""
    assert Replica("112").vote(LEAP, (2, 9)).granted
    assert begin(Replica("112"), BeginEpoch(LEAP, 2, ME)) == EpochAnswer(ErrorCode.NONE, LEAP, 2)


def test_a_small_leap_behind_the_last_epoch_is_refused() -> None:
    replica = Replica("112", stored=Stored(EPOCH_MAX - 1))
    assert replica.vote(EPOCH_MAX + 1, (2, 9)).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert replica.vote(EPOCH_MAX, (2, 9)).granted


def test_no_request_comes_from_this_replica_itself(replica: Replica) -> None:
    assert replica.vote(3, (2, 9), candidate=ME).error is ErrorCode.INVALID_REQUEST
    assert begin(replica, BeginEpoch(3, ME.id, ME)).error is ErrorCode.INVALID_REQUEST
    (answer,) = replies(replica.raft.end_epoch(EndEpoch(3, ME.id, ()), 0.0))
    assert answer == EpochAnswer(ErrorCode.INVALID_REQUEST, 2)


def begin(replica: Replica, request: BeginEpoch) -> EpochAnswer:
    (answer,) = replies(replica.raft.begin_epoch(request, 5_000.0))
    assert isinstance(answer, EpochAnswer)
    return answer


def test_a_leader_of_an_older_epoch_is_fenced(replica: Replica) -> None:
    assert begin(replica, BeginEpoch(1, 2, ME)) == EpochAnswer(ErrorCode.FENCED_LEADER_EPOCH, 2, -1)
    assert isinstance(replica.raft.role, Unattached)


def test_a_leader_without_a_node_id_is_refused(replica: Replica) -> None:
    assert begin(replica, BeginEpoch(3, -1, ME)).error is ErrorCode.INVALID_REQUEST
    assert replica.raft.epoch == 2


def test_node_0_may_lead_resign_and_stand() -> None:
    replica = Replica("112", voters=voters_of(0, 1, 2))
    assert begin(replica, BeginEpoch(3, 0, ME)) == EpochAnswer(ErrorCode.NONE, 3, 0)
    (answer,) = replies(replica.raft.end_epoch(EndEpoch(3, 0, (ME,)), 0.0))
    assert answer == EpochAnswer(ErrorCode.NONE, 3, 0)
    assert replica.vote(4, (2, 3), candidate=0).granted


def test_the_end_of_an_epoch_without_a_leader_is_refused() -> None:
    (answer,) = replies(Replica("112").raft.end_epoch(EndEpoch(3, -1, (ME,)), 0.0))
    assert answer == EpochAnswer(ErrorCode.INVALID_REQUEST, 2, -1)


@pytest.mark.parametrize(
    ("offset", "last_epoch"),
    [(-1, 2), (4, -1), (4, 4)],
    ids=["an offset below 0", "an epoch below 0", "a record of a later epoch than the replica knows"],
)
def test_a_fetch_that_no_replica_can_ask_for_is_invalid(offset: int, last_epoch: int) -> None:
    replica = Replica("112").leading()
    assert replica.fetched_by(2, offset, last_epoch).error is ErrorCode.INVALID_REQUEST
    leadership = replica.raft.leadership
    assert leadership is not None
    assert leadership.progress(ReplicaKey(2)).end_offset == -1, "it counts as no fetch"


def test_an_invalid_fetch_is_refused_before_its_epoch_is_compared() -> None:
    assert Replica("112").fetched_by(2, -1, 0, epoch=1).error is ErrorCode.INVALID_REQUEST
