"""Replica keys, voter sets, and which set counts at which offset (KIP-853)."""

from __future__ import annotations

import pytest

from blumfeld_consensus_kraft.raft.voters import ReplicaKey, Voter, VoterHistory, VoterSet
from tests.plugins.consensus_kraft.raft.one_replica import VOTERS, voters_of

DISK_A, DISK_B = b"A" * 16, b"B" * 16


@pytest.mark.parametrize(
    ("named", "replica", "same"),
    [
        (ReplicaKey(1, DISK_A), ReplicaKey(1, DISK_A), True),
        (ReplicaKey(1, DISK_A), ReplicaKey(1, DISK_B), False),
        (ReplicaKey(1, DISK_A), ReplicaKey(2, DISK_A), False),
        (ReplicaKey(1, DISK_A), ReplicaKey(1), False),
        (ReplicaKey(1), ReplicaKey(1, DISK_A), True),
        (ReplicaKey(1), ReplicaKey(2, DISK_A), False),
    ],
    ids=[
        "same disk",
        "another disk",
        "another node",
        "no disk said",
        "a static voter",
        "another static voter",
    ],
)
def test_a_voter_with_a_directory_is_one_disk_and_a_static_one_is_a_node(
    named: ReplicaKey, replica: ReplicaKey, same: bool
) -> None:
    assert named.matches(replica) == same
    assert (replica in VoterSet([Voter(named)])) == same


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_more_than_half_is_a_majority(count: int, majority: int) -> None:
    assert voters_of(*range(count)).majority == majority


def test_a_set_changes_by_one_voter() -> None:
    other_disk = Voter(ReplicaKey(2, DISK_A))
    assert VOTERS.with_voter(other_disk).key_of(2) == other_disk.key
    assert VOTERS.with_voter(other_disk).ids == (1, 2, 3)
    assert VOTERS.without(2).ids == (1, 3)
    assert VOTERS.ids == (1, 2, 3)


def history() -> VoterHistory:
    voter_history = VoterHistory(VOTERS)
    voter_history.add(10, voters_of(1, 2, 3, 4), 1)
    voter_history.add(20, voters_of(1, 2, 3), 1)
    return voter_history


@pytest.mark.parametrize(("offset", "in_log"), [(-1, False), (0, True)])
def test_the_set_of_the_formatting_is_not_in_the_log(offset: int, in_log: bool) -> None:
    voter_history = VoterHistory(VOTERS)
    voter_history.add(offset, VOTERS, 1)
    assert voter_history.is_in_log == in_log


@pytest.mark.parametrize(("end_offset", "left"), [(21, 20), (20, 10), (11, 10), (10, -1), (0, -1)])
def test_a_cut_takes_the_sets_behind_it_along(end_offset: int, left: int) -> None:
    voter_history = history()
    voter_history.truncate(end_offset)
    assert voter_history.latest.offset == left


@pytest.mark.parametrize(("end_offset", "offset"), [(21, 20), (20, 10), (11, 10), (10, -1)])
def test_a_snapshot_holds_the_set_below_its_end(end_offset: int, offset: int) -> None:
    assert history().at(end_offset).offset == offset
