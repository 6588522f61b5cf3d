"""The storage kit bites: each of these storages breaks one promise, and the kit's test of it fails."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from blumfeld.spi.compaction import CompactionRequest, CompactionResult
from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import LogRead, LogStorage, TimestampOffset, TopicPartition, WriteOutcome
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.compression.codec import Codec
from blumfeld_kit.fakes.files import FakeDisk, FakeFile, FakeFiles
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.storage_contract import StorageContract
from blumfeld_kit.storage_driver.node import Node
from blumfeld_storage_local.directories.checkpoint_files import Checkpoints
from blumfeld_storage_local.logs.partition_log import LocalLog
from blumfeld_storage_local.storage import LocalStorage
from blumfeld_storage_local.sync.sync_rounds import Flusher
from blumfeld_storage_memory import MemoryLog, MemoryStorage
from blumfeld_storage_memory.small_files import MemoryAux, MemoryDraft
from tests.plugins.storage_local.local_node import Events

Wrong = tuple[type[Any], str, Callable[..., Any]]
"""A class, the method that is replaced, and what stands in its place; it is handed the right one first."""


class OfMemory(StorageContract):
    def make_storage(self, runtime: FakeRuntime) -> LogStorage:
        return MemoryStorage(runtime)


class OfFiles(StorageContract):
    survives_restart = segment_files = simulated_disk = survives_crash = True

    def make_storage(self, runtime: FakeRuntime) -> LogStorage:
        return LocalStorage(runtime, ["/data", "/more"], Events())


def run_contract_test(contract: StorageContract, name: str, **values: object) -> None:
    """Run one test of the kit with its fixtures."""
    test = getattr(contract, name)
    node = Node(contract.make_runtime, contract.make_storage).start()
    wanted = inspect.signature(test).parameters
    if "node" in wanted:
        values["node"] = node
    if "log" in wanted:
        values["log"] = node.open(index_interval_bytes=100)
    try:
        test(**values)
    except pytest.skip.Exception as skipped:
        raise RuntimeError(f"{name} catches nothing: {skipped}") from None


# Wrong logs


def place_with_a_gap(right: Any, log: MemoryLog, batch: RecordBatch, leader_epoch: int) -> int:
    log.placed_end_offset += 1
    base_offset: int = right(log, batch, leader_epoch)
    return base_offset


def place_without_the_epoch(right: Any, log: MemoryLog, batch: RecordBatch, leader_epoch: int) -> int:
    base_offset: int = right(log, batch, 0)
    return base_offset


def place_and_show(right: Any, log: MemoryLog, batch: RecordBatch, leader_epoch: int) -> int:
    base_offset: int = right(log, batch, leader_epoch)
    log.write(lambda _: None)
    return base_offset


def write_and_tell_twice(right: Any, log: MemoryLog, done: Callable[[WriteOutcome], None]) -> None:
    right(log, done)
    done(WriteOutcome(log.written_end_offset))


def read_to_the_end(right: Any, log: MemoryLog, offset: int, size: int, end: int, minimum: bool) -> LogRead:
    log_read: LogRead = right(log, offset, size, log.written_end_offset, minimum)
    return log_read


def read_without_a_limit(
    right: Any, log: MemoryLog, offset: int, size: int, end: int, minimum: bool
) -> LogRead:
    log_read: LogRead = right(log, offset, 1 << 30, end, minimum)
    return log_read


def read_only_what_fits(
    right: Any, log: MemoryLog, offset: int, size: int, end: int, minimum: bool
) -> LogRead:
    log_read: LogRead = right(log, offset, size, end, False)
    return log_read


def read_anything(right: Any, log: MemoryLog, offset: int, *rest: Any) -> LogRead:
    log_read: LogRead = right(log, min(max(offset, log.log_start_offset), log.written_end_offset), *rest)
    return log_read


def read_below_the_start(right: Any, log: MemoryLog, offset: int, *rest: Any) -> LogRead:
    start, log.log_start_offset = log.log_start_offset, 0
    try:
        log_read: LogRead = right(log, offset, *rest)
    finally:
        log.log_start_offset = start
    return log_read


def cut_too_little(right: Any, log: MemoryLog, offset: int) -> None:
    right(log, offset + 3)


def cut_and_keep_the_placed(right: Any, log: MemoryLog, offset: int) -> None:
    placed = list(log._placed)
    right(log, offset)
    log._placed += placed


def cut_fully_to_zero(right: Any, log: MemoryLog, start_offset: int) -> None:
    right(log, 0)


def start_goes_back(right: Any, log: MemoryLog, offset: int) -> None:
    right(log, offset)
    log.log_start_offset = offset


def start_anywhere(right: Any, log: MemoryLog, offset: int) -> None:
    log.log_start_offset = max(log.log_start_offset, offset)


def drop_too_much(right: Any, log: MemoryLog, end_offset: int) -> int:
    count: int = right(log, end_offset + 4)
    return count


def roll_in_silence(right: Any, log: MemoryLog, base_offset: int) -> None:
    listener = log.listener
    log.listener = type("Deaf", (), {"rolled": lambda self, base_offset: None})()
    right(log, base_offset)
    log.listener = listener


def time_of_the_batch(right: Any, log: MemoryLog, timestamp_ms: int) -> TimestampOffset | None:
    time_offset: TimestampOffset | None = right(log, timestamp_ms)
    if time_offset is None:
        return None
    batch = next(log.batches(time_offset.offset))
    return TimestampOffset(batch.max_timestamp, batch.base_offset, time_offset.leader_epoch)


def newest_is_the_last(right: Any, log: MemoryLog) -> TimestampOffset | None:
    last: TimestampOffset | None = None
    for batch in log.batches(log.log_start_offset):
        last = TimestampOffset(batch.max_timestamp, batch.last_offset, batch.partition_leader_epoch)
    return last


def replay_everything(right: Any, log: MemoryLog, offset: int) -> Iterator[RecordBatch]:
    yield from right(log, 0)


def small_file_grows(right: Any, aux: MemoryAux, name: str, data: bytes) -> None:
    right(aux, name, (aux.read(name) or b"") + data)


def part_from_the_beginning(right: Any, aux: MemoryAux, name: str, position: int, size: int) -> bytes | None:
    part: bytes | None = right(aux, name, 0, size)
    return part


def draft_is_seen(right: Any, aux: MemoryAux, name: str) -> MemoryDraft:
    aux.write(name, b"")
    draft: MemoryDraft = right(aux, name)
    return draft


def chunk_takes_the_place(right: Any, draft: MemoryDraft, data: bytes) -> None:
    draft._chunks.clear()
    right(draft, data)


def aborted_and_goes_on(right: Any, draft: MemoryDraft) -> None:
    pass


def delete_nothing(right: Any, storage: MemoryStorage, partition: TopicPartition) -> None:
    pass


def no_high_watermarks(right: Any, storage: MemoryStorage) -> dict[TopicPartition, int]:
    return {}


# Wrong rounds of compaction


def nothing_compacted(right: Any, log: MemoryLog, request: CompactionRequest) -> Completion[CompactionResult]:
    log_segments = list(log._segments)
    done: Completion[CompactionResult] = right(log, request)
    log._segments = log_segments
    return done


def the_head_is_left(right: Any, log: MemoryLog, request: CompactionRequest) -> Completion[CompactionResult]:
    head = [segment for segment in log._segments if segment.next_offset <= request.first_dirty_offset]
    done: Completion[CompactionResult] = right(log, request)
    if head:
        tail = [s for s in log._segments if s.base_offset >= request.first_dirty_offset]
        log._segments = head + tail
    return done


def tombstones_go_at_once(
    right: Any, log: MemoryLog, request: CompactionRequest
) -> Completion[CompactionResult]:
    right(log, msgspec.structs.replace(request, now_ms=0, delete_retention_ms=0))
    done: Completion[CompactionResult] = right(log, request)
    return done


def tombstones_never_go(
    right: Any, log: MemoryLog, request: CompactionRequest
) -> Completion[CompactionResult]:
    done: Completion[CompactionResult] = right(log, msgspec.structs.replace(request, now_ms=0))
    return done


def the_aborted_count(right: Any, log: MemoryLog, request: CompactionRequest) -> Completion[CompactionResult]:
    done: Completion[CompactionResult] = right(log, msgspec.structs.replace(request, aborted=()))
    return done


def the_active_goes_too(
    right: Any, log: MemoryLog, request: CompactionRequest
) -> Completion[CompactionResult]:
    log.roll()
    done: Completion[CompactionResult] = right(
        log, msgspec.structs.replace(request, end_offset=log.written_end_offset)
    )
    return done


def results_are_invented(
    right: Any, log: MemoryLog, request: CompactionRequest
) -> Completion[CompactionResult]:
    done: Completion[CompactionResult] = right(log, request)
    return Completion.of(msgspec.structs.replace(done.result(), records_kept=1, keys=2, invalid_records=3))


def one_large_segment(right: Any, log: MemoryLog, request: CompactionRequest) -> Completion[CompactionResult]:
    done: Completion[CompactionResult] = right(log, msgspec.structs.replace(request, segment_bytes=1 << 30))
    return done


def cut_and_still_clean(right: Any, log: MemoryLog, offset: int) -> None:
    cleaned = log.cleaned_end_offset
    right(log, offset)
    log.cleaned_end_offset = cleaned


LOG, STORAGE = MemoryLog, MemoryStorage
PLAIN: dict[str, object] = {"codec": Codec.NONE}
CUT: dict[str, object] = {"offset": 3, "end": 3}
TRUNCATION = "test_truncation_drops_whole_batches_from_the_offset_on"
BY_TIME = "test_look_up_by_time_finds_the_record_inside_its_batch"
NEWEST = "test_the_newest_record_of_each_key_stays_where_it_was"
CHUNKS = "test_a_file_that_arrives_in_chunks_is_seen_when_it_is_whole"
CASES: list[tuple[Wrong, str, dict[str, object]]] = [
    ((LOG, "place", place_with_a_gap), "test_offsets_are_contiguous_from_zero", {}),
    ((LOG, "place", place_without_the_epoch), "test_bytes_stay_as_they_came_but_for_offset_and_epoch", PLAIN),
    ((LOG, "place", place_and_show), "test_what_is_placed_is_not_seen_until_it_is_written", {}),
    ((LOG, "write", write_and_tell_twice), "test_a_write_of_nothing_succeeds", {}),
    ((LOG, "read", read_to_the_end), "test_an_end_inside_a_batch_excludes_that_batch", {}),
    ((LOG, "read", read_without_a_limit), "test_the_first_batch_is_whole_if_that_was_asked_for", {}),
    ((LOG, "read", read_only_what_fits), "test_the_first_batch_is_whole_if_that_was_asked_for", {}),
    ((LOG, "read", read_anything), "test_offsets_outside_the_log_are_refused", {}),
    ((LOG, "read", read_below_the_start), "test_offsets_outside_the_log_are_refused", {}),
    ((LOG, "truncate_to", cut_too_little), TRUNCATION, CUT),
    ((LOG, "truncate_to", cut_and_keep_the_placed), TRUNCATION, CUT),
    ((LOG, "truncate_fully", cut_fully_to_zero), "test_a_log_that_is_truncated_fully_starts_where_it_is_told", {}),
    ((LOG, "advance_log_start", start_goes_back), "test_the_log_start_moves_up_only_within_the_log", {}),
    ((LOG, "advance_log_start", start_anywhere), "test_the_log_start_moves_up_only_within_the_log", {}),
    ((LOG, "drop_segments", drop_too_much), "test_old_segments_are_dropped_and_regions_in_flight_live_on", {}),
    ((LOG, "_roll", roll_in_silence), "test_a_roll_seals_the_active_segment", {}),
    ((LOG, "offset_for_time", time_of_the_batch), BY_TIME, PLAIN),
    ((LOG, "max_timestamp", newest_is_the_last), BY_TIME, PLAIN),
    ((LOG, "batches", replay_everything), "test_replay_gives_written_batches_from_the_one_with_the_offset", {}),
    ((MemoryAux, "write", small_file_grows), "test_small_files_beside_the_log", {}),
    ((MemoryAux, "read_at", part_from_the_beginning), CHUNKS, {}),
    ((MemoryAux, "begin", draft_is_seen), CHUNKS, {}),
    ((MemoryDraft, "append", chunk_takes_the_place), CHUNKS, {}),
    ((MemoryDraft, "abort", aborted_and_goes_on), "test_an_aborted_draft_leaves_nothing", {}),
    ((STORAGE, "delete_log", delete_nothing), "test_a_deleted_log_is_gone_and_its_name_is_free", {"closed": True}),
    ((STORAGE, "high_watermarks", no_high_watermarks), "test_high_watermarks_are_remembered", {}),
    ((LOG, "compact", nothing_compacted), NEWEST, PLAIN),
    ((LOG, "compact", results_are_invented), NEWEST, PLAIN),
    ((LOG, "compact", the_active_goes_too), NEWEST, PLAIN),
    ((LOG, "compact", the_head_is_left), "test_the_head_loses_what_the_tail_has_newer", {}),
    ((LOG, "compact", tombstones_go_at_once), "test_tombstones_stay_until_their_horizon", {}),
    ((LOG, "compact", tombstones_never_go), "test_tombstones_stay_until_their_horizon", {}),
    ((LOG, "compact", the_aborted_count), "test_records_of_aborted_transactions_fall_out", {}),
    ((LOG, "compact", one_large_segment), "test_no_segment_is_larger_than_was_asked_for", {}),
    ((LOG, "truncate_to", cut_and_still_clean), "test_a_cut_lowers_the_end_of_what_was_cleaned", {}),
]  # fmt: skip


def plant(monkeypatch: pytest.MonkeyPatch, wrong: Wrong) -> None:
    """Put the wrong method in the place of the right one."""
    where, name, method = wrong
    right = getattr(where, name)
    monkeypatch.setattr(where, name, lambda self, *rest, **named: method(right, self, *rest, **named))


@pytest.mark.parametrize(("wrong", "test", "values"), CASES, ids=[case[0][2].__name__ for case in CASES])
def test_a_wrong_storage_is_caught(
    monkeypatch: pytest.MonkeyPatch, wrong: Wrong, test: str, values: dict[str, Any]
) -> None:
    run_contract_test(OfMemory(), test, **values)  # the right one passes
    plant(monkeypatch, wrong)
    with pytest.raises((AssertionError, LookupError, ValueError, pytest.fail.Exception)):
        run_contract_test(OfMemory(), test, **values)


# Wrong beneath: what a storage believes to have done, and hasn't


def not_synced(right: Any, file: FakeFile) -> None:
    file._step("fdatasync")


def names_not_synced(right: Any, files: FakeFiles, path: str) -> None:
    files.step("sync_dir", path)


def told_at_once(right: Any, storage: LocalStorage, partition: TopicPartition, directory_id: bytes) -> None:
    right(storage, partition, directory_id)
    storage._watcher.moved(partition, directory_id)  # type: ignore[union-attr]


def never_told(right: Any, storage: LocalStorage, watcher: object) -> None:
    pass


def not_saved(right: Any, checkpoints: Checkpoints) -> None:
    pass


# Lies: a storage that wraps storage_local, and answers as if it had done what it was asked


def swap_two_partitions(
    right: Any, storage: LocalStorage, partition: TopicPartition, *rest: Any, **named: Any
) -> Any:
    """After a restart the logs of two partitions of a topic have changed places."""
    other = TopicPartition(partition.topic, 1 - partition.partition)
    partitions = dict(storage.partitions())
    both = partition.topic == "topic" and partitions.get(partition) == partitions.get(other) is not None
    return right(storage, other if both else partition, *rest, **named)


def lose_small_files(ending: str) -> Callable[..., Any]:
    """After a restart the small files with this ending are gone."""

    async def lose(
        right: Any, storage: LocalStorage, partition: TopicPartition, *rest: Any, **named: Any
    ) -> Any:
        has_partition = partition in dict(storage.partitions())
        log = await right(storage, partition, *rest, **named)
        for name in log.aux.names() if has_partition else ():
            if name.endswith(ending):
                log.aux.delete(name)
        return log

    lose.__name__ = f"lose_{ending.strip('.')}"
    return lose


def forget_epochs_at_a_cut(right: Any, log: LocalLog, offset: int) -> None:
    right(log, offset)
    log.aux.delete("leader-epoch-checkpoint")


def look_up_the_next_of_one_in_16(right: Any, log: LocalLog, timestamp_ms: int) -> Any:
    looked_up = right(log, timestamp_ms)
    if looked_up is None:
        return None
    wrong: Completion[TimestampOffset | None] = Completion()

    def answer(done: Completion[TimestampOffset | None]) -> None:
        place = done.result()
        if place is not None and place.offset % 16 == 15:
            place = msgspec.structs.replace(place, offset=place.offset + 1)
        wrong.complete(place)

    looked_up.when_done(answer)
    return wrong


def delete_in_memory_only(right: Any, storage: LocalStorage, partition: TopicPartition) -> None:
    """The directory has its name again, for the next process to find."""
    right(storage, partition)
    files = storage._runtime.files
    for directory in ("/data", "/more"):
        for name in files.list_dir(directory):
            if name.startswith("topic-0.") and name.endswith("-delete"):
                files.rename(f"{directory}/{name}", f"{directory}/topic-0")


def checkpoint_the_marks_before(right: Any, storage: LocalStorage, marks: Any) -> None:
    late = vars(storage).setdefault("marks_before", [{}])
    late.append(dict(marks))
    right(storage, late[-2].items())


def flush_and_tell_at_once(right: Any, log: LocalLog) -> Completion[int]:
    """The sync runs, and nobody waits for it."""
    done: Completion[int] = right(log)
    log.flushed_end_offset = log.written_end_offset
    return done if done.done else Completion.of(log.flushed_end_offset)


def flush_nothing(right: Any, log: LocalLog) -> Completion[int]:
    log.flushed_end_offset = log.written_end_offset
    return Completion.of(log.flushed_end_offset)


def never_cold(right: Any, disk: FakeDisk, *parts: str) -> None:
    """A storage that has all it wrote in memory looks like this: it waits for nothing, and so nothing is tried."""


def write_raises_when_offline(right: Any, log: LocalLog, done: Callable[[WriteOutcome], None]) -> None:
    log.check()
    right(log, done)


def count_what_came_behind_a_cut(right: Any, flusher: Flusher, offset: int) -> None:
    pass


STOP: dict[str, object] = {"end": "stop"}
KILL: dict[str, object] = {"end": "kill"}
PARTITIONS = "test_each_partition_has_its_own_again"
SMALL = "test_small_files_are_as_they_were_written"
MARKS = "test_high_watermarks_are_those_of_the_last_checkpoint"
BY_ANY_TIME = "test_every_record_is_found_by_its_time"
AHEAD = "test_the_flushed_end_is_never_ahead_of_the_sync"
CUT_OFF = "test_a_sync_proves_nothing_of_what_is_written_behind_a_cut"
OFFLINE_WRITE = "test_a_write_in_an_offline_directory_tells_it_in_the_outcome"
STOPPED = "test_everything_is_there_after_a_clean_stop"
LOST_SNAPSHOTS = (LocalStorage, "open_log", lose_small_files(".snapshot"))
LOST_EPOCHS = (LocalStorage, "open_log", lose_small_files("epoch-checkpoint"))
LIES: list[tuple[Wrong, str, dict[str, object]]] = [
    *[((LocalStorage, "open_log", swap_two_partitions), PARTITIONS, how) for how in (STOP, KILL)],
    *[(lie, SMALL, how) for lie in (LOST_SNAPSHOTS, LOST_EPOCHS) for how in (STOP, KILL)],
    *[(lie, STOPPED, {}) for lie in (LOST_SNAPSHOTS, LOST_EPOCHS)],
    ((LocalLog, "truncate_to", forget_epochs_at_a_cut), "test_only_the_broker_changes_small_files", {}),
    ((LocalLog, "offset_for_time", look_up_the_next_of_one_in_16), BY_ANY_TIME, {"end": None}),
    ((LocalStorage, "delete_log", delete_in_memory_only), "test_a_deleted_log_stays_deleted", KILL),
    *[((LocalStorage, "checkpoint", checkpoint_the_marks_before), MARKS, how) for how in (STOP, KILL)],
    ((LocalLog, "flush", flush_and_tell_at_once), AHEAD, {}),
    ((LocalLog, "flush", flush_nothing), AHEAD, {}),
    ((Flusher, "truncated", count_what_came_behind_a_cut), CUT_OFF, {}),
    ((FakeDisk, "chill", never_cold), "test_cold_bytes_are_not_waited_for_on_the_loop", {}),
    ((LocalLog, "write", write_raises_when_offline), OFFLINE_WRITE, {}),
]  # fmt: skip

BENEATH: list[tuple[Wrong, str, dict[str, object]]] = [
    ((FakeFile, "fdatasync", not_synced), "test_a_power_cut_leaves_a_prefix_with_all_that_was_flushed", {}),
    ((FakeFile, "fdatasync", not_synced), "test_no_crash_loses_what_was_promised", {}),
    ((FakeFiles, "sync_dir", names_not_synced), "test_no_crash_loses_what_was_promised", {}),
    ((FakeFiles, "sync_dir", names_not_synced), "test_a_log_made_anew_elsewhere_is_the_only_one", {}),
    ((FakeFiles, "sync_dir", names_not_synced), "test_a_move_outlives_a_crash_at_any_time", {"power_cut": True}),
    ((Checkpoints, "save_cleaner_offsets", not_saved), "test_a_cut_lowers_it_before_anything_is_written_behind", {}),
    ((LocalStorage, "move_log", told_at_once), "test_a_log_moves_while_it_serves", {}),
    ((LocalStorage, "watch", never_told), "test_a_log_moves_while_it_serves", {}),
    ((LocalStorage, "watch", never_told), "test_a_failed_directory_takes_only_its_own_logs", {"how": "sync"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "test", "values"),
    [*BENEATH, *LIES],
    ids=[f"{wrong[2].__name__}: {test}" for wrong, test, _ in [*BENEATH, *LIES]],
)
@pytest.mark.filterwarnings("ignore")
def test_what_a_storage_only_believes_is_caught(
    monkeypatch: pytest.MonkeyPatch, wrong: Wrong, test: str, values: dict[str, Any]
) -> None:
    plant(monkeypatch, wrong)
    with pytest.raises((AssertionError, OSError, ValueError, pytest.fail.Exception)) as caught:
        run_contract_test(OfFiles(), test, **values)
    print(repr(caught.value)[:200])
    del caught
    gc.collect()  # what the broken one left half done warns here, where nobody minds
