"""Voters that start together elect a leader at once; a voter that starts beside a leader disturbs nobody."""

from __future__ import annotations

import random

import pytest

from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_kraft.raft.messages import FetchAnswer, FetchRequest, Request
from blumfeld_consensus_kraft.raft.raft import Raft
from blumfeld_consensus_kraft.raft.roles import Candidate, Follower, Prospective, Unattached
from blumfeld_consensus_kraft.raft.settings import Settings, Stored
from tests.everyday import first
from tests.plugins.consensus_kraft.raft.one_replica import Replica, sent
from tests.plugins.consensus_kraft.raft.world import World

TIMEOUT_MS = Settings().election_timeout_ms


def started(*, may_vote: bool = True) -> tuple[Raft, list[tuple[int, Request]]]:
    replica = Replica(stored=Stored(4), may_vote=may_vote)
    return replica.raft, sent(replica.out)


def next_fetch(raft: Raft, now_ms: float) -> tuple[int, FetchRequest]:
    ((node_id, request),) = sent(raft.tick(now_ms))
    assert isinstance(request, FetchRequest)
    return node_id, request


def no_leader(epoch: int) -> FetchAnswer:
    return FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch, -1)


def deadline_ms(raft: Raft) -> float:
    assert isinstance(raft.role, Unattached)
    return raft.role.deadline_ms


@pytest.mark.parametrize("seed", first(6, range(20)))
@pytest.mark.parametrize("nodes", [3, 5])
def test_voters_that_start_together_have_a_leader_long_before_the_election_timeout(
    seed: int, nodes: int
) -> None:
    """Each is there at another moment. Counted from the moment at which a majority is there."""
    world = World(seed, nodes=nodes)
    starts = sorted(random.Random(seed).uniform(0, 300) for _ in world.nodes)
    for node, at_ms in zip(world.nodes.values(), starts, strict=True):
        world.at(at_ms, node.start)
    assert world.run(10_000, lambda: world.leader is not None)
    assert world.now_ms - starts[nodes // 2] < 0.5 * TIMEOUT_MS


def test_a_voter_stands_soon_once_every_other_one_knows_no_leader() -> None:
    raft, ((first, request),) = started()
    assert isinstance(request, FetchRequest)
    raft.answered(first, request, no_leader(4), 1.0)
    assert deadline_ms(raft) >= TIMEOUT_MS, "the other voter may follow a leader, or be it"
    second, request = next_fetch(raft, 30.0)
    assert {first, second} == {2, 3}
    raft.answered(second, request, no_leader(4), 31.0)
    assert 31.0 < deadline_ms(raft) < 31.0 + 0.2 * TIMEOUT_MS
    raft.tick(deadline_ms(raft))
    assert isinstance(raft.role, Prospective)


def test_a_voter_that_is_not_there_knows_no_leader() -> None:
    raft, ((first, request),) = started()
    raft.send_failed(first, request, 1.0)
    second, request = next_fetch(raft, 30.0)
    raft.send_failed(second, request, 31.0)
    assert deadline_ms(raft) < 31.0 + 0.2 * TIMEOUT_MS


def test_the_pause_is_drawn_once() -> None:
    """Else the smallest of many draws would count, and voters would stand at the same moment."""
    raft, ((first, request),) = started()
    raft.send_failed(first, request, 1.0)
    second, request = next_fetch(raft, 30.0)
    raft.send_failed(second, request, 31.0)
    drawn = deadline_ms(raft)
    _, request = next_fetch(raft, 60.0)
    raft.send_failed(first, request, 61.0)
    assert deadline_ms(raft) == drawn


@pytest.mark.parametrize("leader_id", [0, 2])
def test_a_voter_that_knows_a_leader_of_an_older_epoch_still_follows_one(leader_id: int) -> None:
    raft, ((first, request),) = started()
    assert isinstance(request, FetchRequest)
    raft.answered(first, request, FetchAnswer(ErrorCode.UNKNOWN_LEADER_EPOCH, 3, leader_id), 1.0)
    second, request = next_fetch(raft, 30.0)
    raft.answered(second, request, no_leader(4), 31.0)
    assert deadline_ms(raft) >= TIMEOUT_MS


def test_a_voter_that_starts_beside_a_leader_follows_it() -> None:
    raft, ((first, request),) = started()
    assert isinstance(request, FetchRequest)
    raft.send_failed(first, request, 1.0)
    second, request = next_fetch(raft, 30.0)
    raft.answered(second, request, FetchAnswer(ErrorCode.NONE, 4, second, 0), 31.0)
    assert isinstance(raft.role, Follower)


def test_a_voter_that_hears_of_an_election_takes_its_time() -> None:
    """Only a start is quick: a later election has a candidate already."""
    raft, ((first, request),) = started()
    assert isinstance(request, FetchRequest)
    ((node_id, request),) = sent(raft.answered(first, request, no_leader(5), 1.0))
    assert raft.epoch == 5
    for now_ms in (30.0, 60.0, 90.0):
        assert isinstance(request, FetchRequest)
        raft.answered(node_id, request, no_leader(5), now_ms)
        assert deadline_ms(raft) >= TIMEOUT_MS
        node_id, request = next_fetch(raft, now_ms + 25.0)


def test_a_node_that_may_not_vote_never_stands() -> None:
    raft, ((first, request),) = started(may_vote=False)
    raft.send_failed(first, request, 1.0)
    second, request = next_fetch(raft, 30.0)
    raft.send_failed(second, request, 31.0)
    assert deadline_ms(raft) == float("inf")
    assert not isinstance(raft.role, Prospective | Candidate)


def test_two_voters_that_come_back_beside_a_leader_leave_it_its_epoch() -> None:
    """They are a majority, and could elect one of them."""
    world = World(3)
    world.start()
    assert world.run(10_000, lambda: world.leader is not None and bool(world.committed))
    leader = world.leader
    assert leader is not None
    epoch = leader.leading_epoch
    for _ in range(20):
        others = [node for node in world.nodes.values() if node is not leader]
        for node in others:
            node.crash(power=False)
            world.at(world.random.uniform(1, 50), node.start)
        world.run(500)
        assert world.leader is leader
        assert leader.leading_epoch == epoch
