"""More logs than descriptors: the least recently used files are closed, nothing unsynced is, and none is missed."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Any

import pytest

from blumfeld.spi.parts import release
from blumfeld.spi.storage import LogRead, TopicPartition
from blumfeld_kit.fakes.files import Fault
from blumfeld_kit.storage_driver.node import Log, Node, make_batch
from blumfeld_storage_local.plugin import open_files_max
from blumfeld_storage_local.segments.segment import COPY_BYTES_MAX
from blumfeld_storage_local.storage import LocalStorage

DESCRIPTORS = 40
FILES = DESCRIPTORS // 2
LOGS = 60


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"open_files_max": DESCRIPTORS}


def logs(node: Node, count: int = LOGS) -> list[Log]:
    return [node.open(TopicPartition("topic", number)) for number in range(count)]


def open_files(node: Node) -> int:
    return node.runtime.disk.open_files


def test_many_logs_are_written_and_read_with_few_descriptors(node: Node) -> None:
    opened = logs(node)
    for log in opened:
        log.fill(1)
        assert open_files(node) <= FILES + 1  # the one that opens
    for log in opened:
        log.fill(2)
    for log in opened:
        assert log.spans() == [(0, 1), (1, 3)]
        assert open_files(node) <= FILES + 1
    node.stop()
    assert open_files(node) == 0
    assert [log.spans() for log in logs(node.restart())] == [[(0, 1), (1, 3)]] * LOGS


def test_who_is_used_stays_open(node: Node) -> None:
    """Second chance: a log that is written all the time is not the one that is closed."""
    busy, *others = logs(node)
    for log in others:
        busy.fill(1)
        log.fill(1)
        node.runtime.run_turn()
    node.runtime.disk.operations.clear()
    busy.fill(1)
    assert "open" not in node.runtime.disk.operations


def test_nothing_is_closed_before_it_is_synced(node: Node) -> None:
    """The kernel would tell an error of its write-back to nobody."""
    synced: set[str] = set()
    written: set[str] = set()

    def watch(operation: str, path: str) -> None:
        if operation == "fdatasync":
            synced.add(path)
        if operation == "pwritev" and path.endswith(".log"):
            written.add(path)
            synced.discard(path)

    node.runtime.disk.watch = watch
    for log in logs(node):
        log.fill(1)
        assert len(written - synced) <= FILES + 1


def test_syncs_before_closing_are_a_workers_where_there_is_time(node: Node) -> None:
    for log in logs(node):
        log.fill(1)
        node.runtime.run_turn()
        assert open_files(node) <= FILES * 7 / 8 + 1


def test_a_sync_that_fails_before_a_close_takes_the_directory_offline(node: Node) -> None:
    opened = logs(node)
    node.runtime.disk.inject(Fault(operation="fdatasync", path_part=".log", times=-1))
    for log in opened:
        with suppress(OSError):  # placing, once it is known
            log.log.place(make_batch(1), 0)
        log.log.write(lambda outcome: None)
        node.runtime.run_turn()
    assert [info.online for info in node.storage.log_dirs()] == [False]
    with pytest.raises(OSError, match="offline"):
        opened[0].log.flush()


def test_a_flush_after_the_close_reaches_the_file(node: Node) -> None:
    first, *others = logs(node)
    first.fill(3)
    for log in others:
        log.fill(1)
    assert first.flush() == 3
    node.crash()
    assert node.open(TopicPartition("topic", 0)).spans()[-1:] == [(0, 3)]


def test_a_region_outlives_the_close(node: Node) -> None:
    first, *others = logs(node)
    first.fill(1, value_bytes=COPY_BYTES_MAX + 1)
    answer = first.log.read(0, 1 << 20, 1, True)
    assert isinstance(answer, LogRead)
    part = answer.parts[0]
    assert not isinstance(part, bytes | bytearray | memoryview)
    for log in others:
        log.fill(1)
        node.runtime.run_turn()
    assert len(part.pread()) == answer.size_bytes
    release(answer.parts)


def test_indexes_of_sealed_segments_are_given_back(node: Node) -> None:
    opened = logs(node, 30)
    for log in opened:
        log.fill(1)
        log.log.roll()
        log.fill(1)
    for log in opened:
        assert log.spans() == [(0, 1), (1, 2)]
    storage = node.storage
    assert isinstance(storage, LocalStorage)
    budget = storage._directories[0].home.open_files
    assert budget.mapped <= budget.mapped_max == DESCRIPTORS // 4


def test_a_process_that_can_open_no_more_closes_what_it_can(node: Node) -> None:
    """The limit is another's too: sockets may have taken what was meant for files."""
    opened = logs(node, 12)
    for log in opened:
        log.fill(1)
        log.flush()
    node.runtime.disk.open_files_max = open_files(node)
    late = node.open(TopicPartition("late", 0))
    late.fill(1)
    assert late.spans() == [(0, 1)]
    node.runtime.disk.open_files_max = None


def test_a_replay_goes_on_over_a_close(node: Node) -> None:
    first, *others = logs(node)
    first.fill(*[1] * 30, value_bytes=100_000)
    replayed = []
    for batch, log in zip(first.log.batches(0), others, strict=False):
        replayed.append(batch.base_offset)
        log.fill(1)
        node.runtime.run_turn()
    assert replayed == list(range(30))


# At rest


def test_a_log_at_rest_is_not_opened_by_what_asks_for_its_ends_and_sizes(node: Node) -> None:
    for log in logs(node, 3):
        log.fill(2, 3)
    node.stop()
    node.restart()
    rested = logs(node, 3)
    for log in rested:
        assert (log.log.written_end_offset, log.log.log_start_offset, len(log.log.segments())) == (5, 0, 1)
        assert log.log.size_bytes() == sum(len(batch.data) for batch in log.read_all())
    node.stop()
    assert node.runtime.disk.operations["fdatasync"] <= 3 * 5, "the files of each log, in its first life only"
    assert [log.log.written_end_offset for log in logs(node.restart(), 3)] == [5, 5, 5]


@pytest.mark.parametrize("cut", [1, None])
def test_a_log_that_is_not_as_it_was_closed_says_so_when_it_is_first_written(
    node: Node, cut: int | None
) -> None:
    """It is an error, and no cut, also where a whole batch is gone; the next start recovers it."""
    log = node.open()
    log.fill(2, 3)
    last = log.read_all()[-1]
    node.stop()
    file = node.runtime.files.open("/data/topic-0/00000000000000000000.log")
    file.truncate(file.size() - (cut or len(last.data)))
    file.close()
    log = node.restart().open()
    assert log.log.written_end_offset == 5
    log.log.place(make_batch(1), 0)
    assert log.write().error is not None
    node.stop()
    assert node.restart().storage.previous_broker_epoch() == -1
    assert node.open().spans() == [(0, 2)]


# A real process


def test_logs_may_have_half_of_what_the_process_may_open() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (600, hard))
    try:
        assert open_files_max() == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
