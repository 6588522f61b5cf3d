"""The votes of one election, and when a role has something to do."""

from __future__ import annotations

import pytest

from blumfeld_consensus_kraft.raft.roles import (
    Ballot,
    Candidate,
    Follower,
    Prospective,
    Resigned,
    Unattached,
    lacks_leader,
)
from blumfeld_consensus_kraft.raft.voters import ReplicaKey, Voter, VoterSet
from tests.plugins.consensus_kraft.raft.one_replica import ME, VOTERS, voters_of


@pytest.mark.parametrize(
    ("voters", "granted", "won"),
    [
        (1, 0, True),
        *((2, 0, False), (2, 1, True)),
        *((3, 0, False), (3, 1, True)),
        *((4, 1, False), (4, 2, True)),
        *((5, 1, False), (5, 2, True)),
    ],
)
def test_a_majority_wins_with_the_candidates_own_vote(voters: int, granted: int, won: bool) -> None:
    ballot = Ballot(ME, voters_of(*range(1, voters + 1)))
    for other in range(2, 2 + granted):
        ballot.count(other, granted=True)
    assert ballot.is_won == won


@pytest.mark.parametrize(
    ("voters", "rejected", "lost"), [(2, 1, True), (3, 1, False), (3, 2, True), (4, 1, False), (4, 2, True)]
)
def test_an_election_is_lost_once_no_majority_is_left(voters: int, rejected: int, lost: bool) -> None:
    ballot = Ballot(ME, voters_of(*range(1, voters + 1)))
    for other in range(2, 2 + rejected):
        ballot.count(other, granted=False)
    assert ballot.is_lost == lost


@pytest.mark.parametrize(
    ("voters", "rejected", "unreached", "lost"),
    [
        *((3, 1, 1, True), (3, 0, 2, False), (3, 1, 0, False)),
        *((5, 1, 1, False), (5, 1, 2, True), (5, 2, 1, True), (5, 0, 4, False)),
    ],
)
def test_a_voter_that_cannot_be_reached_makes_no_majority_beside_a_refusal(
    voters: int, rejected: int, unreached: int, lost: bool
) -> None:
    ballot = Ballot(ME, voters_of(*range(1, voters + 1)))
    for other in range(2, 2 + rejected):
        ballot.count(other, granted=False)
    for other in range(2 + rejected, 2 + rejected + unreached):
        ballot.failed(other, 20.0)
    assert ballot.is_lost == lost


def test_a_voter_that_is_reached_again_may_grant() -> None:
    ballot = Ballot(ME, VOTERS)
    ballot.count(2, granted=False)
    ballot.failed(3, again_ms=20.0)
    assert ballot.is_lost
    assert ballot.to_ask(20.0) == [3]
    ballot.count(3, granted=True)
    assert ballot.is_won
    assert not ballot.is_lost


def test_an_answer_of_another_replica_under_the_same_id_is_still_to_come() -> None:
    """Node 3 has another disk in the new set: nobody has asked that one."""
    ballot = Ballot(ME, VOTERS)
    ballot.count(2, granted=False)
    ballot.failed(3, 20.0)
    ballot.set_voters(VoterSet(Voter(key) for key in (ME, ReplicaKey(2), ReplicaKey(3, b"B" * 16))))
    assert not ballot.is_lost


def test_a_candidate_outside_of_the_voters_has_no_vote_of_its_own() -> None:
    ballot = Ballot(ReplicaKey(7), VOTERS)
    ballot.count(1, granted=True)
    assert not ballot.is_won
    ballot.count(2, granted=True)
    assert ballot.is_won


def test_a_vote_of_a_node_outside_of_the_voters_does_not_count() -> None:
    ballot = Ballot(ME, VOTERS)
    ballot.count(9, granted=True)
    assert not ballot.is_won


def test_the_same_voter_counts_once() -> None:
    ballot = Ballot(ME, voters_of(1, 2, 3, 4, 5))
    for _ in range(3):
        ballot.count(2, granted=True)
    assert not ballot.is_won


def test_voters_are_asked_once_and_never_the_candidate_itself() -> None:
    ballot = Ballot(ReplicaKey(2), VOTERS)
    assert ballot.to_ask(0.0) == [1, 3]
    ballot.asked.add(1)
    ballot.count(3, granted=False)
    assert ballot.to_ask(0.0) == []


def test_a_voter_is_asked_again_when_its_pause_is_over() -> None:
    ballot = Ballot(ME, VOTERS, ask_at={2: 70.0})
    assert ballot.to_ask(60.0) == [3]
    assert ballot.next_ask_ms == 70.0
    assert ballot.to_ask(70.0) == [2, 3]
    ballot.count(2, granted=True)
    assert ballot.next_ask_ms == float("inf")


def test_when_roles_have_something_to_do() -> None:
    assert Unattached(100.0, fetch_at=50.0).next_ms == 50.0
    assert Unattached(100.0, fetch_at=50.0, fetching=True).next_ms == 100.0
    assert Follower(2, 100.0, fetch_at=50.0).next_ms == 50.0
    assert Follower(2, 100.0, fetch_at=50.0, fetching=True).next_ms == 100.0
    assert Follower(2, 100.0, fetch_at=50.0, waits_for_log=True).next_ms == 100.0
    again = Ballot(ME, VOTERS, ask_at={2: 70.0})
    assert Prospective(again, 100.0).next_ms == Candidate(again, 100.0).next_ms == 70.0
    assert Resigned(100.0, (), {2}, tell_at=60.0).next_ms == 60.0
    assert Resigned(100.0, (), set(), tell_at=60.0).next_ms == 100.0


def test_which_roles_follow_the_leader_that_they_are_told_of() -> None:
    ballot = Ballot(ME, VOTERS)
    assert lacks_leader(Unattached(0.0))
    assert lacks_leader(Candidate(ballot, 0.0))
    assert lacks_leader(Prospective(ballot, 0.0))
    assert not lacks_leader(Prospective(ballot, 0.0, last_leader_id=3))
    assert not lacks_leader(Follower(2, 0.0))
    assert not lacks_leader(Resigned(0.0, (), set(), tell_at=0.0))
