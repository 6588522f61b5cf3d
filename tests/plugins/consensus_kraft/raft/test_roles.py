"""The votes of one election, and when a role has something to do."""

from __future__ import annotations

from blumfeld_consensus_kraft.raft.roles import (
    Ballot,
    Candidate,
    Follower,
    Prospective,
    Resigned,
    Unattached,
)
from tests.plugins.consensus_kraft.raft.one_replica import ME, VOTERS, voters_of


def test_a_vote_of_a_node_outside_of_the_voters_does_not_count() -> None:
    ballot = Ballot(ME, VOTERS)
    ballot.count(9, granted=True)
    assert not ballot.is_won


def test_the_same_voter_counts_once() -> None:
    ballot = Ballot(ME, voters_of(1, 2, 3, 4, 5))
    for _ in range(3):
        ballot.count(2, granted=True)
    assert not ballot.is_won


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
