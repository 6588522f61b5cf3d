"""A full disk takes no log directory offline: what was to be done there is done again once there is room."""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import Any

import pytest

from blumfeld.log.segments.file_names import Suffix, segment_name
from blumfeld.log.segments.index import TimeIndex
from blumfeld_kit.crash.machine import READS
from blumfeld_kit.fakes.files import Fault
from blumfeld_kit.storage_driver.node import PARTITION, TIME_MS, Log, Node, make_batch
from tests.plugins.storage_local.local_node import new_node

SMALL: Any = {"index_interval_bytes": 1}


def index_path(base_offset: int = 0) -> str:
    return f"/data/{PARTITION}/{segment_name(base_offset, Suffix.TIME_INDEX)}"


def is_online(node: Node) -> bool:
    return all(directory.online for directory in node.storage.log_dirs())


def written(node: Node, count: int = 10) -> Log:
    log = node.open(**SMALL)
    for number in range(count):
        log.append(make_batch(1, timestamp_ms=TIME_MS + number))
    return log


def times(log: Log) -> list[int | None]:
    return [None if (place := log.time(TIME_MS + at)) is None else place.offset for at in range(12)]


def test_a_log_that_is_closed_on_a_full_disk_is_opened_again() -> None:
    node = new_node()
    log = written(node)
    node.runtime.disk.room = 0
    log.log.close()
    assert is_online(node)
    node.runtime.disk.room = None
    log = node.open(**SMALL)
    assert log.spans() == [(at, at + 1) for at in range(10)]
    assert times(log) == [*range(10), None, None]
    log.fill(1)
    node.stop()
    node.restart()
    assert node.storage.previous_broker_epoch() == 3, "the stop is in order"


@pytest.mark.parametrize("room", [0, 10, 30, 100])
def test_a_log_opens_on_a_full_disk_that_takes_no_index(room: int) -> None:
    """What fits of an index is not left behind: a later start would take it for the whole."""
    node = new_node()
    written(node)
    node.runtime.disk.room = room
    node.crash(power_cut=False)
    log = node.open(**SMALL)
    assert times(log) == [*range(10), None, None]
    assert isinstance(log.append(make_batch(1, value_bytes=200)).error, OSError)
    node.runtime.disk.room = None
    log.append(make_batch(1, timestamp_ms=TIME_MS + 10))
    log.roll()
    node.stop()
    index = TimeIndex(0, memoryview(bytes(node.runtime.disk.tree.file(index_path()).read(1000, 0))))
    assert [index.entry(at).timestamp_ms for at in range(len(index))][-2:] == [TIME_MS + 9, TIME_MS + 10]
    assert index.entry(0).timestamp_ms >= TIME_MS
    log = node.restart().open(**SMALL)
    assert times(log) == [*range(11), None]
    assert node.listener.recoveries == []


def test_an_index_that_is_rebuilt_for_a_reader_needs_no_room() -> None:
    node = new_node()
    log = written(node)
    log.roll()
    log.fill(1)
    node.stop()
    disk = node.runtime.disk
    node.restart()
    disk.tree.file(index_path()).truncate(0)
    log = node.open(**SMALL)
    disk.room = 5
    assert [batch.base_offset for batch in log.read(5, 1)] == [5]
    assert times(log) == [*range(10), None, None]
    assert is_online(node)
    assert disk.tree.find(index_path()) is None
    log.flush()
    assert is_online(node)


def test_a_stop_on_a_full_disk_is_in_order_and_the_next_start_recovers() -> None:
    node = new_node()
    log = written(node)
    node.runtime.disk.room = 0
    node.stop()
    node.runtime.disk.room = None
    node.restart()
    assert node.storage.previous_broker_epoch() == -1
    log = node.open(**SMALL)
    assert log.spans() == [(at, at + 1) for at in range(10)]
    node.stop()
    node.restart()
    assert node.storage.previous_broker_epoch() == 3


@pytest.mark.parametrize("fully", [False, True])
def test_a_truncation_that_is_broken_off_anywhere_is_made_good_by_a_reopening(fully: bool) -> None:
    """A log that is to begin anew may be left without any segment."""
    for nth in range(1, 100):
        node = new_node()
        log = written(node)
        log.roll()
        log.fill(1)
        log.flush()
        node.storage.checkpoint([])
        node.runtime.advance(1_000)
        seen: list[str] = []

        def watch(operation: str, path: str, nth: int = nth, seen: list[str] = seen) -> None:
            if operation not in (*READS, "unlink"):
                seen.append(f"{operation} {path}")
                if len(seen) >= nth:
                    raise OSError(errno.ENOSPC, "No space left on device", path)

        node.runtime.disk.watch = watch
        with suppress(OSError):
            log.log.truncate_fully(5) if fully else log.log.truncate_to(5)
        if len(seen) < nth:
            break
        node.runtime.disk.watch = None
        with suppress(OSError):
            log.log.flush()
        log.log.close()
        node.runtime.advance(10)
        assert is_online(node), seen
        log = node.open(**SMALL)
        log.log.truncate_fully(5) if fully else log.log.truncate_to(5)
        log.fill(1)
        assert log.spans() == ([] if fully else [(at, at + 1) for at in range(5)]) + [(5, 6)], seen
        assert log.log.flushed_end_offset <= 5
        node.stop()
    assert nth > 5


def test_segments_go_from_a_disk_that_has_no_room_for_a_name() -> None:
    node = new_node()
    log = node.open(**SMALL)
    for _ in range(3):
        log.fill(1)
        log.log.roll()
    node.runtime.disk.inject(Fault(operation="open", path_part=".start", times=-1, error_number=errno.ENOSPC))
    assert log.log.drop_segments(2) == 2
    assert is_online(node)
    node.stop()
