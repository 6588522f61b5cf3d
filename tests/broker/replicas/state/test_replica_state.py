"""What a replica keeps beside its batches, over rolls, stops, crashes, truncations: always what its batches say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from blumfeld.broker.replicas.state import replica_state as state_module
from blumfeld.broker.replicas.state.replica_state import ReplicaState
from blumfeld.config.values import TopicConfig
from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld_kit.fakes.power import Adversary
from tests.broker.replica_on_disk import ReplicaOnDisk
from tests.log.batches import batch_bytes, data_batch, marker


@pytest.fixture
def replica() -> Iterator[ReplicaOnDisk]:
    made = ReplicaOnDisk()
    yield made
    made.node.end()


def of(producer: int, sequence: int, *, txn: bool = False) -> RecordBatch:
    return data_batch(0, producer, 0, sequence, transactional=txn)


def plain() -> RecordBatch:
    return RecordBatch(memoryview(bytearray(batch_bytes())))


def abort(replica: ReplicaOnDisk, producer: int, sequence: int = 0) -> None:
    """A transaction of one batch, in one turn."""
    replica.put(of(producer, sequence, txn=True), marker(0, producer, 0, committed=False))


# Replay


def test_a_replay_ends_at_a_hole_at_the_end_of_the_log(replica: ReplicaOnDisk) -> None:
    """Compaction took the last batches, and the log's end stayed where it was."""
    for sequence in range(3):
        replica.put(of(7, sequence))
    log: Any = replica.log
    whole, asked = log.batches, []

    def batches(offset: int) -> Iterator[RecordBatch]:
        asked.append(offset)
        assert len(asked) < 5, "the replay asks for the hole again and again"
        return (batch for batch in whole(offset) if batch.base_offset < 2)

    log.batches = batches
    state = ReplicaState("topic-0", replica.node.runtime.now_ms, replica.events)
    state.attach(log, 0)
    for _ in state.replay():
        pass
    assert asked == [0]
    assert not state.replaying
    assert state.producers.end_offset == 3
    assert [entry.last_sequence for entry in state.producers.producers()] == [1]


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_replay_in_steps_takes_each_batch_once(
    replica: ReplicaOnDisk, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Whether the log ends with a step or in the middle of one."""
    monkeypatch.setattr(state_module, "REPLAY_STEP", step)
    for sequence in range(6):
        replica.put(of(7, sequence))
    state = ReplicaState("topic-0", replica.node.runtime.now_ms, replica.events)
    state.attach(replica.log, 0)
    assert [batch.base_offset for batch in state._batches(replica.log, 6)] == list(range(6))
    assert [batch.base_offset for batch in state._batches(replica.log, 3)] == list(range(3))


def test_a_roll_in_the_middle_of_a_replay_writes_no_snapshot(
    replica: ReplicaOnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only some of the producers are known then, and a start would believe the snapshot."""
    monkeypatch.setattr(state_module, "REPLAY_STEP", 1)
    for producer in (7, 8, 9):
        replica.put(of(producer, 0))
    steps = replica.state.truncate_in_steps(2)
    assert steps is not None
    next(steps)
    assert replica.sequences == {7: 0}
    replica.roll()
    assert 2 not in replica.files(".snapshot")
    for _ in steps:
        pass
    assert replica.sequences == {7: 0, 8: 0}


# Transaction index


def test_an_index_is_written_when_its_segment_is_sealed_and_when_asked_for(replica: ReplicaOnDisk) -> None:
    abort(replica, 7)
    assert replica.files(".txnindex") == []
    replica.roll()
    assert replica.index(0) == [(7, 0, 1)]
    abort(replica, 8)
    replica.state.save_aborted()
    assert replica.index(2) == [(8, 2, 3)]
    assert replica.aborted == [(7, 0, 1), (8, 2, 3)]


def test_what_is_aborted_in_the_turn_that_rolls_is_in_the_sealed_index(replica: ReplicaOnDisk) -> None:
    """The roll comes in the middle of the write, before its outcome."""
    replica.log.reconfigure(TopicConfig({"internal.segment.bytes": 200}))
    replica.put(of(7, 0, txn=True), marker(0, 7, 0, committed=False), plain(), plain(), plain())
    assert replica.index(0) == [(7, 0, 1)]
    assert replica.aborted == [(7, 0, 1)]


@pytest.mark.parametrize("stop", ["restart", "kill"])
def test_aborted_transactions_are_known_after_a_stop_of_any_kind(replica: ReplicaOnDisk, stop: str) -> None:
    abort(replica, 7)
    replica.roll()
    abort(replica, 8)
    getattr(replica, stop)()
    assert replica.aborted == [(7, 0, 1), (8, 2, 3)]
    assert (replica.index(0), replica.index(2)) == ([(7, 0, 1)], [(8, 2, 3)])


def test_an_index_that_outlived_its_records_is_made_anew(replica: ReplicaOnDisk) -> None:
    """A power cut took the marker and left the file; what is written there since is no abort."""
    abort(replica, 7)
    replica.flush()
    abort(replica, 8, 0)
    replica.state.save_aborted()
    replica.cut_power(Adversary.LOSE)
    assert replica.aborted == [(7, 0, 1)]
    assert replica.index(0) == [(7, 0, 1)]


@pytest.mark.parametrize("damage", [b"garbage", b"\0\0" + bytes(32)])
def test_a_damaged_index_is_made_anew_from_the_batches(replica: ReplicaOnDisk, damage: bytes) -> None:
    """Cut off, and with a marker that can't be in that segment."""
    abort(replica, 7)
    replica.roll()
    abort(replica, 8)
    replica.roll()
    replica.log.aux.write(f"{2:020d}.txnindex", damage)
    replica.restart()
    assert replica.aborted == [(7, 0, 1), (8, 2, 3)]
    assert replica.index(2) == [(8, 2, 3)]


def test_an_index_and_the_snapshots_below_go_with_their_segment(replica: ReplicaOnDisk) -> None:
    for producer in (7, 8, 9):
        abort(replica, producer)
        replica.roll()
    replica.log.drop_segments(4)
    replica.state.log_start_moved(4)
    assert replica.aborted == [(9, 4, 5)]
    assert (replica.files(".txnindex"), replica.files(".snapshot")) == ([4], [4, 6])


def test_after_compaction_the_indexes_of_the_new_segments_count(replica: ReplicaOnDisk) -> None:
    abort(replica, 7)
    replica.roll()
    abort(replica, 8)
    replica.roll()
    abort(replica, 9)
    replica.log.aux.delete(f"{0:020d}.txnindex")
    replica.state.compacted()
    assert replica.aborted == [(8, 2, 3), (9, 4, 5)], "and what is in no file yet"
    replica.state.save_aborted()
    assert replica.files(".txnindex") == [2, 4]


# Producer snapshots


def test_a_snapshot_is_written_at_each_roll_and_stop_also_without_producers(replica: ReplicaOnDisk) -> None:
    replica.put(plain())
    replica.roll()
    assert replica.snapshot(1) == {}
    replica.put(of(7, 0))
    replica.restart()
    assert replica.snapshot(2) == {7: 0}
    assert replica.files(".snapshot") == [1, 2]


def test_a_roll_waits_for_no_device(replica: ReplicaOnDisk) -> None:
    """The loop writes the snapshot; a worker syncs it together with the log."""
    replica.put(of(7, 0))
    replica.flush()
    operations: list[str] = []
    replica.node.runtime.disk.watch = lambda operation, _: operations.append(operation)
    replica.log.roll()
    assert [operation for operation in operations if "sync" in operation] == []
    replica.flush()
    assert operations.count("fdatasync") >= 2
    replica.cut_power(Adversary.LOSE)
    assert replica.files(".snapshot") == [1]


@pytest.mark.parametrize("adversary", list(Adversary))
def test_a_snapshot_that_a_power_cut_takes_or_tears_is_not_missed(
    replica: ReplicaOnDisk, adversary: Adversary
) -> None:
    """Its sync had not begun. An older snapshot, and the batches behind it, say the same."""
    replica.put(of(7, 0))
    replica.roll()
    replica.flush()
    replica.put(of(7, 1), of(8, 0))
    replica.flush()
    replica.log.roll()
    replica.cut_power(adversary)
    assert replica.sequences == {7: 1, 8: 0}


def test_an_empty_log_needs_none(replica: ReplicaOnDisk) -> None:
    replica.restart()
    assert replica.files(".snapshot") == []


def test_snapshots_that_no_replay_begins_from_are_removed(replica: ReplicaOnDisk) -> None:
    for sequence in range(4):
        replica.put(of(7, sequence))
        replica.restart()
    replica.roll()
    replica.put(of(7, 4))
    replica.restart()
    replica.state.remove_strays([segment.base_offset for segment in replica.log.segments()])
    assert replica.files(".snapshot") == [4, 5], "the active segment's, and the newest"


@pytest.mark.parametrize("damage", [b"", b"\0\1garbage", b"\0\2" + bytes(8)])
def test_an_unreadable_snapshot_gives_way_to_an_older_one(replica: ReplicaOnDisk, damage: bytes) -> None:
    replica.put(of(7, 0))
    replica.roll()
    replica.put(of(7, 1))
    replica.restart()
    replica.log.aux.write(f"{2:020d}.snapshot", damage)
    replica.node.stop()
    replica.node.restart()
    replica.open()
    assert replica.sequences == {7: 1}
    assert replica.files(".snapshot") == [1]


def test_a_snapshot_that_comes_back_after_a_power_cut_is_not_believed(replica: ReplicaOnDisk) -> None:
    """It lasted, its records were lost, it was removed, and the power failed before that lasted: others stand there
    now."""
    replica.put(of(7, 0))
    replica.flush()
    replica.put(of(7, 1), of(7, 2))
    replica.log.roll()
    name = f"{3:020d}.snapshot"
    written = replica.log.aux.read(name)
    assert written is not None
    replica.log.aux.write(
        name, written
    )  # a file system may write it before the records, though nobody synced it
    replica.cut_power(Adversary.LOSE)
    assert (replica.log.written_end_offset, replica.files(".snapshot")) == (1, [])
    replica.put(of(8, 0), of(8, 1), of(8, 2))
    replica.cut_power(Adversary.DATA)
    assert replica.log.written_end_offset == 4
    assert replica.sequences == {7: 0, 8: 2}
    assert replica.snapshot(3) == {7: 0, 8: 1}, "it was there again, and says what is true now"


def test_recovery_is_not_followed_by_a_second_reading(
    replica: ReplicaOnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica.put(of(7, 0), plain(), of(8, 0, txn=True), marker(0, 8, 0, committed=False), of(7, 1))
    replica.node.crash(power_cut=False)
    monkeypatch.setattr("blumfeld_storage_local.logs.partition_log.LocalLog.batches", None)
    replica.open()
    assert replica.sequences == {7: 1, 8: 0}
    assert replica.aborted == [(8, 2, 3)]
    assert replica.state.epochs.latest_epoch == 0


def test_more_batches_than_are_kept_are_read_again(
    replica: ReplicaOnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blumfeld.broker.replicas.state.recovered_batches.KEPT_MAX", 2)
    replica.put(*(of(7, sequence) for sequence in range(5)))
    replica.kill()
    assert replica.sequences == {7: 4}


def test_a_transaction_that_ended_below_the_high_watermark_is_over_after_a_crash(
    replica: ReplicaOnDisk,
) -> None:
    """The high watermark need not move before readers of committed records get past it."""
    abort(replica, 7)
    replica.kill()
    assert replica.state.producers.first_unstable_offset is None


# Leader epochs


@pytest.mark.parametrize("damage", [None, b"", b"0\n1\nx y\n"])
def test_missing_or_damaged_epochs_are_found_in_the_batches(
    replica: ReplicaOnDisk, damage: bytes | None
) -> None:
    replica.put(plain(), epoch=1)
    replica.roll()
    replica.put(plain(), epoch=4)
    replica.restart()
    if damage is None:
        replica.log.aux.delete(EPOCHS)
    else:
        replica.log.aux.write(EPOCHS, damage)
    replica.restart()
    assert list(replica.state.epochs.entries) == [(1, 0), (4, 1)]
    assert replica.log.aux.read(EPOCHS) == b"0\n2\n1 0\n4 1\n"


# Truncation


def test_a_truncation_takes_back_all_that_was_known(replica: ReplicaOnDisk) -> None:
    replica.put(of(7, 0), epoch=1)
    abort(replica, 8)
    replica.roll()
    replica.put(of(7, 1), epoch=2)
    abort(replica, 8, 1)
    replica.roll()
    replica.put(of(9, 0), epoch=3)
    replica.state.high_watermark = 7
    replica.state.truncate_to(4)
    assert replica.log.written_end_offset == 4
    assert replica.sequences == {7: 1, 8: 0}
    assert replica.aborted == [(8, 1, 2)]
    assert list(replica.state.epochs.entries) == [(1, 0), (2, 3)]
    assert replica.log.aux.read(EPOCHS) == b"0\n2\n1 0\n2 3\n"
    assert replica.files(".snapshot") == [3]
    assert replica.files(".txnindex") == [0]
    assert replica.state.high_watermark == 4


def test_a_truncation_may_open_a_transaction_again(replica: ReplicaOnDisk) -> None:
    abort(replica, 8)
    replica.state.save_aborted()
    replica.state.truncate_to(1)
    assert replica.state.producers.first_unstable_offset == 0
    assert (replica.aborted, replica.files(".txnindex")) == ([], [])


@pytest.mark.parametrize("reload", ["kill", "truncate"])
def test_a_marker_below_the_log_start_has_ended_its_transaction(replica: ReplicaOnDisk, reload: str) -> None:
    """DeleteRecords moved the start between the last snapshot and the log's end."""
    replica.put(of(8, 0, txn=True))
    replica.roll()
    replica.put(marker(0, 8, 0, committed=True), plain(), plain(), of(9, 0))
    replica.log.advance_log_start(3)
    replica.state.log_start_moved(3, segments_dropped=False)
    replica.state.high_watermark = 5
    if reload == "kill":
        storage: Any = replica.node.storage
        storage.checkpoint(())
        replica.node.runtime.run_turn()
        replica.kill()
    else:
        replica.state.truncate_to(4)
    assert replica.log.log_start_offset == 3
    assert replica.state.producers.first_unstable_offset is None


def test_a_log_that_is_emptied_knows_nothing(replica: ReplicaOnDisk) -> None:
    abort(replica, 8)
    replica.roll()
    replica.put(of(7, 0), epoch=2)
    replica.state.truncate_fully(50)
    assert (replica.sequences, replica.aborted) == ({}, [])
    assert (replica.files(".snapshot"), replica.files(".txnindex")) == ([], [])
    assert list(replica.state.epochs.entries) == []
    replica.put(of(7, 5), epoch=3)
    assert list(replica.state.epochs.entries) == [(3, 50)]
