"""Compaction of a log in its directory: the swap, crashes and faults at every step, what else happens meanwhile."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from blumfeld.kernel.real_files import RealFiles
from blumfeld.log import cleaning
from blumfeld.log.file_names import Mark, Suffix, parse_segment_name, segment_name
from blumfeld.spi.compaction import CompactionAbandonedError, CompactionResult
from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import join, release
from blumfeld.spi.runtime import Random
from blumfeld.spi.storage import LogStorage
from blumfeld.testing.crash.machine import READS
from blumfeld.testing.fake_files import Fault
from blumfeld.testing.fake_power import Adversary, Chance, FileFate, NoChance, PowerCut
from blumfeld.testing.fake_runtime import FakeRuntime
from blumfeld.testing.storage_node import PARTITION, TIME_MS, Log, Node, make_batch
from blumfeld.wire.batch_builder import build_batch
from blumfeld.wire.record_batch import RecordBatch
from blumfeld.wire.records import Record
from blumfeld_storage_local.compaction.swap_plan import SWAP_PLAN, SwapPlan
from blumfeld_storage_local.start.opening import tidy
from blumfeld_storage_local.storage import LocalStorage
from tests.plugins.plain_cleaner import clean
from tests.plugins.test_storage_local import Events

DIRECTORY = f"/data/{PARTITION}"
GROUP_BYTES = 900
"""Such that a round makes some segments out of more."""


def make_storage(runtime: FakeRuntime) -> LogStorage:
    return LocalStorage(runtime, "/data", Events())


def make_runtime(previous: FakeRuntime | None) -> FakeRuntime:
    return FakeRuntime(1) if previous is None else FakeRuntime(2, disk=previous.disk)


@pytest.fixture(autouse=True)
def _plain_cleaner(monkeypatch: pytest.MonkeyPatch) -> None:
    """What falls out is not what is tested here; whole batches are enough."""
    monkeypatch.setattr(cleaning, "clean", clean)


def keyed(key: int, version: int) -> RecordBatch:
    record = Record(b"%d" % key, b"%d" % version * 40, timestamp=TIME_MS + version)
    return RecordBatch(memoryview(build_batch([record])))


KEYS = ([0, 1, 2, 3], [1, 0], [4, 5, 1], [4, 6], [0, 2, 1, 5])
"""Of each segment; the last one is active."""


def opened(node: Node, **config: Any) -> Log:
    return node.open(cleanup_policy="compact", index_interval_bytes=100, **config)


def filled(node: Node | None = None) -> Log:
    """A log of four sealed segments and an active one, all flushed."""
    log = opened(node or Node(make_runtime, make_storage).start())
    version = 0
    for at, keys in enumerate(KEYS):
        if at:
            log.log.roll()
        for key in keys:
            version += 1
            assert log.append(keyed(key, version)).error is None
    log.flush()
    return log


AFTER = [(n, n + 1) for n in (2, 3, 5, 7, 8, 9, 10, 11, 12, 13, 14)]
"""What is left: the newest below the active segment, and all of that."""


@pytest.fixture
def log() -> Log:
    return filled()


def start_round(log: Log, **asked: Any) -> Completion[CompactionResult]:
    return log.log.compact(log.compaction(segment_bytes=GROUP_BYTES, **asked))


def finish(log: Log, done: Completion[CompactionResult]) -> CompactionResult:
    async def wait() -> CompactionResult:
        return await done

    return log.node.runtime.run(wait())


def names(log: Log) -> list[str]:
    return log.node.runtime.files.list_dir(DIRECTORY)


def leftovers(found: list[str]) -> list[str]:
    return [n for n in found if n == SWAP_PLAN or ((file := parse_segment_name(n)) is not None and file.mark)]


# The round


def test_only_the_newest_of_each_key_is_left_below_the_active_segment(log: Log) -> None:
    result = finish(log, start_round(log))
    assert log.spans() == AFTER
    assert result.cleaned_end_offset == log.log.cleaned_end_offset == 11
    assert [info.base_offset for info in log.log.segments()] == [0, 6, 11]
    assert [info.next_offset for info in log.log.segments()] == [6, 11, 15]
    assert log.log.size_bytes() == sum(len(batch.data) for batch in log.read_all())


def test_it_is_there_after_a_restart_and_nothing_else(log: Log) -> None:
    finish(log, start_round(log))
    log.node.runtime.advance(70_000)
    found = names(log)
    assert leftovers(found) == []
    node = log.node.crash(power_cut=False)
    again = opened(node)
    assert again.spans() == AFTER
    node.stop()
    assert leftovers(names(again)) == []


def test_how_far_it_is_clean_outlives_a_restart(log: Log) -> None:
    finish(log, start_round(log))
    log.node.stop()
    log.node.runtime.disk.kill()
    again = opened(log.node.restart())
    assert again.log.cleaned_end_offset == 11
    again.log.truncate_to(7)
    assert again.log.cleaned_end_offset == 7
    again.node.runtime.run_turn()


def test_reads_across_what_fell_out_go_on_behind_it(log: Log) -> None:
    finish(log, start_round(log))
    for offset in range(15):
        expected = [span for span in AFTER if span[1] > offset]
        assert log.spans(offset) == expected
        assert [(b.base_offset, b.next_offset) for b in log.log.batches(offset)] == expected


def test_offsets_that_fell_out_before_an_empty_active_segment_read_as_nothing() -> None:
    """The end of a segment is gone, and the active one is empty: there is nothing to read, and no error."""
    node = Node(make_runtime, make_storage).start()
    log = opened(node)
    for key in (1, 2):
        log.append(keyed(key, 1))
        log.log.roll()
    for key in (3, 2):
        log.append(keyed(key, 1))
    log.log.roll()
    assert finish(log, start_round(log)).segments_after == 1
    assert log.spans() == [(0, 1), (2, 3), (3, 4)]
    assert log.read(4) == []
    assert log.read(1) != []


def test_the_indexes_find_what_they_found(log: Log) -> None:
    finish(log, start_round(log))
    log.node.runtime.advance(70_000)
    for info in log.log.segments()[:-1]:
        for path in info.files:
            assert log.node.runtime.files.exists(path)
    found = log.time(TIME_MS + 5)
    assert found is not None
    assert found.offset == 5


def test_the_time_of_change_stays_that_of_the_newest_source(log: Log) -> None:
    files = log.node.runtime.files
    files.set_modified_ms(f"{DIRECTORY}/{segment_name(4)}", 1_234_000)
    finish(log, start_round(log))
    assert log.log.segments()[0].modified_ms == 1_234_000


def test_a_second_round_goes_over_what_the_first_left(log: Log) -> None:
    finish(log, start_round(log))
    log.log.roll()
    finish(log, start_round(log))
    assert log.spans() == [(n, n + 1) for n in (3, 9, 10, 11, 12, 13, 14)]


def test_a_log_without_sealed_segments_has_nothing_to_compact() -> None:
    log = opened(Node(make_runtime, make_storage).start())
    log.append(keyed(1, 1))
    assert finish(log, start_round(log)).segments_before == 0


def test_only_one_round_at_a_time(log: Log) -> None:
    done = start_round(log)
    with pytest.raises(ValueError, match="is being compacted"):
        start_round(log)
    finish(log, done)


def test_a_round_is_throttled(log: Log) -> None:
    """Some 1600 bytes are read and written, at 100 a second."""
    runtime = log.node.runtime
    began = runtime.monotonic_ms()
    result = finish(log, start_round(log, bytes_per_second_max=100.0))
    assert 10_000 < runtime.monotonic_ms() - began < 30_000
    assert result.seconds < 1.0, "waiting is no work"


def test_appends_and_reads_go_on_meanwhile(log: Log) -> None:
    done = start_round(log, bytes_per_second_max=100.0)
    log.node.runtime.advance(1000)
    before = log.spans()
    log.append(keyed(7, 100))
    log.log.roll()
    log.append(keyed(7, 101))
    assert log.spans() == [*before, (15, 16), (16, 17)]
    finish(log, done)
    assert log.spans() == [*AFTER, (15, 16), (16, 17)]


def test_regions_and_readers_of_the_old_segments_live_on() -> None:
    node = Node(make_runtime, make_storage).start()
    log = opened(node)
    for key in (1, 1, 2):
        log.append(make_batch(1, value_bytes=20_000, seed=key))
        log.log.roll()
    held = log.read_raw(0, 30_000)
    reader = log.log.batches(0)
    assert next(reader).base_offset == 0
    expected = bytes(join(held.parts))
    finish(log, start_round(log))
    node.runtime.advance(70_000)
    assert bytes(join(held.parts)) == expected
    release(held.parts)
    assert [batch.base_offset for batch in reader] == [2]


# What else happens meanwhile


def at_every_turn(log_of: Callable[[], Log]) -> Iterator[tuple[Log, Completion[CompactionResult]]]:
    """A log in the middle of a round, once for each turn of the loop that the round takes."""
    turns = 0
    while True:
        log = log_of()
        done = start_round(log)
        for _ in range(turns):
            log.node.runtime.run(asyncio.sleep(0))
        if done.done:
            return
        yield log, done
        turns += 1


def abandoned_or_done(log: Log, done: Completion[CompactionResult]) -> bool:
    """Let it end; whether it was abandoned."""
    try:
        finish(log, done)
    except CompactionAbandonedError:
        return True
    return False


def test_a_truncation_at_any_moment_leaves_nothing_of_what_was_cut() -> None:
    """Before the swap the round comes to nothing; from then on it is finished first."""
    outcomes = []
    for log, done in at_every_turn(filled):
        log.log.truncate_to(5)
        log.append(keyed(9, 1))
        outcomes.append(abandoned_or_done(log, done))
        compacted, plain = [(2, 3), (3, 4)], [(n, n + 1) for n in range(5)]
        expected = [*(plain if outcomes[-1] else compacted), (5, 6)]
        assert log.spans() == expected
        assert log.log.cleaned_end_offset == (0 if outcomes[-1] else 5)
        log.flush()
        again = opened(log.node.crash(luck=Adversary.LOSE))
        assert again.spans() == expected
        assert leftovers(names(again)) == []
    assert len(outcomes) > 10
    assert outcomes == sorted(outcomes, reverse=True), "abandoned first, then not any more"
    assert outcomes.count(False) > 1


def test_a_truncation_behind_the_round_does_not_disturb_it(log: Log) -> None:
    done = start_round(log)
    log.node.runtime.run(asyncio.sleep(0))
    log.log.truncate_to(13)
    finish(log, done)
    assert log.spans() == AFTER[:-2]


def test_a_log_may_be_closed_and_opened_again_at_any_moment() -> None:
    for log, done in at_every_turn(filled):
        before = log.spans()
        log.log.close()
        log = opened(log.node)
        abandoned = abandoned_or_done(log, done)
        assert log.spans() == before or not abandoned
        assert log.spans() in (before, AFTER)
        finish(log, start_round(log))
        assert log.spans() == AFTER
        log.node.stop()
        assert [name for name in leftovers(names(log)) if not name.endswith(Mark.DELETED.value)] == []


def test_a_log_may_be_deleted_at_any_moment() -> None:
    for log, done in at_every_turn(filled):
        log.node.storage.delete_log(PARTITION)
        abandoned_or_done(log, done)
        log.node.runtime.advance(70_000)
        assert not log.node.runtime.files.exists(DIRECTORY)
        assert log.node.storage.log_dirs()[0].online


def test_retention_at_any_moment_wins() -> None:
    for log, done in at_every_turn(filled):
        bases = [info.base_offset for info in log.log.segments()]
        log.log.advance_log_start(6)
        log.log.drop_segments(6)
        abandoned_or_done(log, done)
        assert log.spans(7)[:2] == [(7, 8), (8, 9)]
        assert log.log.segments()[0].base_offset == 6, bases
        log.flush()
        again = opened(log.node.crash(luck=Adversary.LOSE))
        assert again.spans(7)[:2] == [(7, 8), (8, 9)]


@pytest.mark.parametrize("seed", range(8))
def test_rounds_among_everything_else(seed: int) -> None:
    """Appends, rolls, flushes, cold reads, look-ups by time and truncations, while off-loop work takes its time."""
    chance = random.Random(seed)
    node = Node(make_runtime, make_storage).start()
    log = opened(node, file_delete_delay_ms=20)
    runtime = node.runtime
    runtime.offload_delay_ms = lambda: chance.choice((0.0, 0.0, 1.0, 7.0))
    written: dict[int, int] = {}
    rounds: list[Completion[CompactionResult]] = []
    others: list[Completion[Any]] = []
    for version in range(300):
        what = chance.random()
        if what < 0.5:
            key = chance.randrange(8)
            written[log.log.placed_end_offset] = key
            assert log.append(keyed(key, version)).error is None
        elif what < 0.65:
            log.log.roll()
        elif what < 0.7:
            others.append(log.log.flush())
        elif what < 0.73 and log.log.written_end_offset > 3:
            end = log.log.written_end_offset - chance.randrange(1, 4)
            log.log.truncate_to(end)
            written = {offset: key for offset, key in written.items() if offset < log.log.written_end_offset}
        elif what < 0.8:
            runtime.disk.cold.add(f"{chance.randrange(10)}.log")
            looked_up = log.log.offset_for_time(TIME_MS + chance.randrange(version + 1))
            if isinstance(looked_up, Completion):
                others.append(looked_up)
        elif what < 0.9 and (not rounds or rounds[-1].done):
            rounds.append(start_round(log))
        else:
            found = log.spans(chance.randrange(log.log.written_end_offset + 1))
            assert found == sorted(found)
        runtime.advance(chance.choice((0, 0, 1, 5)))
    runtime.advance(1000)
    finish(log, start_round(log))
    errors = [done.error for done in [*rounds, *others] if done.error is not None]
    assert all(isinstance(error, (CompactionAbandonedError, LookupError)) for error in errors), errors
    left = [base for base, _ in log.spans()]
    base = log.log.segments()[-1].base_offset
    newest = {written[offset]: offset for offset in sorted(written) if offset < base}
    assert left == sorted({*newest.values(), *(offset for offset in written if offset >= base)})
    assert sum(not isinstance(done.error, CompactionAbandonedError) for done in rounds) > 3
    assert node.storage.log_dirs()[0].online
    runtime.advance(1000)
    assert leftovers(names(log)) == []
    node.stop()


# Crashes


class AllBut:
    """A power cut that takes one change of a directory's names, and no other."""

    def __init__(self, lost: int) -> None:
        self._lost = lost
        self.random: Random = NoChance()

    def names(self, changes: int) -> list[int]:
        return [number for number in range(changes) if number != self._lost]

    def file(self, changes: int) -> FileFate:
        return FileFate(range(changes), changes)


def crashes() -> Iterator[tuple[str, Callable[[FakeRuntime], None]]]:
    cuts: list[tuple[str, PowerCut | None]] = [("kill", None), *((a.name, a) for a in Adversary)]
    cuts += [(f"chance {seed}", Chance(random.Random(seed))) for seed in range(2)]
    cuts += [(f"all but {number}", AllBut(number)) for number in range(3)]
    for name, cut in cuts:
        yield (
            name,
            lambda runtime, cut=cut: runtime.crash(power_cut=cut is not None, luck=cut),  # type: ignore[misc]
        )


def changing_operations() -> list[int]:
    """Numbers of a round's file operations that change something: before a read all is as after the last of them."""
    log = filled()
    operations: list[str] = []

    def count(operation: str, path: str) -> None:
        operations.append(operation)

    request = log.compaction(segment_bytes=GROUP_BYTES)
    log.node.runtime.disk.watch = count
    finish(log, log.log.compact(request))
    log.node.runtime.advance(70_000)
    return [number for number, operation in enumerate(operations, start=1) if operation not in READS]


@pytest.mark.parametrize("crash", [pytest.param(crash, id=name) for name, crash in crashes()])
def test_a_crash_before_any_file_operation_leaves_the_log_as_before_or_after(
    crash: Callable[[FakeRuntime], None],
) -> None:
    """The ``.deleted`` files' removal included. What a start makes of it, a second one leaves as it is."""
    before = filled().spans()
    seen = set()
    for number in changing_operations():
        log = filled()
        die_before(log, number, crash)
        found = opened(log.node.restart())
        spans = found.spans()
        assert spans in (before, AFTER), f"before operation {number}"
        seen.add(spans == AFTER)
        assert leftovers(names(found)) == []
        assert found.log.cleaned_end_offset in (0, 11)
        assert spans == AFTER or found.log.cleaned_end_offset == 0
        if number % 5 == 0:
            again = opened(found.node.crash(luck=Adversary.LOSE))
            assert again.spans() == spans
            finish(again, start_round(again))
            assert again.spans() == AFTER
    assert seen == {False, True}


def die_before(log: Log, number: int, crash: Callable[[FakeRuntime], None]) -> None:
    """Begin a round, and crash before its ``number``-th file operation."""
    runtime, left = log.node.runtime, number

    def watch(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            crash(runtime)

    request = log.compaction(segment_bytes=GROUP_BYTES)
    runtime.disk.watch = watch
    with suppress(OSError):
        log.log.compact(request)
        runtime.advance(70_000)
    assert runtime.dead
    runtime.disk.watch = None


@pytest.mark.parametrize("happened", [True, False])
@pytest.mark.parametrize("cut", [None, *Adversary, *map(AllBut, range(6))], ids=str)
def test_a_crash_while_a_start_ends_a_swap_is_ended_by_the_next(happened: bool, cut: PowerCut | None) -> None:
    """Of two crashes one behind the other, whatever the power takes in the second."""
    expected = AFTER if happened else [(n, n + 1) for n in range(15)]
    for number in range(1, 60):
        log = filled()
        stop_at_the_swap(log, happened)
        runtime, left = make_runtime(log.node.runtime), number

        def watch(operation: str, path: str, runtime: FakeRuntime = runtime) -> None:
            nonlocal left
            left -= operation not in READS
            if left == 0 and not runtime.dead:
                runtime.crash(power_cut=cut is not None, luck=cut)

        runtime.disk.watch = watch
        with suppress(OSError):
            tidy(runtime.files, DIRECTORY)
        runtime.disk.watch = None
        log.node.runtime = runtime
        assert opened(log.node.restart()).spans() == expected, number
        if not runtime.dead or left > 0:
            return


def stop_at_the_swap(log: Log, happened: bool) -> None:
    """Kill the node when the swap has happened, and nothing of it is finished; or right before it happens."""
    runtime = log.node.runtime
    if happened:
        last = segment_name(4)
    else:
        last = segment_name(0, mark=Mark.CLEANED)

    def watch(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith(f"/{last}"):
            runtime.crash(power_cut=False)

    runtime.disk.watch = watch
    start_round(log)
    runtime.advance(1)
    assert runtime.dead
    runtime.disk.watch = None


# Faults


def is_as_before(log: Log) -> bool:
    return len(log.spans()) == 15 and log.log.cleaned_end_offset == 0


@pytest.mark.parametrize("operation", ["open", "pwritev", "fdatasync"])
def test_a_fault_in_the_worker_leaves_the_log_as_it_was(log: Log, operation: str) -> None:
    full = Fault(operation=operation, error_number=errno.ENOSPC, path_part=".cleaned", nth=2)
    log.node.runtime.disk.inject(full)
    with pytest.raises(OSError, match="not compacted") as raised:
        finish(log, start_round(log))
    assert raised.value.errno == errno.ENOSPC
    assert is_as_before(log)
    assert leftovers(names(log)) == []
    assert log.node.storage.log_dirs()[0].online
    finish(log, start_round(log))
    assert log.spans() == AFTER


def test_a_short_write_in_the_worker_is_written_on(log: Log) -> None:
    log.node.runtime.disk.inject(Fault(operation="pwritev", path_part=".log.cleaned", short_bytes=10))
    finish(log, start_round(log))
    assert log.spans() == AFTER


def test_a_nearly_full_disk_is_left_to_those_who_append(log: Log) -> None:
    log.node.runtime.disk.usable_bytes = 1 << 20
    with pytest.raises(OSError, match="too little space") as raised:
        finish(log, start_round(log))
    assert raised.value.errno == errno.ENOSPC
    assert is_as_before(log)


def test_a_segment_that_cannot_be_read_leaves_the_log_as_it_was(log: Log) -> None:
    log.node.runtime.disk.inject(Fault(operation="pread", path_part=segment_name(4)))
    with pytest.raises(OSError, match="not compacted"):
        finish(log, start_round(log))
    assert is_as_before(log)


def test_a_failed_rename_before_the_swap_changes_nothing(log: Log) -> None:
    log.node.runtime.disk.inject(Fault(operation="rename", path_part=Mark.CLEANED.value, nth=3))
    with pytest.raises(OSError, match="not compacted"):
        finish(log, start_round(log))
    assert is_as_before(log)
    assert leftovers([n for n in names(log) if n != SWAP_PLAN]) == []
    finish(log, start_round(log))
    assert log.spans() == AFTER


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_failed_sync_of_names_takes_the_directory_offline(log: Log, nth: int) -> None:
    log.node.runtime.disk.inject(Fault(operation="sync_dir", path_part=DIRECTORY, nth=nth))
    with pytest.raises(OSError, match=r"offline|Input/output"):
        finish(log, start_round(log))
    assert not log.node.storage.log_dirs()[0].online
    log.node.runtime.disk.heal()
    spans = opened(log.node.crash(luck=Adversary.LOSE)).spans()
    assert spans in ([(n, n + 1) for n in range(15)], AFTER)


# A start's rules


def files_with(*file_names: str) -> RealFiles:
    """A simulated directory with these files."""
    runtime = FakeRuntime(1)
    runtime.files.make_dirs(DIRECTORY)
    for name in file_names:
        data = b""
        if ".log" in name:
            base = int(name.partition(".")[0])
            data = bytes(make_batch(2 if Mark.SWAP.value in name else 1, base_offset=base).data)
        file = runtime.files.open(f"{DIRECTORY}/{name}", create=True)
        file.pwritev([data], 0)
        file.close()
    return runtime.files  # type: ignore[return-value]


def test_a_start_does_as_kafka_does_with_what_kafka_left() -> None:
    """``.deleted`` and ``.cleaned`` go; a ``.swap`` replaces what it covers."""
    files = files_with(
        segment_name(0, mark=Mark.SWAP),
        segment_name(0, Suffix.OFFSET_INDEX, Mark.SWAP),
        segment_name(0),
        segment_name(1),
        segment_name(1, Suffix.TIME_INDEX),
        segment_name(2),
        segment_name(5, mark=Mark.DELETED),
    )
    assert tidy(files, DIRECTORY).bases == [0, 2]
    assert files.list_dir(DIRECTORY) == [
        segment_name(0, Suffix.OFFSET_INDEX),
        segment_name(0),
        segment_name(2),
    ]


def test_a_swap_from_the_lowest_cleaned_file_on_was_not_all_written() -> None:
    files = files_with(
        segment_name(0),
        segment_name(1),
        segment_name(2),
        segment_name(1, mark=Mark.CLEANED),
        segment_name(2, mark=Mark.SWAP),
        segment_name(0, mark=Mark.SWAP),
    )
    assert tidy(files, DIRECTORY).bases == [0, 2]
    assert files.list_dir(DIRECTORY) == [segment_name(0), segment_name(2)]


def test_a_segment_whose_records_all_fell_out_does_not_come_back() -> None:
    """Its offsets are in no ``.swap`` file: only the plan knows that it was replaced."""
    kept = (segment_name(0, mark=Mark.SWAP), segment_name(0), segment_name(7), segment_name(9))
    assert tidy(files_with(*kept), DIRECTORY).bases == [0, 7, 9]
    files = files_with(*kept)
    files.write_atomically(f"{DIRECTORY}/{SWAP_PLAN}", SwapPlan((0,), (segment_name(7),)).encode())
    assert tidy(files, DIRECTORY).bases == [0, 9]
    assert leftovers(files.list_dir(DIRECTORY)) == []


def test_a_plan_that_speaks_of_another_swap_says_nothing() -> None:
    for plan in (SwapPlan((3,), (segment_name(1),)).encode(), b"{", b'{"targets":[],"gone":[]}'):
        files = files_with(segment_name(0, mark=Mark.SWAP), segment_name(0), segment_name(1), segment_name(4))
        files.write_atomically(f"{DIRECTORY}/{SWAP_PLAN}", plan)
        assert tidy(files, DIRECTORY).bases == [0, 4]
    files = files_with(segment_name(0), segment_name(1))
    files.write_atomically(f"{DIRECTORY}/{SWAP_PLAN}", SwapPlan((0,), (segment_name(1),)).encode())
    assert tidy(files, DIRECTORY).bases == [0, 1]
