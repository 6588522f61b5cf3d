"""What a leader remembers of replicas that are no voters, and a part of a snapshot that counts as a fetch."""

from __future__ import annotations

import pytest

from blumfeld_consensus_kraft.raft import leadership
from blumfeld_consensus_kraft.raft.leadership import OBSERVER_FORGOTTEN_MS, Leadership
from blumfeld_consensus_kraft.raft.voters import ReplicaKey
from tests.plugins.consensus_kraft.raft.one_replica import ME, SETTINGS, VOTERS, Replica


def observer(number: int) -> ReplicaKey:
    """A broker that started on a disk of its own."""
    return ReplicaKey(7, number.to_bytes(16))


def leader_of_three() -> Leadership:
    return Leadership(ME, VOTERS, SETTINGS, 0, 0.0)


def known(leader: Leadership) -> int:
    """What it holds in memory, whether or not anyone asks for the observers."""
    return len(leader._replicas)


def test_a_silent_observer_is_forgotten_although_nobody_describes_the_quorum() -> None:
    leader = leader_of_three()
    leader.fetched(observer(1), 0, 1, 0.0)
    leader.fetched(observer(2), 0, 1, OBSERVER_FORGOTTEN_MS / 2)
    leader.fetched(observer(3), 0, 1, OBSERVER_FORGOTTEN_MS + 1.0)
    assert known(leader) == 2
    assert [progress.key for progress in leader.observers(OBSERVER_FORGOTTEN_MS + 1.0)] == [
        observer(2),
        observer(3),
    ]


def test_there_is_a_limit_and_the_longest_silent_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "OBSERVERS_MAX", 3)
    leader = leader_of_three()
    for voter in (2, 3):
        leader.fetched(ReplicaKey(voter), 0, 1, 0.0)
    for number in range(3):
        leader.fetched(observer(number), 0, 1, float(number))
    leader.fetched(observer(0), 0, 1, 5.0)
    leader.fetched(observer(9), 0, 1, 6.0)
    assert {progress.key for progress in leader.observers(6.0)} == {observer(0), observer(2), observer(9)}
    assert leader.progress(ReplicaKey(2)).last_fetch_ms == 0.0


def test_a_part_of_a_snapshot_counts_as_a_fetch_of_a_voter() -> None:
    """A quorum in which one voter is down and the other one takes a snapshot for longer than the check waits."""
    raft = Replica().leading(2_000.0).raft
    check_ms = SETTINGS.fetch_timeout_ms * leadership.CHECK_QUORUM_FACTOR
    raft.took_snapshot(ReplicaKey(2), 4_000.0)
    raft.tick(2_000.0 + check_ms)
    assert raft.leadership is not None
    raft.tick(4_000.0 + check_ms)
    assert raft.leadership is None
    assert raft.took_snapshot(ReplicaKey(2), 9_000.0) is not None  # no leader any more: nothing is noted
