"""The voters of a quorum change while it works (KIP-853): what the leader refuses, and what a new set means at once."""

from __future__ import annotations

import pytest

from blumfeld.spi.cluster import Endpoint
from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_kraft.raft import effects
from blumfeld_consensus_kraft.raft.leadership import CAUGHT_UP_MAX_MS, UNKNOWN
from blumfeld_consensus_kraft.raft.messages import EndEpoch, FetchRequest
from blumfeld_consensus_kraft.raft.roles import Leader, Prospective, Resigned, Unattached
from blumfeld_consensus_kraft.raft.voter_changes import (
    Refusal,
    refused,
    with_added,
    with_removed,
    with_updated,
)
from blumfeld_consensus_kraft.raft.voters import (
    ReplicaKey,
    Voter,
    VoterChange,
    VoterHistory,
    VoterSet,
)
from tests.plugins.consensus_kraft.raft.one_replica import SETTINGS, Replica, sent

LISTENER = "CONTROLLER"
NOW_MS = 5_000.0


def key(node_id: int, disk: bytes = b"A") -> ReplicaKey:
    return ReplicaKey(node_id, disk * 16)


def voter(
    node_id: int, disk: bytes = b"A", listener: str = LISTENER, *, low: int = 0, high: int = 1
) -> Voter:
    return Voter(key(node_id, disk), (Endpoint(listener, "localhost", 9000 + node_id),), low, high)


def voters(*ids: int) -> VoterSet:
    return VoterSet(voter(node_id) for node_id in ids)


LATEST = VoterChange(7, voters(1, 2, 3), 1)


# What the leader refuses


@pytest.mark.parametrize(
    ("latest", "high_watermark", "error"),
    [
        (LATEST, 8, None),
        (LATEST, UNKNOWN, ErrorCode.REQUEST_TIMED_OUT),
        (LATEST, 7, ErrorCode.REQUEST_TIMED_OUT),
        (LATEST._replace(kraft_version=0), 8, ErrorCode.UNSUPPORTED_VERSION),
    ],
    ids=["committed", "no record of the epoch is committed", "the last change is not committed", "static"],
)
def test_a_change_waits_for_the_one_before(
    latest: VoterChange, high_watermark: int, error: ErrorCode | None
) -> None:
    refusal = refused(latest, high_watermark)
    assert (None if refusal is None else refusal.error) == error


def test_a_new_voter_joins_the_others() -> None:
    assert with_added(LATEST, voter(4), LISTENER) == voters(1, 2, 3, 4)


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (voter(3), ErrorCode.DUPLICATE_VOTER),
        (voter(3, b"B"), ErrorCode.DUPLICATE_VOTER),
        (voter(-1), ErrorCode.INVALID_REQUEST),
        (voter(4, b"\0"), ErrorCode.INVALID_REQUEST),
        (voter(4, listener="OTHER"), ErrorCode.INVALID_REQUEST),
        (voter(4, high=0), ErrorCode.INVALID_REQUEST),
        (voter(4, low=2, high=3), ErrorCode.INVALID_REQUEST),
    ],
    ids=["voter", "its other disk", "no id", "no disk", "other listener", "too old", "too new"],
)
def test_what_cannot_be_a_voter_is_refused(new: Voter, error: ErrorCode) -> None:
    refusal = with_added(LATEST, new, LISTENER)
    assert isinstance(refusal, Refusal)
    assert refusal.error == error


def test_a_voter_is_removed_by_its_disk() -> None:
    assert with_removed(LATEST, key(3)) == voters(1, 2)
    for stranger in (key(3, b"B"), ReplicaKey(3), key(9)):
        refusal = with_removed(LATEST, stranger)
        assert isinstance(refusal, Refusal)
        assert refusal.error == ErrorCode.VOTER_NOT_FOUND


def test_the_only_voter_is_not_removed() -> None:
    refusal = with_removed(VoterChange(7, voters(1), 1), key(1))
    assert isinstance(refusal, Refusal)
    assert refusal.error == ErrorCode.INVALID_REQUEST


def test_a_voter_tells_its_endpoints_and_a_stranger_does_not() -> None:
    moved = Voter(key(2), (Endpoint(LISTENER, "elsewhere", 1),), 0, 1)
    voter_set = with_updated(LATEST, moved, LISTENER)
    assert isinstance(voter_set, VoterSet)
    assert voter_set.voters[2] == moved
    for other in (voter(2, b"B"), voter(9), voter(2, listener="OTHER"), voter(2, high=0)):
        assert isinstance(with_updated(LATEST, other, LISTENER), Refusal)


# What a new set means at once


def leader_of(*ids: int) -> Replica:
    return Replica(me=key(1), voters=voters(*ids)).leading() if len(ids) > 1 else _alone()


def _alone() -> Replica:
    replica = Replica(me=key(1), voters=voters(1))
    replica.append(1, 0.0)
    return replica


def leads(replica: Replica) -> bool:
    return isinstance(replica.raft.role, Leader)


def fetch(replica: Replica, node_id: int, offset: int, now_ms: float, disk: bytes = b"A") -> None:
    epoch = replica.raft.epoch
    last = replica.log.epoch_before(offset) if offset else 0
    replica.out = replica.raft.fetch(FetchRequest(key(node_id, disk), epoch, offset, last), now_ms)


def test_a_voter_that_is_added_counts_before_it_is_committed() -> None:
    replica = leader_of(1)
    replica.append(1, 1.0)
    assert replica.raft.high_watermark == 2
    replica.log.append([replica.log.at(1)])
    replica.raft.voters_changed(2, voters(1, 2), 1, 2.0)
    replica.log.flush()
    replica.raft.log_changed(3.0)
    assert replica.raft.high_watermark == 2, "the new voter lacks it"
    fetch(replica, 2, 3, 4.0)
    assert replica.raft.high_watermark == 3


def test_a_leader_that_was_alone_has_a_whole_check_of_the_quorum_ahead() -> None:
    """It had none while it was alone, so the last one began when it came to lead, an hour ago."""
    replica = leader_of(1)
    replica.raft.voters_changed(1, voters(1, 2), 1, 3_600_000.0)
    replica.raft.tick(3_600_001.0)
    assert leads(replica)
    replica.raft.tick(3_600_000.0 + 1.5 * SETTINGS.fetch_timeout_ms)
    assert isinstance(replica.raft.role, Resigned), "the new voter never fetched"


def test_a_leader_that_is_removed_leads_until_the_others_have_committed_it() -> None:
    replica = leader_of(1, 2, 3)
    fetch(replica, 2, 1, NOW_MS)
    replica.append(1, NOW_MS)
    replica.raft.voters_changed(1, voters(2, 3), 1, NOW_MS)
    fetch(replica, 2, 2, NOW_MS)
    assert leads(replica), "one of two isn't a majority, and the leader's own flush counts no more"
    fetch(replica, 3, 2, NOW_MS)
    assert isinstance(replica.raft.role, Resigned)
    kinds = [type(effect) for effect in replica.out]
    assert kinds.index(effects.Commit) < kinds.index(effects.StopLeading), "what waits is answered first"
    ends = [request for _, request in sent(replica.out) if isinstance(request, EndEpoch)]
    assert {successor.id for successor in ends[0].successors} == {2, 3}


def test_a_leader_that_was_removed_looks_for_the_next_one_soon() -> None:
    replica = leader_of(1, 2)
    replica.append(1, NOW_MS)
    replica.raft.voters_changed(1, voters(2), 1, NOW_MS)
    fetch(replica, 2, 2, NOW_MS)
    assert isinstance(replica.raft.role, Resigned)
    replica.raft.tick(NOW_MS + SETTINGS.retry_backoff_ms)
    role = replica.raft.role
    assert isinstance(role, Unattached)
    assert role.deadline_ms == float("inf"), "it isn't elected any more"


def test_a_voter_stands_until_its_removal_is_committed() -> None:
    """It may be the one voter of two that holds the record of its removal: the other's log is behind and can't win."""
    replica = Replica("11", me=key(1), voters=voters(1, 2))
    replica.raft.voters_changed(1, voters(2), 1, 0.0)
    replica.out = replica.raft.tick(NOW_MS)
    role = replica.raft.role
    assert isinstance(role, Prospective)
    assert (role.ballot.granted, role.ballot.voters.majority) == (set(), 1), "its own vote counts no more"
    assert [node_id for node_id, _ in sent(replica.out)] == [2]


@pytest.mark.parametrize(
    ("node_id", "high_watermark", "needed"),
    [(1, 7, True), (1, 8, False), (4, 7, False), (2, 7, True), (2, 8, True)],
    ids=["removed, not committed", "removed", "observer", "voter, not committed", "voter"],
)
def test_a_removed_voter_is_needed_while_its_removal_may_not_be_committed(
    node_id: int, high_watermark: int, needed: bool
) -> None:
    history = VoterHistory(VoterSet(), [VoterChange(-1, voters(1, 2), 1), VoterChange(7, voters(2), 1)])
    assert history.needs(key(node_id), high_watermark) == needed


def test_an_observer_that_becomes_a_voter_stands_when_it_has_no_leader() -> None:
    replica = Replica(me=key(4), voters=voters(1, 2, 3))
    replica.raft.voters_changed(0, voters(1, 2, 3, 4), 1, 0.0)
    replica.raft.tick(2 * SETTINGS.election_timeout_ms)
    assert isinstance(replica.raft.role, Prospective)


def test_a_ballot_counts_by_the_new_set() -> None:
    replica = Replica("1111", me=key(1), voters=voters(1, 2, 3)).prospective()
    role = replica.raft.role
    assert isinstance(role, Prospective)
    role.ballot.count(2, False)
    replica.raft.voters_changed(4, VoterSet([voter(1), voter(2, b"B"), voter(3)]), 1, NOW_MS)
    assert role.ballot.rejected == set(), "the word of another disk"
    assert role.ballot.voters.key_of(2) == key(2, b"B")


@pytest.mark.parametrize(
    ("offset", "later_ms", "caught_up"),
    [(1, 0.0, True), (0, 0.0, False), (1, CAUGHT_UP_MAX_MS, False)],
    ids=["at the end", "behind", "an hour ago"],
)
def test_a_new_voter_has_all_records_and_was_heard_lately(
    offset: int, later_ms: float, caught_up: bool
) -> None:
    replica = leader_of(1)
    fetch(replica, 2, offset, NOW_MS)
    leadership = replica.raft.leadership
    assert leadership is not None
    assert leadership.is_caught_up(key(2), NOW_MS + later_ms) == caught_up
    assert not leadership.is_caught_up(key(2, b"B"), NOW_MS)
