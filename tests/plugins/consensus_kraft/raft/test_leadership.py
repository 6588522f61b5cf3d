"""The leader's side of an epoch: what is committed, when it steps down, whom it tells that it leads."""

from __future__ import annotations

import pytest

from blumfeld_consensus_kraft.raft import effects, leadership
from blumfeld_consensus_kraft.raft.leadership import CHECK_QUORUM_FACTOR, Leadership, Progress
from blumfeld_consensus_kraft.raft.messages import EndEpoch
from blumfeld_consensus_kraft.raft.roles import Leader, Resigned
from blumfeld_consensus_kraft.raft.voters import ReplicaKey, Voter, VoterSet
from tests.plugins.consensus_kraft.raft.one_replica import (
    ME,
    SETTINGS,
    Replica,
    sent,
    voters_of,
)

NOW_MS = 5_000.0
CHECK_MS = SETTINGS.fetch_timeout_ms * CHECK_QUORUM_FACTOR
BEGIN_MS = SETTINGS.fetch_timeout_ms / 2


def leader_of(*others: int, epoch_start: int = 3) -> Leadership:
    return Leadership(ME, voters_of(1, *others), SETTINGS, epoch_start, NOW_MS)


def committed(out: list[effects.Effect]) -> list[int]:
    return [effect.high_watermark for effect in out if isinstance(effect, effects.Commit)]


# The high watermark


@pytest.fixture
def replica() -> Replica:
    return Replica("112").leading()


@pytest.mark.parametrize(
    ("own_flushed", "ends", "high_watermark"),
    [
        (9, [5, 4], 5),
        (4, [9, 9], 9),
        (9, [-1, -1], -1),
        (9, [7, -1], 7),
        (3, [3, 9], -1),
        (9, [8, 6, 5, 4], 6),
        (4, [9, 8, 5, 5], 5),
        (9, [8, -1, -1, -1], -1),
        (9, [6], 6),
        (9, [], 9),
    ],
    ids=[
        "three voters: the second end",
        "the leader's own flush is the slowest",
        "nobody fetched",
        "one follower is enough of three",
        "no record of this epoch is on a majority",
        "five voters: the third end",
        "five voters, a slow leader",
        "five voters, one follower",
        "two voters need both",
        "a voter alone",
    ],
)
def test_committed_is_what_a_majority_flushed(own_flushed: int, ends: list[int], high_watermark: int) -> None:
    others = range(2, 2 + len(ends))
    leader = leader_of(*others)
    for other, end in zip(others, ends, strict=True):
        if end >= 0:
            leader.fetched(ReplicaKey(other), end, 10, NOW_MS)
    assert leader.moved_high_watermark(own_flushed) == (high_watermark >= 0)
    assert leader.high_watermark == high_watermark


def test_the_leaders_unflushed_end_commits_nothing() -> None:
    replica = Replica("112").leading(flushed=False)
    replica.fetched_by(2, 4, 3)
    assert committed(replica.out) == []
    replica.log.flush()
    assert committed(replica.raft.log_changed(NOW_MS)) == [4]


def test_records_of_an_older_epoch_are_committed_with_one_of_the_leaders_own(replica: Replica) -> None:
    """Raft's rule 5.4.2: else a later leader may still replace them."""
    answer = replica.fetched_by(2, 3, 2)
    assert (committed(replica.out), answer.high_watermark) == ([], -1)
    answer = replica.fetched_by(2, 4, 3)
    assert (committed(replica.out), answer.high_watermark) == ([4], 4)


def test_a_disk_that_is_no_voters_commits_nothing() -> None:
    """A voter that lost its disk comes back as another replica (KIP-853)."""
    voters = VoterSet(Voter(ReplicaKey(node_id, bytes([node_id] * 16))) for node_id in (1, 2, 3))
    me = ReplicaKey(1, bytes([1] * 16))
    leader = Leadership(me, voters, SETTINGS, 3, NOW_MS)
    leader.fetched(ReplicaKey(2, b"new disk of two."), 9, 9, NOW_MS)
    assert not leader.moved_high_watermark(9)
    assert not leader._heard, "nor does it hold the quorum together"


def test_a_static_voter_is_its_node_whatever_directory_it_names() -> None:
    leader = leader_of(2, 3)
    leader.fetched(ReplicaKey(2, b"A" * 16), 9, 9, NOW_MS)
    assert leader.moved_high_watermark(9)
    assert leader.observers(NOW_MS) == []


def test_a_fetch_from_where_the_logs_diverge_says_nothing_of_a_flushed_end(replica: Replica) -> None:
    answer = replica.fetched_by(2, 9, 2)
    assert answer.diverging is not None
    assert committed(replica.out) == []
    leads = replica.raft.leadership
    assert leads is not None
    assert leads.progress(ReplicaKey(2)).end_offset == -1


def test_a_reader_without_a_node_id_is_no_observer() -> None:
    """As in Kafka, whose tools read the metadata log as node -1."""
    leader = leader_of(2, 3)
    leader.fetched(ReplicaKey(-1), 9, 9, NOW_MS)
    assert leader.observers(NOW_MS) == []


# The check of the quorum


def test_a_leader_that_no_majority_fetches_from_resigns(replica: Replica) -> None:
    replica.raft.tick(NOW_MS + CHECK_MS - 1)
    assert isinstance(replica.raft.role, Leader)
    out = replica.raft.tick(NOW_MS + CHECK_MS)
    assert isinstance(replica.raft.role, Resigned)
    assert out[:2] == [effects.StopLeading(3), effects.LeaderIs(3, -1)]
    assert [(node, type(request)) for node, request in sent(out)] == [(2, EndEpoch), (3, EndEpoch)]


def test_a_replica_that_leads_asks_to_be_woken(replica: Replica) -> None:
    assert replica.raft.next_deadline_ms == NOW_MS + BEGIN_MS


@pytest.mark.parametrize(
    ("voters", "fetches", "lost"),
    [
        ((1, 2, 3, 4, 5), [(2, 0), (3, 0), (2, CHECK_MS - 1)], True),
        ((1, 2, 3), [(7, 1_000)], True),
        ((2, 3, 4), [(2, 100)], True),
        ((2, 3, 4), [(2, 100), (3, 200)], False),
        ((1,), [], False),
    ],
    ids=[
        "each check needs fetches of its own",
        "an observer keeps no leader",
        "a leader outside of its voters needs two of three",
        "a leader outside of its voters has two of three",
        "a leader alone",
    ],
)
def test_a_quorum_is_lost_when_no_majority_fetches(
    voters: tuple[int, ...], fetches: list[tuple[int, float]], lost: bool
) -> None:
    leader = Leadership(ME, voters_of(*voters), SETTINGS, 3, NOW_MS)
    for other, at_ms in fetches:
        leader.fetched(ReplicaKey(other), 4, 4, NOW_MS + at_ms)
    assert leader.quorum_is_lost(NOW_MS + CHECK_MS) == lost


def test_a_voter_whose_log_diverges_keeps_the_leader(replica: Replica) -> None:
    """It fetches, and will follow: the leader is not cut off."""
    replica.fetched_by(2, 9, 2, now_ms=NOW_MS + 1_000)
    replica.raft.tick(NOW_MS + CHECK_MS)
    assert isinstance(replica.raft.role, Leader)


# Progress


def test_a_replica_is_caught_up_when_it_fetches_at_the_end() -> None:
    progress = Progress(ReplicaKey(2))
    progress.fetched(4, 5, 100.0)
    assert progress.last_caught_up_ms == float("-inf")
    progress.fetched(5, 5, 200.0)
    assert progress.last_caught_up_ms == 200.0


def test_a_replica_was_caught_up_when_it_has_what_the_leader_had_at_its_fetch_before() -> None:
    """A log that grows without a pause would else never count as caught up with."""
    progress = Progress(ReplicaKey(2))
    progress.fetched(4, 6, 100.0)
    progress.fetched(6, 8, 200.0)
    assert progress.last_caught_up_ms == 100.0
    progress.fetched(7, 9, 300.0)
    assert progress.last_caught_up_ms == 100.0


def test_a_voter_takes_no_observers_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "OBSERVERS_MAX", 1)
    leader = leader_of(2, 3)
    leader.fetched(ReplicaKey(7), 9, 9, NOW_MS)
    leader.fetched(ReplicaKey(2), 9, 9, NOW_MS)
    assert [progress.key.id for progress in leader.observers(NOW_MS)] == [7]


def test_a_voter_that_fell_silent_is_told_again() -> None:
    leader = leader_of(2, 3)
    for other in (2, 3):
        leader.fetched(ReplicaKey(other), 4, 4, NOW_MS)
    leader.fetched(ReplicaKey(3), 4, 4, NOW_MS + 200)
    assert leader.silent_voters(NOW_MS + BEGIN_MS) == [2]
