"""Bytes that are not in the page cache: a worker brings them, and nobody else waits for a disk meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from blumfeld.log.segments import record_search
from blumfeld.log.segments.record_search import RECORDS_BETWEEN_CHECKS
from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import join, release
from blumfeld.spi.storage import LogRead, OffsetOutOfRangeError, TimestampOffset, TopicPartition
from blumfeld.wire.errors import InvalidRecord
from blumfeld_kit.fakes.files import Fault
from blumfeld_kit.storage_driver.node import TIME_MS, Log, Node
from blumfeld_storage_local.logs import timestamp_search
from blumfeld_storage_local.segments.cold_reads import AHEAD_BYTES, AT_ONCE_MAX, WARM_MS
from blumfeld_storage_local.segments.recent import RECENT_MAX
from blumfeld_storage_local.segments.segment import Segment

FIRST = "/data/topic-0/00000000000000000000.log"
OTHER = TopicPartition("other", 0)


@pytest.fixture(autouse=True)
def _no_region_is_left_open(node: Node) -> Iterator[None]:
    yield
    assert node.runtime.disk.open_regions == 0


@pytest.fixture
def log(node: Node) -> Log:
    """A log with a sealed segment of 20 batches of some 1000 bytes, and an active one."""
    log = node.open(segment_bytes=21_000)
    log.fill(*[1] * 24, value_bytes=1000)
    assert [segment.base_offset for segment in log.log.segments()] == [0, 19]
    return log


def chill(node: Node, path: str = FIRST) -> None:
    """Let the page cache forget a file, and count from now on."""
    node.runtime.disk.chill(path)
    node.runtime.disk.operations.clear()


def counted(node: Node, operation: str) -> int:
    return node.runtime.disk.operations.get(operation, 0)


def ask(log: Log, offset: int, bytes_max: int = 3000) -> LogRead | Completion[LogRead]:
    return log.log.read(offset, bytes_max, log.log.written_end_offset, True)


def later(answer: LogRead | Completion[LogRead]) -> Completion[LogRead]:
    assert isinstance(answer, Completion)
    return answer


def at_once(answer: LogRead | Completion[LogRead]) -> None:
    assert isinstance(answer, LogRead)
    release(answer.parts)


def test_cold_bytes_come_by_a_completion_and_are_the_same(node: Node, log: Log) -> None:
    hot = log.read_raw(2, 3000)
    expected = join(hot.parts)
    release(hot.parts)
    chill(node)
    cold = later(ask(log, 2))
    assert not cold.done
    node.runtime.run_turn()
    assert join(cold.result().parts) == expected
    release(cold.result().parts)


def test_the_end_of_a_log_is_read_without_a_look_at_the_cache(node: Node, log: Log) -> None:
    chill(node, "/data/topic-0")
    at_once(ask(log, 20))
    assert counted(node, "is_cached") == 0


def test_a_cold_read_delays_nobody_else(node: Node, log: Log) -> None:
    """While a slow disk is asked, others append and read; not one byte of the cold file is read on the loop."""
    other = node.open(OTHER)
    chill(node)
    node.runtime.offload_delay_ms = lambda: 5000.0
    cold = later(ask(log, 0))
    other.fill(1, 2)
    log.fill(1)
    at_once(ask(other, 0))
    at_once(ask(log, 24))
    assert (cold.done, other.log.written_end_offset, log.log.written_end_offset) == (False, 3, 25)
    node.runtime.advance(60_000)
    assert node.runtime.disk.cold_reads == 0
    release(cold.result().parts)


def test_who_reads_on_is_cold_once(node: Node) -> None:
    """Two pieces are read ahead of a reader that goes on; it is asked neither to wait nor looked after again."""
    log = node.open()
    log.fill(*[100] * (2 * RECENT_MAX + 1))
    log.fill(*[1] * (3 * AHEAD_BYTES // 10_000), value_bytes=10_000)
    log.log.roll()
    start = 100 * (2 * RECENT_MAX + 1)
    release(log.read_raw(start, 100_000).parts)  # the indexes are here now
    chill(node)
    offset, waited = start, 0
    while offset < log.log.written_end_offset:
        answer = ask(log, offset, 200_000)
        waited += isinstance(answer, Completion)
        log_read = log.node.runtime.run(wait(answer)) if isinstance(answer, Completion) else answer
        node.runtime.run_turn()
        offset += max(log_read.size_bytes // 10_071, 1)
        release(log_read.parts)
    assert waited == 1
    assert counted(node, "read_ahead") >= 3
    assert counted(node, "is_cached") < 5


async def wait(answer: Completion[LogRead]) -> LogRead:
    return await answer


def test_what_was_read_ahead_long_ago_is_looked_at_again(node: Node, log: Log) -> None:
    release(log.read_raw(0, 3000).parts)
    chill(node)
    release(log.read_raw(0, 3000).parts)
    node.runtime.advance(WARM_MS + 1)
    chill(node)
    answer = later(ask(log, 0))
    node.runtime.run_turn()
    release(answer.result().parts)


def test_indexes_are_read_by_a_worker_too(node: Node, log: Log) -> None:
    """A log that was closed cleanly has nothing open: the first read opens its files, and not on the loop."""
    node.stop()
    log = node.restart().open(segment_bytes=21_000)
    node.runtime.offload_delay_ms = lambda: 10.0
    cold = later(ask(log, 2))
    node.runtime.run_turn()
    assert not cold.done
    node.runtime.advance(100)
    release(cold.result().parts)
    at_once(ask(log, 2))


@pytest.mark.parametrize(
    ("meanwhile", "error"),
    [
        pytest.param(lambda log: log.log.close(), OSError, id="the log is closed"),
        pytest.param(
            lambda log: log.log.drop_segments(19), OffsetOutOfRangeError, id="the segment is dropped"
        ),
        pytest.param(
            lambda log: log.node.runtime.disk.inject(Fault(operation="read_ahead", path_part=FIRST)),
            OSError,
            id="the disk fails",
        ),
    ],
)
def test_what_happens_before_a_worker_has_read_fails_the_read(
    node: Node, log: Log, meanwhile: Callable[[Log], object], error: type[Exception]
) -> None:
    chill(node)
    cold = later(ask(log, 2))
    meanwhile(log)
    node.runtime.run_turn()
    assert isinstance(cold.error, error)


def test_a_log_that_is_cut_meanwhile_is_read_as_it_is_then(node: Node, log: Log) -> None:
    chill(node)
    gone, there = later(ask(log, 10)), later(ask(log, 2, 100_000))
    log.log.truncate_to(5)
    node.runtime.run_turn()
    assert isinstance(gone.error, OffsetOutOfRangeError)
    assert there.result().end_offset == 5
    release(there.result().parts)


def test_a_defect_fails_the_read_alone(node: Node, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """An IndexError is a LookupError, but no OFFSET_OUT_OF_RANGE; and the task that reads must not end the node."""

    def defect(self: Segment, position: int, size: int) -> None:
        raise IndexError("index out of range")

    monkeypatch.setattr(Segment, "part", defect)
    chill(node)
    cold = later(ask(log, 2))
    node.runtime.run_turn()
    assert type(cold.error) is IndexError


def at_once_in_workers(node: Node, counted_work: object = None) -> Callable[[], int]:
    """Count from now on; the answer is how many of that work, or of any, ran at once at the most."""
    running = most = 0
    offload = node.runtime.offload

    async def counting(work: object, args: tuple[object, ...]) -> object:
        nonlocal running, most
        increment = int(counted_work in (None, work))
        running, most = running + increment, max(most, running + increment)
        try:
            return await offload(work, *args)  # type: ignore[arg-type]
        finally:
            running -= increment

    node.runtime.offload = lambda work, *args: counting(work, args)  # type: ignore[method-assign, assignment]
    return lambda: most


def test_many_cold_readers_leave_workers_for_syncs(node: Node, log: Log) -> None:
    node.runtime.run_turn()  # what the roll began
    most = at_once_in_workers(node)
    node.runtime.offload_delay_ms = lambda: 10.0
    chill(node)
    node.runtime.disk.watch = lambda operation, path: (
        node.runtime.disk.cold.add(FIRST) if operation == "nop" else None
    )
    cold = [later(ask(log, offset)) for offset in range(10)]
    node.runtime.advance(1000)
    for completion in cold:
        release(completion.result().parts)
    assert most() == AT_ONCE_MAX


# Look-ups by time


def test_a_time_is_looked_up_by_a_worker(node: Node, log: Log) -> None:
    node.runtime.offload_delay_ms = lambda: 10.0
    answer = log.log.offset_for_time(TIME_MS)
    assert isinstance(answer, Completion)
    log.fill(1)
    node.runtime.run_turn()
    assert not answer.done
    node.runtime.advance(100)
    assert answer.result() == TimestampOffset(TIME_MS, 0, 0)


def test_no_worker_is_asked_for_a_time_that_is_known_to_come(node: Node, log: Log) -> None:
    assert log.log.offset_for_time(TIME_MS + 1) is None


@pytest.mark.parametrize("change", ["cut", "dropped"])
def test_a_look_up_in_a_log_that_changes_begins_anew(node: Node, log: Log, change: str) -> None:
    """The worker reads what isn't there any more, or stands elsewhere: no damage, and no error."""
    node.runtime.offload_delay_ms = lambda: 10.0
    answer = log.log.max_timestamp()
    assert isinstance(answer, Completion)
    if change == "cut":
        log.log.truncate_to(3)
        log.fill(1, timestamp_ms=TIME_MS + 5)
        expected = TimestampOffset(TIME_MS + 5, 3, 0)
    else:
        log.log.drop_segments(19)
        node.runtime.advance(61_000)
        expected = TimestampOffset(TIME_MS, 19, 0)
    node.runtime.advance(61_000)
    assert answer.result() == expected


def test_a_look_up_ends_when_its_log_is_closed(node: Node, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four look-ups in a batch of 2.5 kB held a stop up for more than a minute."""
    walked = 0

    def endless(*_: object) -> Iterator[tuple[int, int]]:
        nonlocal walked
        while walked < 10 * RECORDS_BETWEEN_CHECKS:
            walked += 1
            if walked == RECORDS_BETWEEN_CHECKS:
                log.log.close()
            yield TIME_MS - 1, 0

    monkeypatch.setattr(record_search, "times", endless)
    answer = log.log.offset_for_time(TIME_MS)
    assert isinstance(answer, Completion)
    node.runtime.run_turn()
    assert isinstance(answer.error, OSError)
    assert walked == RECORDS_BETWEEN_CHECKS + 1


def test_look_ups_search_one_after_the_other(node: Node, log: Log) -> None:
    """A batch of 9 kB may take seconds to search. Four at once held producers up for 624 ms, and kept syncs waiting."""
    most = at_once_in_workers(node, timestamp_search.first_at_or_after)
    node.runtime.offload_delay_ms = lambda: 10.0
    answers = [log.log.offset_for_time(TIME_MS) for _ in range(4)]
    node.runtime.advance(1000)
    for answer in answers:
        assert isinstance(answer, Completion)
        assert answer.result() == TimestampOffset(TIME_MS, 0, 0)
    assert most() == 1


def test_a_look_up_in_a_closed_log_fails(node: Node, log: Log) -> None:
    answer = log.log.max_timestamp()
    assert isinstance(answer, Completion)
    log.log.close()
    node.runtime.run_turn()
    assert answer.done
    assert answer.error is None or isinstance(answer.error, OSError | InvalidRecord)
