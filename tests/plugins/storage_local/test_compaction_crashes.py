"""Compaction of a log in its directory: crashes and faults at every step, and what a start makes of a swap."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.log.segments.file_names import Mark, Suffix, segment_name
from blumfeld.spi.runtime import Random
from blumfeld_kit.crash.machine import READS
from blumfeld_kit.fakes.files import Fault
from blumfeld_kit.fakes.power import Adversary, Chance, FileFate, NoChance, PowerCut
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.storage_driver.node import Log, make_batch
from blumfeld_storage_local.compaction.swap_plan import SWAP_PLAN, SwapPlan
from blumfeld_storage_local.logs.leftovers import tidy
from tests.plugins.storage_local.compaction_tools import (
    AFTER,
    DIRECTORY,
    GROUP_BYTES,
    filled,
    finish,
    leftovers,
    names,
    opened,
    start_round,
)
from tests.plugins.storage_local.local_node import make_runtime


@pytest.fixture
def log() -> Log:
    return filled()


# Crashes


class AllBut:
    """A power cut that takes one change of a directory's names, and no other."""

    def __init__(self, lost: int) -> None:
        self._lost = lost
        self.random: Random = NoChance()

    def __str__(self) -> str:
        return f"all but {self._lost}"

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


def unless(everyday: bool) -> tuple[pytest.MarkDecorator, ...]:
    """The marks of a case that is tried every day, or of any other."""
    return () if everyday else (pytest.mark.slow,)


EVERY_DAY = ("kill", Adversary.LOSE.name, Adversary.KEEP.name, "all but 1")
"""A power cut takes all, nothing, or one of the names in the middle."""


@pytest.mark.parametrize(
    "crash",
    [pytest.param(crash, id=name, marks=unless(name in EVERY_DAY)) for name, crash in crashes()],
)
def test_a_crash_before_any_file_operation_leaves_the_log_as_before_or_after(
    crash: Callable[[FakeRuntime], None],
) -> None:
    """The ``.deleted`` files' removal included. What a start makes of it, a second one leaves as it is."""
    before = filled().spans()
    seen = set()
    for number in changing_operations():
        log = filled()
        die_before(log, number, crash)
        reopened_log = opened(log.node.restart())
        spans = reopened_log.spans()
        assert spans in (before, AFTER), f"before operation {number}"
        seen.add(spans == AFTER)
        assert leftovers(names(reopened_log)) == []
        assert reopened_log.log.cleaned_end_offset in (0, 11)
        assert spans == AFTER or reopened_log.log.cleaned_end_offset == 0
        if number % 5 == 0:
            again = opened(reopened_log.node.crash(luck=Adversary.LOSE))
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
@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(
            cut, marks=unless(cut in (None, Adversary.LOSE, Adversary.KEEP) or str(cut) == "all but 1")
        )
        for cut in (None, *Adversary, *map(AllBut, range(6)))
    ],
    ids=str,
)
def test_a_crash_while_a_start_ends_a_swap_is_ended_by_the_next(happened: bool, cut: PowerCut | None) -> None:
    """There are two crashes; any unsynced write may be lost in the second."""
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


FULL = errno.ENOSPC


@pytest.mark.parametrize(
    "fault",
    [
        Fault(operation="open", error_number=FULL, path_part=".cleaned", nth=2),
        Fault(operation="pwritev", error_number=FULL, path_part=".cleaned", nth=2),
        Fault(operation="fdatasync", error_number=FULL, path_part=".cleaned", nth=2),
        Fault(operation="pread", error_number=errno.EIO, path_part=segment_name(4)),
        Fault(operation="rename", error_number=errno.EIO, path_part=Mark.CLEANED.value, nth=3),
        None,
    ],
    ids=["open", "write", "sync", "a segment's bytes", "a rename before the swap", "nearly full"],
)
def test_a_fault_before_the_swap_leaves_the_log_as_it_was(log: Log, fault: Fault | None) -> None:
    disk = log.node.runtime.disk
    if fault is None:
        disk.usable_bytes = 1 << 20  # the cleaner leaves this room to appends
    else:
        disk.inject(fault)
    with pytest.raises(OSError, match=r"not compacted|too little space") as raised:
        finish(log, start_round(log))
    assert raised.value.errno == (FULL if fault is None else fault.error_number)
    assert is_as_before(log)
    assert leftovers([name for name in names(log) if name != SWAP_PLAN]) == []
    assert log.node.storage.log_dirs()[0].online
    disk.usable_bytes = 1 << 40
    finish(log, start_round(log))
    assert log.spans() == AFTER


def test_a_short_write_in_the_worker_is_written_on(log: Log) -> None:
    log.node.runtime.disk.inject(Fault(operation="pwritev", path_part=".log.cleaned", short_bytes=10))
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


def test_a_full_disk_for_the_checkpoint_costs_the_round_nothing(log: Log) -> None:
    """The swap has happened: what is clean is put down with the next checkpoint."""
    disk = log.node.runtime.disk
    disk.inject(
        Fault(
            operation="write_atomically", path_part="offset-checkpoint", error_number=errno.ENOSPC, times=-1
        )
    )
    log.node.storage.checkpoint([])  # recovery points wait for room from now on
    log.node.runtime.run_turn()
    finish(log, start_round(log))
    assert [directory.online for directory in log.node.storage.log_dirs()] == [True]
    assert log.spans() == AFTER
    assert leftovers(names(log)) == [n for n in names(log) if n.endswith(".deleted")]
    disk.heal()
    log.node.storage.checkpoint([])
    log.node.runtime.run_turn()
    log.node.crash(power_cut=False)
    assert opened(log.node).log.cleaned_end_offset == log.log.cleaned_end_offset > 0
