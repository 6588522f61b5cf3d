"""How the log of a replica comes together with its leader's: divergence, truncation, snapshots, the high watermark."""

from __future__ import annotations

import pytest

from blumfeld.spi.leader_epochs import EpochEnd
from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_kraft.raft import effects
from blumfeld_consensus_kraft.raft.divergence import divergence, needed_snapshot
from blumfeld_consensus_kraft.raft.messages import FetchAnswer, FetchRequest, SnapshotId
from blumfeld_consensus_kraft.raft.roles import Prospective
from blumfeld_consensus_kraft.raft.settings import BrokenQuorumError
from blumfeld_consensus_kraft.raft.voters import ReplicaKey
from tests.plugins.consensus_kraft.raft.model_log import Entry, ModelLog
from tests.plugins.consensus_kraft.raft.one_replica import ME, SETTINGS, Replica, kinds, log_of, only, sent

EPOCH = 7
LEADER = 2


def follower(log: str | ModelLog, *, high_watermark: int = 0) -> Replica:
    """A follower of node 2 in epoch 7, whose first fetch is on its way."""
    replica = Replica(log).following(LEADER, EPOCH)
    if high_watermark:
        replica.hears(told(high_watermark), 1.0)
    return replica


def told(high_watermark: int = 0, **fields: object) -> FetchAnswer:
    answer = FetchAnswer(ErrorCode.NONE, EPOCH, LEADER, high_watermark)
    return answer._replace(**fields)  # type: ignore[arg-type]


def at(offset: int, last_epoch: int, epoch: int = EPOCH) -> FetchRequest:
    return FetchRequest(ReplicaKey(2), epoch, offset, last_epoch)


# The leader's answer


@pytest.fixture
def replica() -> Replica:
    return follower("112")


@pytest.mark.parametrize(
    ("offset", "last_epoch", "epoch_end"),
    [
        (4, 3, None),
        (2, 1, None),
        (3, 3, None),
        (0, 0, None),
        (3, 1, EpochEnd(1, 2)),
        (4, 2, EpochEnd(1, 2)),
        (2, 2, EpochEnd(1, 2)),
        (5, 3, EpochEnd(3, 4)),
        (4, 4, EpochEnd(3, 4)),
    ],
    ids=[
        "all that the leader has",
        "a whole older epoch",
        "a part of the last epoch",
        "nothing",
        "more of an epoch than the leader has",
        "an epoch that the leader lacks",
        "an epoch that the leader lacks, at the same end",
        "more than the leader has",
        "a later epoch than the leader has",
    ],
)
def test_where_a_log_leaves_the_leaders(offset: int, last_epoch: int, epoch_end: EpochEnd | None) -> None:
    assert divergence(log_of("1133"), at(offset, last_epoch)) == epoch_end


def test_a_replica_whose_log_diverges_is_told_where_and_gets_no_records() -> None:
    replica = Replica("1133").leading()
    answer = replica.fetched_by(3, 4, 2)
    assert (answer.error, answer.diverging, answer.records) == (ErrorCode.NONE, EpochEnd(1, 2), None)
    assert effects.ReadAndReply not in kinds(replica.out)


BEHIND = SnapshotId(5, 2)


@pytest.mark.parametrize(
    ("offset", "last_epoch", "needed"),
    [
        (0, 0, True),
        (3, 2, True),
        (5, 2, False),
        (5, 3, True),
        (6, 3, False),
        (6, 1, True),
    ],
    ids=[
        "an empty log",
        "below the leader's start",
        "right behind the snapshot",
        "at the leader's start with another record before it",
        "in the leader's log",
        "with a last epoch older than the snapshot's",
    ],
)
def test_which_replicas_must_take_a_snapshot(offset: int, last_epoch: int, needed: bool) -> None:
    log = log_of("33", snapshot=BEHIND)
    assert needed_snapshot(log, at(offset, last_epoch)) == (BEHIND if needed else None)


def test_without_a_snapshot_an_empty_log_is_filled_from_the_beginning() -> None:
    assert needed_snapshot(log_of("112"), at(0, 0)) is None


def test_a_leader_tells_of_its_snapshot_and_sends_no_records() -> None:
    replica = Replica(log_of("33", snapshot=BEHIND)).leading()
    answer = replica.fetched_by(3, 0, 0)
    assert (answer.snapshot, answer.diverging) == (BEHIND, None)
    assert effects.ReadAndReply not in kinds(replica.out)


# A fetch that waits at the leader


def test_a_waiting_fetch_is_answered_by_what_holds_when_it_is_answered() -> None:
    replica = Replica("112").leading()
    request = at(4, 3, epoch=3)
    assert replica.raft.fetch_answer(request) == FetchAnswer(ErrorCode.NONE, 3, 1, -1)
    replica.fetched_by(3, 4, 3)
    assert replica.raft.fetch_answer(request).high_watermark == 4
    replica.raft.resign(5_000.0)
    assert replica.raft.fetch_answer(request) == FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, -1)
    replica.following(3, epoch=4)
    assert replica.raft.fetch_answer(request) == FetchAnswer(ErrorCode.FENCED_LEADER_EPOCH, 4, 3)


# Truncation


@pytest.mark.parametrize(
    ("log", "diverging", "end"),
    [
        ("11222", EpochEnd(1, 2), 2),
        ("1122222", EpochEnd(2, 4), 4),
        ("112", EpochEnd(1, 9), 2),
        ("11333", EpochEnd(2, 4), 2),
        ("33", EpochEnd(2, 1), 0),
        ("1133", EpochEnd(3, 3), 3),
    ],
    ids=[
        "to the end of the common epoch",
        "to the leader's end of an epoch that both have",
        "to its own end of an epoch that both have",
        "below the leader's epoch, which it lacks: the leader's end says nothing",
        "everything",
        "a record of the present epoch's predecessor",
    ],
)
def test_where_a_log_is_cut(log: str, diverging: EpochEnd, end: int) -> None:
    replica = follower(log)
    out = replica.hears(told(diverging=diverging), 10.0)
    assert only(out, effects.Truncate).end_offset == end
    assert sent(out) == [], "the next fetch waits for the cut"


def test_after_a_cut_the_next_fetch_names_the_new_end() -> None:
    replica = follower("11222")
    replica.hears(told(diverging=EpochEnd(1, 2)), 10.0)
    replica.log.truncate(2)
    ((node_id, request),) = sent(replica.raft.log_changed(11.0))
    assert (node_id, request) == (LEADER, FetchRequest(ME, EPOCH, 2, 1, 0))


def test_voter_sets_go_when_the_log_is_cut_and_not_before() -> None:
    """A cut may find no room, and another leader may have those records."""
    replica = follower("11222")
    before = replica.raft.voters
    replica.raft.voters_changed(3, before.without(3), 1, 0.0)
    cut = only(replica.hears(told(diverging=EpochEnd(1, 2)), 10.0), effects.Truncate)
    assert replica.raft.voters == before.without(3)
    replica.raft.history.truncate(cut.end_offset)
    assert replica.raft.voters == before


def test_committed_records_are_never_cut() -> None:
    replica = follower("11222", high_watermark=3)
    with pytest.raises(
        BrokenQuorumError, match=r"epoch 7, node 2, .* offset 2 .* everything below 3 is committed"
    ):
        replica.hears(told(diverging=EpochEnd(1, 2)), 10.0)


def test_a_log_may_be_cut_down_to_what_is_committed() -> None:
    replica = follower("11222", high_watermark=2)
    assert only(replica.hears(told(diverging=EpochEnd(1, 2)), 10.0), effects.Truncate).end_offset == 2


# Records


def test_records_are_appended_and_the_next_fetch_waits_for_their_flush(replica: Replica) -> None:
    batch = [Entry(EPOCH, "new")]
    assert replica.hears(told(3, records=batch), 10.0) == [effects.Append(batch)]
    replica.log.append(batch)
    assert replica.raft.log_changed(11.0) == []
    replica.log.flush()
    out = replica.raft.log_changed(12.0)
    assert out == [effects.Commit(3), effects.Send(LEADER, FetchRequest(ME, EPOCH, 4, EPOCH, 3))]


def test_a_follower_that_starts_with_unflushed_records_fetches_when_they_are_flushed() -> None:
    """Its fetch offset promises that everything below is on its device."""
    replica = follower(log_of("112", unflushed=1))
    assert sent(replica.out) == []
    replica.log.flush()
    assert sent(replica.raft.log_changed(1.0)) == [(LEADER, FetchRequest(ME, EPOCH, 3, 2, 0))]


def test_a_follower_commits_no_more_than_it_has(replica: Replica) -> None:
    assert only(replica.hears(told(9), 10.0), effects.Commit).high_watermark == 3


def test_the_leaders_high_watermark_counts_later_for_records_that_come_later(replica: Replica) -> None:
    batch = [Entry(EPOCH, "new")]
    replica.hears(told(9, records=batch), 10.0)
    replica.log.append(batch)
    replica.log.flush()
    assert only(replica.raft.log_changed(11.0), effects.Commit).high_watermark == 4


def test_a_commit_is_told_once() -> None:
    replica = follower("112", high_watermark=3)
    assert effects.Commit not in kinds(replica.hears(told(3), 10.0))
    assert effects.Commit not in kinds(replica.hears(told(2), 20.0))
    assert replica.raft.high_watermark == 3


# Answers that come late, or say nothing


def test_an_answer_to_a_fetch_of_an_older_epoch_is_passed_over(replica: Replica) -> None:
    late = replica.out
    replica.following(3, EPOCH + 1)
    ((node_id, request),) = sent(late)
    assert isinstance(request, FetchRequest)
    assert replica.raft.answered(node_id, request, told(3, records=[Entry(EPOCH, "x")]), 10.0) == []


def test_an_answer_of_a_node_that_does_not_lead_is_passed_over(replica: Replica) -> None:
    ((_, request),) = sent(replica.out)
    assert isinstance(request, FetchRequest)
    assert replica.raft.answered(3, request, told(3), 10.0) == []


def test_an_answer_that_comes_after_the_fetch_timeout_is_passed_over(replica: Replica) -> None:
    ((node_id, request),) = sent(replica.out)
    assert isinstance(request, FetchRequest)
    replica.prospective(float(SETTINGS.fetch_timeout_ms))
    assert replica.raft.answered(node_id, request, told(3), 2_001.0) == []
    assert isinstance(replica.raft.role, Prospective)


def test_an_answer_to_a_fetch_from_before_the_log_changed_is_passed_over(replica: Replica) -> None:
    ((_, request),) = sent(replica.out)
    assert isinstance(request, FetchRequest)
    replica.log.append([Entry(EPOCH, "new")])
    replica.log.flush()
    out = replica.raft.answered(LEADER, request, told(3, records=[Entry(EPOCH, "other")]), 10.0)
    assert out == [effects.Send(LEADER, FetchRequest(ME, EPOCH, 4, EPOCH, 0))]


def test_an_error_puts_off_nothing_and_the_fetch_is_repeated_after_a_pause(replica: Replica) -> None:
    assert replica.hears(FetchAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, EPOCH, LEADER), 500.0) == []
    assert replica.deadline_ms == SETTINGS.fetch_timeout_ms
    assert sent(replica.raft.tick(500 + SETTINGS.retry_backoff_ms - 1)) == []
    assert len(sent(replica.raft.tick(500 + SETTINGS.retry_backoff_ms))) == 1


def test_a_fetch_without_an_answer_is_repeated_after_a_pause(replica: Replica) -> None:
    ((_, request),) = sent(replica.out)
    assert replica.raft.send_failed(LEADER, request, 500.0) == []
    assert replica.raft.next_deadline_ms == 500 + SETTINGS.retry_backoff_ms
    assert len(sent(replica.raft.tick(500 + SETTINGS.retry_backoff_ms))) == 1


# Snapshots


SNAPSHOT = SnapshotId(20, 6)


def downloading() -> Replica:
    replica = follower("112")
    assert replica.hears(told(25, snapshot=SNAPSHOT), 10.0) == [
        effects.Download(LEADER, EPOCH, SNAPSHOT),
    ]
    return replica


def test_each_part_of_a_snapshot_puts_off_the_fetch_timeout() -> None:
    replica = downloading()
    replica.raft.leader_is_there(EPOCH, 900.0)
    assert replica.deadline_ms == 900 + SETTINGS.fetch_timeout_ms
    replica.raft.leader_is_there(EPOCH - 1, 1_500.0)
    assert replica.deadline_ms == 900 + SETTINGS.fetch_timeout_ms


def test_a_snapshot_that_cannot_be_had_is_asked_for_again_from_the_beginning() -> None:
    replica = downloading()
    replica.raft.download_failed(EPOCH - 1, 800.0)
    assert sent(replica.raft.tick(899.0)) == [], "that one belongs to an older leader"
    assert replica.raft.download_failed(EPOCH, 900.0) == []
    assert sent(replica.raft.tick(899 + SETTINGS.retry_backoff_ms)) == []
    assert sent(replica.raft.tick(900 + SETTINGS.retry_backoff_ms)) == [
        (LEADER, FetchRequest(ME, EPOCH, 3, 2, 0))
    ]
