"""The requests that a role has to send by now."""

from __future__ import annotations

from blumfeld_consensus_kraft.raft.due import Sender, due
from blumfeld_consensus_kraft.raft.leading import Leadership
from blumfeld_consensus_kraft.raft.messages import BeginEpoch, EndEpoch, FetchRequest, Request, VoteRequest
from blumfeld_consensus_kraft.raft.roles import (
    Ballot,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from blumfeld_consensus_kraft.raft.voters import ReplicaKey, Voter, VoterSet
from tests.plugins.consensus_kraft.raft.one_replica import SETTINGS, log_of

DISKS = VoterSet(Voter(ReplicaKey(one, bytes([one] * 16))) for one in (1, 2, 3))
ME, TWO, THREE = (DISKS.key_of(one) for one in (1, 2, 3))
SENDER = Sender(ME, 4, DISKS, [2, 3], log_of("112"), 2, 1_000.0)


def requests(role: Role, now_ms: float, sender: Sender = SENDER) -> list[tuple[int, Request]]:
    return list(due(role, sender, now_ms))


def test_a_prospective_voter_asks_each_other_disk_for_a_pre_vote_once() -> None:
    role = Prospective(Ballot(ME, DISKS), 100.0)
    assert requests(role, 0.0) == [
        (2, VoteRequest(4, ME, TWO, 2, 3, pre_vote=True)),
        (3, VoteRequest(4, ME, THREE, 2, 3, pre_vote=True)),
    ]
    assert requests(role, 0.0) == []


def test_a_candidate_asks_for_votes() -> None:
    found = requests(Candidate(Ballot(ME, DISKS), 100.0), 0.0)
    assert found[0] == (2, VoteRequest(4, ME, TWO, 2, 3, pre_vote=False))


def test_a_follower_has_one_fetch_under_way() -> None:
    role = Follower(3, 100.0, fetch_at=10.0)
    assert requests(role, 9.0) == []
    assert requests(role, 10.0) == [(3, FetchRequest(ME, 4, 3, 2, 2))]
    assert requests(role, 11.0) == []


def test_a_follower_whose_log_is_busy_does_not_fetch() -> None:
    assert requests(Follower(3, 100.0, waits_for_log=True), 10.0) == []


def test_a_replica_without_a_leader_asks_in_turn() -> None:
    role = Unattached(100.0)
    asked = []
    for _ in range(4):
        role.fetching = False
        asked += [node_id for node_id, _ in requests(role, 0.0)]
    assert asked in ([2, 3, 2, 3], [3, 2, 3, 2])


def test_a_replica_without_a_leader_does_not_ask_before_its_records_are_flushed() -> None:
    """The node that it asks may lead, and would take its end for flushed."""
    assert requests(Unattached(100.0), 0.0, SENDER._replace(log=log_of("112", unflushed=1))) == []


def test_a_replica_that_knows_no_other_node_asks_none() -> None:
    assert requests(Unattached(100.0), 0.0, SENDER._replace(others=[])) == []


def test_a_leader_names_the_disk_that_it_means() -> None:
    role = Leader(Leadership(ME, DISKS, SETTINGS, 3, 0.0))
    assert requests(role, 0.0) == [(2, BeginEpoch(4, 1, TWO)), (3, BeginEpoch(4, 1, THREE))]
    assert requests(role, 1.0) == []


def test_a_resigned_leader_tells_those_that_have_not_answered() -> None:
    role = Resigned(5_000.0, (THREE, TWO), {2, 3}, tell_at=0.0)
    assert requests(role, 0.0) == [(node, EndEpoch(4, 1, (THREE, TWO))) for node in (2, 3)]
    role.unacknowledged.discard(2)
    assert requests(role, 999.0) == []
    assert [node for node, _ in requests(role, 1_000.0)] == [3]
