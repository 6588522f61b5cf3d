"""The host's side of a follower: what it appends, cuts and begins anew is what the leader has."""

from __future__ import annotations

import errno
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.log.producers.snapshot import CorruptSnapshot
from blumfeld.log.producers.state import ProducerState
from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld.wire.batches.builder import build_empty_batch
from blumfeld.wire.errors import BrokerError, CorruptBatch, ErrorCode
from blumfeld_kit.fakes.tiered_storage import RemoteStore
from tests.broker.batches import declaring
from tests.broker.harness import failing, refusal
from tests.broker.replicas.replica_cluster import Cluster, Replica
from tests.everyday import examples
from tests.log.batches import batch_bytes, data_batch, marker

REPLICAS = st.integers(1, 3)
Step = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 3), st.just(0)),
    st.tuples(st.just("produce"), st.integers(1, 3), st.sampled_from([7, 8])),
    st.tuples(st.just("in transaction"), st.integers(1, 3), st.sampled_from([11, 12])),
    st.tuples(st.just("end"), st.booleans(), st.sampled_from([11, 12])),
    st.tuples(st.just("copy"), REPLICAS, st.sampled_from([1, 150, 1 << 20])),
    st.tuples(st.just("copy"), REPLICAS, st.just(1 << 20)),
    st.tuples(st.just("elect"), REPLICAS, st.integers(1, 3)),
    st.tuples(st.just("restart"), REPLICAS, st.booleans()),
    st.tuples(st.just("full"), REPLICAS, st.just(0)),
    st.tuples(st.just("settle"), st.just(0), st.just(0)),
)
Tier = st.tuples(st.sampled_from(["tier", "tier", "lose"]), REPLICAS, st.just(0))
DeleteRecords = st.tuples(st.just("delete"), st.integers(0, 3), st.just(0))


def run(cluster: Cluster, step: tuple[str, Any, Any]) -> None:
    kind, first, second = step
    match kind:
        case "append":
            cluster.append(first)
        case "produce":
            cluster.produce(second, first)
        case "in transaction":
            cluster.produce(second, first, transactional=True)
        case "end":
            cluster.end_transaction(second, commit=first)
        case "elect":
            if cluster.store is None or cluster.may_lead(first):
                cluster.elect(first, second)
        case "delete":
            high_watermark = cluster.leader.partition.high_watermark
            cluster.delete_records(high_watermark * first // 3)
        case "tier":
            cluster.tier(cluster.replicas[first])
        case "settle":
            cluster.settle()
            cluster.check()
        case _:
            replica = cluster.replicas[first]
            if kind == "lose":
                if first != cluster.leader_id:
                    replica.lose_disk()
                    replica.apply(cluster.image())
            elif kind == "restart":
                if first == cluster.leader_id:
                    if cluster.store is not None and not cluster.may_lead(first % 3 + 1):
                        return
                    cluster.elect(first % 3 + 1)
                replica.restart(clean=second)
                replica.apply(cluster.image())
            elif first != cluster.leader_id:
                if kind == "full":
                    replica.fail_next_write()
                    second = 1 << 20
                cluster.copy(replica, second)


def check_history(steps: list[tuple[str, Any, Any]], store: RemoteStore | None = None) -> None:
    cluster = Cluster(3, store)
    for step in steps:
        run(cluster, step)
    cluster.settle()
    cluster.check()


@settings(max_examples=examples(60))
@given(st.lists(Step, min_size=12, max_size=40))
def test_after_any_history_followers_have_what_the_leader_has(steps: list[tuple[str, Any, Any]]) -> None:
    check_history(steps)


@settings(max_examples=examples(40))
@given(st.lists(st.one_of(Step, DeleteRecords), min_size=12, max_size=40))
def test_also_if_the_leaders_log_start_moves(steps: list[tuple[str, Any, Any]]) -> None:
    check_history(steps)


@settings(max_examples=examples(60))
@given(st.lists(st.one_of(Step, Step, Tier), min_size=12, max_size=60))
def test_also_if_older_segments_lie_in_a_remote_store(steps: list[tuple[str, Any, Any]]) -> None:
    check_history(steps, RemoteStore())


@settings(max_examples=examples(40))
@given(st.lists(st.one_of(Step, Step, Tier, DeleteRecords), min_size=12, max_size=60))
def test_also_if_the_start_of_a_tiered_log_moves(steps: list[tuple[str, Any, Any]]) -> None:
    check_history(steps, RemoteStore())


# Walked


def two() -> tuple[Cluster, Replica]:
    """A leader with three batches, and a follower that has them."""
    cluster = Cluster(2)
    for _ in range(3):
        cluster.append()
    cluster.settle()
    cluster.check()
    return cluster, cluster.replicas[2]


def test_batches_are_as_the_leader_gave_them() -> None:
    cluster = Cluster(2)
    cluster.produce(7, 2)
    cluster.elect(1, 4)
    cluster.append(3)
    follower = cluster.replicas[2]
    cluster.settle()
    (first, second) = follower.log.batches(0)
    assert (first.base_offset, first.partition_leader_epoch, first.producer_id) == (0, 1, 7)
    assert (second.base_offset, second.partition_leader_epoch) == (2, 5)
    assert list(follower.partition.state.epochs.entries) == [(1, 0), (5, 2)]
    assert follower.producers == {7: (0, 1, -1)}


def test_what_is_appended_is_told_once_it_is_written() -> None:
    cluster = Cluster(2)
    follower = cluster.replicas[2]
    cluster.append(2)
    assert follower.follower.fetch()
    assert follower.follower.calls == []
    assert (follower.log.placed_end_offset, follower.log.written_end_offset) == (2, 0)
    follower.end_turn()
    assert follower.follower.calls == [("written", 2)]


def test_the_high_watermark_is_the_leaders_but_not_beyond_what_is_written() -> None:
    _, follower = two()
    partition = follower.partition
    host = follower.host
    data = memoryview(batch_bytes(3, 2, leader_epoch=1))
    host.append_fetched(data, 100, 0)
    assert partition.high_watermark == 3, "nothing is written yet"
    follower.end_turn()
    assert partition.high_watermark == 5
    host.append_fetched(memoryview(b""), 2, 0)
    assert partition.high_watermark == 5, "it never goes back"


def test_the_log_start_follows_the_leaders() -> None:
    cluster, follower = two()
    cluster.delete_records(2)
    cluster.copy(follower)
    assert follower.log.log_start_offset == 2
    cluster.copy(follower)
    assert cluster.leader.partition.leader.low_watermark == 2  # type: ignore[union-attr]


def test_a_follower_that_diverged_twice() -> None:
    """Epochs 1 and 3 are the leader's history, 2 and 4 were written elsewhere."""
    cluster = Cluster(3)
    cluster.append(2)
    cluster.settle()
    lonely = cluster.replicas[2]
    cluster.elect(2)
    for _ in range(3):
        cluster.append()
    cluster.elect(3)
    cluster.append()
    cluster.elect(2)
    cluster.append()
    cluster.elect(3, 2)
    cluster.append(4)
    assert [entry.epoch for entry in lonely.partition.state.epochs.entries] == [1, 2, 4]
    cluster.settle()
    cluster.check()
    assert lonely.follower.truncations == [5, 2], "one truncation for each epoch that is not the leader's"


def test_an_epoch_gap() -> None:
    """The leader's epochs go from 1 to 6. The follower wrote in 4, which the leader never saw."""
    cluster, follower = two()
    cluster.elect(2, 3)
    cluster.append(2)
    cluster.elect(1, 2)
    cluster.append()
    cluster.settle()
    cluster.check()
    assert follower.follower.truncations == [3]
    assert list(follower.partition.state.epochs.entries) == [(1, 0), (6, 3)]


def test_a_leadership_without_a_record_leaves_no_epoch() -> None:
    cluster, follower = two()
    cluster.elect(2)
    cluster.elect(1)
    assert follower.host.latest_epoch == 1
    cluster.settle()
    assert follower.follower.truncations == []


def test_a_log_start_that_passes_the_follower() -> None:
    cluster, follower = two()
    for _ in range(20):
        cluster.produce(7, 2)
    cluster.leader.partition.leader.high_watermark = cluster.leader.log.written_end_offset  # type: ignore[union-attr]
    cluster.delete_records(30)
    cluster.settle()
    cluster.check()
    assert follower.log.log_start_offset == 30
    assert follower.log.segments()[0].base_offset == 29, "the batch that contains the leader's log start"
    assert follower.partition.high_watermark == 43


def test_a_write_that_fails_changes_nothing_and_is_tried_again() -> None:
    cluster = Cluster(2)
    follower = cluster.replicas[2]
    cluster.append()
    cluster.settle()
    cluster.elect(1)
    cluster.produce(7)
    follower.fail_next_write()
    cluster.copy(follower)
    assert follower.follower.calls == [("append_failed", 1)]
    assert follower.producers == {}
    assert list(follower.partition.state.epochs.entries) == [(1, 0)]
    assert follower.partition.high_watermark == 1
    cluster.settle()
    cluster.check()
    assert follower.follower.calls[-1] == ("written", 2)
    assert "writes succeed again" in [event[1] for event in follower.events.events]


def test_a_log_that_fails_stops_the_follower() -> None:
    cluster, follower = two()
    cluster.append()
    stopped, host = follower.follower, follower.host
    cast("Any", follower.log).place_as_is = failing(OSError(errno.EIO, "input/output error"))
    with refusal(ErrorCode.KAFKA_STORAGE_ERROR):
        stopped.fetch()
    assert stopped.stopped
    assert follower.failed
    with pytest.raises(BrokerError):
        host.append_fetched(memoryview(b""), 0, 0)


def test_a_damaged_batch_is_refused_and_nothing_is_placed() -> None:
    _, follower = two()
    good = batch_bytes(3, leader_epoch=1)
    bad = bytearray(batch_bytes(4, leader_epoch=1))
    bad[-1] ^= 1
    with pytest.raises(CorruptBatch):
        follower.host.append_fetched(memoryview(good + bad), 3, 0)
    assert follower.log.placed_end_offset == 3


@pytest.mark.parametrize("record", [b"garbage", b"\x20\0\0\0\x01"])
def test_a_control_batch_that_cannot_be_read_is_refused_and_nothing_is_placed(record: bytes) -> None:
    """Its CRC is right. The batch before it must not stay placed without a write that is due."""
    _, follower = two()
    bad = batch_bytes(4, producer_id=7, epoch=0, attributes=0x30, payload=record, leader_epoch=1)
    with pytest.raises(CorruptBatch):
        follower.host.append_fetched(memoryview(batch_bytes(3, leader_epoch=1) + bad), 3, 0)
    assert follower.log.placed_end_offset == 3


def test_a_marker_that_the_leaders_cleaner_emptied_is_copied_and_survives_a_restart() -> None:
    cluster, follower = two()
    emptied = bytes(build_empty_batch(marker(3, 7, 5, committed=False)))
    for clean in (True, False):
        if not follower.producers:
            follower.host.append_fetched(memoryview(emptied), 3, 0)
            follower.end_turn()
        assert follower.producers == {7: (5, -1, -1)}
        follower.restart(clean=clean)
        follower.apply(cluster.image())
    assert follower.log.written_end_offset == 4
    assert follower.producers == {7: (5, -1, -1)}


@pytest.mark.parametrize("offsets", [(2,), (0,), (4, 3), (3, 3)])
def test_offsets_that_do_not_follow_are_refused(offsets: tuple[int, ...]) -> None:
    _, follower = two()
    data = b"".join(batch_bytes(offset, leader_epoch=1) for offset in offsets)
    with pytest.raises(CorruptBatch, match="offset"):
        follower.host.append_fetched(memoryview(data), 3, 0)
    assert follower.log.placed_end_offset == 3


def test_a_gap_that_compaction_left_is_no_error() -> None:
    _, follower = two()
    follower.host.append_fetched(memoryview(batch_bytes(9, leader_epoch=1)), 3, 0)
    follower.end_turn()
    assert follower.log.written_end_offset == 10


@pytest.mark.parametrize("codec", [0, 4], ids=["plain", "zstd"])
@pytest.mark.parametrize(
    ("record_count", "last_offset_delta"),
    [(2**31 - 1, 2**31 - 2), (1, 2**31 - 1), (2, 0), (3, 100), (0, 5)],
)
def test_a_batch_that_no_producer_may_write_is_copied_as_the_leader_has_it(
    record_count: int, last_offset_delta: int, codec: int
) -> None:
    """An earlier build or Kafka let its producer write it, or compaction took its records. A follower that refused it
    would stay behind for good.
    """
    cluster, follower = two()
    end = 3 + last_offset_delta + 1
    data = declaring(
        bytearray(batch_bytes(3, leader_epoch=1, attributes=codec)), record_count, last_offset_delta
    )
    assert follower.host.append_fetched(memoryview(data), 3, 0)
    follower.end_turn()
    for clean in (True, False):
        assert follower.log.written_end_offset == end
        assert follower.bytes_from(3) == [bytes(data)]
        follower.restart(clean=clean)
        follower.apply(cluster.image())
    assert follower.host.append_fetched(memoryview(batch_bytes(end, leader_epoch=1)), 3, 0)
    follower.end_turn()
    assert follower.log.written_end_offset == end + 1


@pytest.mark.parametrize("together", [True, False])
def test_gaps_that_compaction_left_at_the_leader_survive_a_kill(together: bool) -> None:
    """Also where a segment ends with one. The topic's policy may have changed from compact to delete since."""
    cluster, follower = two()
    offsets = list(range(3, 90, 7))
    copies = [batch_bytes(offset, leader_epoch=1) for offset in offsets]
    for data in [b"".join(copies)] if together else copies:
        follower.host.append_fetched(memoryview(data), 3, 0)
        follower.end_turn()
    assert len(follower.log.segments()) > 2
    before = follower.bytes_from(0)
    follower.restart(clean=False)
    follower.apply(cluster.image())
    assert follower.log.written_end_offset == offsets[-1] + 1
    assert follower.bytes_from(0) == before
    for offset in range(offsets[-1] + 1):
        assert next(follower.log.batches(offset)).last_offset >= offset
    follower.host.truncate_to(offsets[5] - 2)
    follower.end_turn()
    assert [batch.base_offset for batch in follower.log.batches(3)] == offsets[:5]


@pytest.mark.parametrize("gap", [2**31 - 2, 2**31, 2**62])
def test_a_gap_that_no_index_can_bridge_begins_a_segment(gap: int) -> None:
    cluster, follower = two()
    for offset in (3 + gap, 4 + gap):
        follower.host.append_fetched(memoryview(batch_bytes(offset, leader_epoch=1)), 3, 0)
        follower.end_turn()
    follower.restart(clean=True)
    follower.apply(cluster.image())
    assert [batch.base_offset for batch in follower.log.batches(3)] == [3 + gap, 4 + gap]
    assert follower.log.written_end_offset == 5 + gap


def test_a_truncation_below_the_log_start_begins_anew_there() -> None:
    cluster, follower = two()
    for _ in range(12):
        cluster.append()
    cluster.settle()
    follower.partition.advance_log_start(9)
    assert follower.host.truncate_to(4).done
    ends = follower.partition
    assert (ends.log.log_start_offset, ends.log.written_end_offset, ends.high_watermark) == (4, 4, 4)
    assert follower.host.latest_epoch == -1, "the epochs of what was below the log start are forgotten"
    cluster.settle()
    cluster.check()


def test_a_log_that_begins_inside_of_a_batch_keeps_epochs_and_producers() -> None:
    """The leader's log start lies inside of the first batch that it sends."""
    _, follower = two()
    state = ProducerState()
    state.place(data_batch(20, 9, 3, 4))
    state.written(21)
    follower.host.restart_at(30, [EpochEntry(0, 5)], state.snapshot(30))
    follower.host.append_fetched(memoryview(batch_bytes(29, 3, leader_epoch=1)), 32, 30)
    follower.end_turn()
    assert (follower.log.log_start_offset, follower.log.written_end_offset) == (30, 32)
    assert follower.producers == {9: (3, 4, -1)}
    assert [entry.epoch for entry in follower.partition.state.epochs.entries][-1] == 1
    assert follower.host.epoch_end(0).epoch == 0


def test_each_append_is_told_also_if_an_earlier_write_ends_behind_it() -> None:
    """Where an ack waits for a sync, batches are placed between a write and its outcome."""
    _, follower = two()
    log, held = cast("Any", follower.log), []
    real = log.write
    log.write = lambda done: real(lambda outcome: held.append((done, outcome)))
    for offset in (3, 4):
        follower.host.append_fetched(memoryview(batch_bytes(offset, leader_epoch=1)), offset, 0)
        follower.end_turn()
    follower.follower.calls.clear()
    for done, outcome in held:
        done(outcome)
        follower.end_turn()
    assert follower.follower.calls == [("written", 4), ("written", 5)]


def test_a_batch_of_a_later_epoch_and_one_that_is_cut_off_wait_for_the_next_fetch() -> None:
    _, follower = two()
    data = batch_bytes(3, leader_epoch=1) + batch_bytes(4, leader_epoch=2) + batch_bytes(5, leader_epoch=1)
    follower.host.append_fetched(memoryview(data), 3, 0)
    follower.end_turn()
    assert follower.log.written_end_offset == 4
    cut = batch_bytes(4, leader_epoch=1) + batch_bytes(5, leader_epoch=1)[:-3]
    follower.host.append_fetched(memoryview(cut), 3, 0)
    follower.end_turn()
    assert follower.log.written_end_offset == 5


def test_a_follower_that_cannot_be_made_leaves_a_partition_that_the_next_epoch_can_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, follower = two()
    with monkeypatch.context() as patch:
        patch.setattr(follower, "become_follower", lambda host, image: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cluster.elect(1)
    cluster.elect(1)
    cluster.append()
    cluster.settle()
    cluster.check()


def test_a_late_answer_of_an_earlier_epoch_changes_nothing() -> None:
    cluster, follower = two()
    late = follower.host
    cluster.elect(1)
    for call in (
        lambda: late.append_fetched(memoryview(batch_bytes(3, leader_epoch=1)), 3, 0),
        lambda: late.truncate_to(0),
        lambda: late.restart_at(9),
    ):
        with refusal(ErrorCode.FENCED_LEADER_EPOCH):
            call()
    assert follower.log.placed_end_offset == 3


def test_an_image_of_the_same_epoch_updates_the_follower() -> None:
    cluster, follower = two()
    before = follower.follower
    follower.apply(cluster.image(isr=(1,), partition_epoch=9))
    assert follower.follower is before
    assert before.calls[-1] == ("update", (1,))


def test_what_is_placed_is_written_before_the_next_epoch() -> None:
    cluster, follower = two()
    cluster.append()
    follower.follower.fetch()
    cluster.elect(1)
    assert follower.log.written_end_offset == 4
    cluster.settle()
    cluster.check()


def test_a_truncation_takes_back_what_is_only_placed_and_the_high_watermark() -> None:
    cluster, follower = two()
    cluster.produce(7)
    follower.follower.fetch()
    done = follower.host.truncate_to(2)
    assert done.done
    follower.end_turn()
    assert (follower.log.written_end_offset, follower.partition.high_watermark) == (2, 2)
    assert follower.producers == {}
    assert "truncation below the high watermark" in [event[1] for event in follower.events.events]
    cluster.settle()
    cluster.check()


def remove_snapshots(replica: Replica) -> None:
    for offset in list(replica.partition.state._snapshots.offsets):
        replica.partition.state._snapshots.remove(offset)


def test_a_long_rebuilding_of_producers_takes_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blumfeld.broker.replicas.state.replica_state.REPLAY_STEP", 1)
    cluster, follower = two()
    open_at = cluster.produce(11, transactional=True)
    for _ in range(3):
        cluster.produce(7)
    cluster.settle()
    host = follower.partition
    remove_snapshots(follower)
    offset = follower.log.written_end_offset - 1
    done = follower.host.truncate_to(offset)
    assert not done.done
    with pytest.raises(ValueError, match="rebuilding"):
        follower.host.append_fetched(memoryview(b""), 0, 0)
    assert host.last_stable_offset <= open_at, "what is not replayed yet may hold an open transaction"
    follower.end_turn()
    for _ in range(20):
        follower.node.runtime.advance(1)
    assert done.done
    assert host.last_stable_offset == open_at
    cluster.settle()
    cluster.check()


@pytest.mark.parametrize("ending", ["lead", "close"])
def test_a_rebuilding_is_finished_before_it_is_needed(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blumfeld.broker.replicas.state.replica_state.REPLAY_STEP", 1)
    cluster, follower = two()
    for _ in range(3):
        cluster.produce(7)
    cluster.settle()
    remove_snapshots(follower)
    done = follower.host.truncate_to(5)
    assert not done.done
    if ending == "lead":
        cluster.elect(2)
    else:
        follower.restart(clean=True)
    assert follower.producers == {7: (0, 1, -1)}


def test_a_log_is_begun_anew_with_epochs_and_producers() -> None:
    _, follower = two()
    producers = ProducerState()
    producers.place(data_batch(90, 7, 0, 5, 10))
    producers.written(100)
    host = follower.host
    host.restart_at(100, [EpochEntry(0, 0), EpochEntry(1, 50), EpochEntry(2, 100)], producers.snapshot(100))
    assert (follower.log.log_start_offset, follower.log.written_end_offset) == (100, 100)
    assert host.high_watermark == 100
    assert host.latest_epoch == 1, "an epoch that begins at the end has no record below"
    assert follower.producers == {7: (0, 14, -1)}
    follower.restart(clean=False)
    assert follower.producers == {7: (0, 14, -1)}
    assert follower.partition.state.epochs.latest_epoch == 1
    assert follower.log.written_end_offset == 100


def test_a_snapshot_that_cannot_be_read_changes_nothing() -> None:
    _, follower = two()
    with pytest.raises(CorruptSnapshot):
        follower.host.restart_at(100, [], b"garbage")
    assert follower.log.written_end_offset == 3
    assert follower.host.latest_epoch == 1


def test_the_end_of_an_epoch_is_that_of_offset_for_leader_epoch() -> None:
    cluster, follower = two()
    cluster.elect(1, 3)
    cluster.append(2)
    cluster.settle()
    host = follower.host
    assert host.epoch_end(1) == (1, 3)
    assert host.epoch_end(3) == (1, 3)
    assert host.epoch_end(4) == (4, 5)
    assert host.epoch_end(5) == (-1, -1)
    assert host.epoch_end(-1) == (-1, -1)
