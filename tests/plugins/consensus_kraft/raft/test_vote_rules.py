"""Whether a replica gives its vote (KIP-595) and its pre-vote (KIP-996)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_kraft.raft import effects
from blumfeld_consensus_kraft.raft.messages import FetchAnswer, VoteAnswer
from blumfeld_consensus_kraft.raft.settings import Stored
from blumfeld_consensus_kraft.raft.voters import ReplicaKey
from tests.plugins.consensus_kraft.raft.one_replica import Replica, kinds, only


@pytest.fixture
def replica() -> Replica:
    return Replica("112")


@pytest.mark.parametrize("pre", [False, True], ids=["vote", "pre-vote"])
@pytest.mark.parametrize(
    ("last", "granted"),
    [
        ((2, 3), True),
        ((2, 4), True),
        ((3, 0), True),
        ((2, 2), False),
        ((1, 9), False),
    ],
    ids=["as much", "a record more", "a later epoch, though shorter", "a record less", "longer, but older"],
)
def test_a_log_is_compared_by_its_last_epoch_and_then_by_its_end(
    last: tuple[int, int], granted: bool, pre: bool
) -> None:
    answer = Replica("112").vote(4, last, pre=pre)
    assert answer == VoteAnswer(ErrorCode.NONE, 2 if pre else 4, granted=granted)


def test_unflushed_records_of_the_voter_count(replica: Replica) -> None:
    """It has them, whatever a power cut takes: as in Kafka, its log's end decides."""
    replica.log.flushed_end_offset = 1
    assert not replica.vote(4, (2, 2)).granted


def test_a_vote_is_given_once_an_epoch(replica: Replica) -> None:
    assert replica.vote(3, (2, 3), candidate=2).granted
    assert not replica.vote(3, (2, 9), candidate=3).granted
    assert replica.raft.voted == ReplicaKey(2)


def test_a_vote_is_remembered_across_a_restart() -> None:
    replica = Replica("112", stored=Stored(3, -1, ReplicaKey(2)))
    assert not replica.vote(3, (2, 9), candidate=3).granted
    assert replica.vote(3, (2, 3), candidate=2).granted


def test_a_vote_for_one_disk_is_none_for_another_disk_of_the_same_node(replica: Replica) -> None:
    assert replica.vote(3, (2, 3), candidate=ReplicaKey(2, b"A" * 16)).granted
    assert not replica.vote(3, (2, 3), candidate=ReplicaKey(2, b"B" * 16)).granted


def test_a_vote_is_on_the_device_before_it_is_told(replica: Replica) -> None:
    replica.vote(3, (2, 3), candidate=2)
    reply_index = replica.out.index(only(replica.out, effects.Reply))
    assert effects.Persist(3, -1, ReplicaKey(2)) in replica.out[:reply_index]


# The file and the log


def test_a_replica_whose_file_lacks_the_epoch_of_its_log_grants_no_vote_in_it() -> None:
    """Nobody knows any more whether it voted there. The record itself refuses such candidates, too; so here it was cut
    since.
    """
    replica = Replica("112", stored=Stored(1))
    replica.log.truncate(2)
    assert not replica.vote(2, (1, 9)).granted
    assert replica.vote(3, (1, 9)).granted


def test_a_vote_that_the_file_has_for_an_older_epoch_than_the_logs_is_none() -> None:
    replica = Replica("112", stored=Stored(1, -1, ReplicaKey(2)))
    assert replica.raft.voted is None
    assert not replica.vote(2, (1, 9), candidate=2).granted


def test_a_leader_that_starts_again_votes_for_no_other_one_in_its_epoch() -> None:
    """Its file names it as the leader, and doesn't repeat that it voted for itself."""
    replica = Replica("112", stored=Stored(3, 1))
    assert not replica.vote(3, (2, 9)).granted
    assert replica.vote(4, (2, 9)).granted


@pytest.mark.parametrize("stored", [Stored(3, 1), Stored(3, -1, ReplicaKey(1))], ids=["leader", "candidate"])
def test_a_vote_for_itself_outlives_each_start(stored: Stored) -> None:
    """A start tells nothing new, so it must not take the vote out of the file."""
    for _ in range(3):
        replica = Replica("112", stored=stored)
        written = [effect for effect in replica.out if isinstance(effect, effects.Persist)]
        assert not replica.vote(3, (2, 9), candidate=2).granted
        stored = Stored(*written[-1]) if written else stored


def test_a_leader_that_resigned_and_starts_again_votes_for_no_other_one_in_its_epoch() -> None:
    replica = Replica("112").leading()
    (last,) = (effect for effect in replica.out if isinstance(effect, effects.Persist))
    later = [effect for effect in replica.raft.resign(5_000.0) if isinstance(effect, effects.Persist)]
    assert later == [], "the file still names it as the leader of its epoch, as Kafka's does"
    assert not Replica("112", stored=Stored(*last)).vote(3, (2, 9)).granted


def test_a_replica_that_lost_its_disk_is_another_replica() -> None:
    """It has forgotten its vote. Candidates that mean the lost disk get none."""
    replica = Replica("", me=ReplicaKey(1, b"B" * 16))
    answer = replica.vote(3, (2, 9), voter=ReplicaKey(1, b"A" * 16))
    assert (answer.error, answer.granted) == (ErrorCode.INVALID_VOTER_KEY, False)


# Roles


def heard(replica: Replica) -> Replica:
    """After its leader answered a fetch."""
    epoch, leader_id = replica.raft.epoch, replica.raft.leader_id
    replica.hears(FetchAnswer(ErrorCode.NONE, epoch, leader_id, 0), 10.0)
    return replica


ROLES: dict[str, tuple[Callable[[], Replica], bool, bool]] = {
    # role in epoch 3: grants a vote in it, grants a pre-vote
    "unattached": (lambda: Replica("112", stored=Stored(3)), True, True),
    "prospective": (lambda: Replica("112", stored=Stored(3)).prospective(), True, True),
    "candidate": (lambda: Replica("112").candidate(), False, True),
    "leader": (lambda: Replica("112").leading(), False, False),
    "follower": (lambda: Replica("112").following(3, epoch=3), False, True),
    "follower that heard its leader": (lambda: heard(Replica("112").following(3, epoch=3)), False, False),
    "resigned": (lambda: resigned(Replica("112").leading()), False, True),
}


def resigned(replica: Replica) -> Replica:
    replica.raft.resign(5_000.0)
    return replica


@pytest.mark.parametrize("role", ROLES)
def test_which_roles_grant_a_vote_in_their_epoch(role: str) -> None:
    make, granted, _ = ROLES[role]
    replica = make()
    assert replica.raft.epoch == 3
    answer = replica.vote(3, (2, 99))
    assert (answer.error, answer.granted) == (ErrorCode.NONE, granted)


@pytest.mark.parametrize("role", ROLES)
def test_which_roles_grant_a_pre_vote(role: str) -> None:
    make, _, granted = ROLES[role]
    replica = make()
    answer = replica.vote(3, (3, 99), pre=True)
    assert (answer.error, answer.granted) == (ErrorCode.NONE, granted)


HEARING = ("leader", "follower that heard its leader")
"""Roles in which a replica leads, or hears the leader."""


@pytest.mark.parametrize("role", HEARING)
def test_a_vote_moves_no_replica_that_hears_its_leader(role: str) -> None:
    """One frame of anybody would end a leadership else."""
    replica = ROLES[role][0]()
    before, leader_id = replica.raft.role, replica.raft.leader_id
    assert replica.vote(4, (3, 99)) == VoteAnswer(ErrorCode.NONE, 3, leader_id, granted=False)
    assert replica.raft.role is before
    assert effects.Persist not in kinds(replica.out)


@pytest.mark.parametrize("role", ROLES)
def test_a_pre_vote_leaves_role_vote_and_file_as_they_are(role: str) -> None:
    replica = ROLES[role][0]()
    before = type(replica.raft.role), replica.raft.voted
    replica.vote(3, (3, 99), pre=True)
    assert (type(replica.raft.role), replica.raft.voted) == before
    assert effects.Persist not in kinds(replica.out)


@pytest.mark.parametrize("role", ROLES)
def test_the_epoch_of_a_pre_vote_is_never_taken_over(role: str) -> None:
    """Unlike Kafka's. A pre-vote begins no epoch, so nothing of it may outlive its answer."""
    make, _, granted = ROLES[role]
    replica = make()
    before = replica.raft.role
    answer = replica.vote(6, (3, 99), pre=True)
    assert (answer.error, answer.epoch, answer.granted) == (ErrorCode.NONE, 3, granted)
    assert replica.raft.role is before
    assert effects.Persist not in kinds(replica.out)


def test_a_prospective_voter_that_knows_the_leader_gives_no_vote_in_its_epoch() -> None:
    replica = Replica("112").following(3, epoch=3).prospective()
    assert not replica.vote(3, (2, 99)).granted
