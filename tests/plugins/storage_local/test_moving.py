"""Moves of logs from one directory to another: what they bring, and what comes in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from blumfeld.spi.compaction import CompactionAbandonedError, CompactionResult
from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import LogNotOpenError, TopicPartition, WriteOutcome
from blumfeld_kit.storage_driver.node import PARTITION, Log, Node, make_batch
from tests.plugins.storage_local.local_node import Events, new_node
from tests.plugins.storage_local.moving_tools import (
    PATHS,
    SMALL,
    begin,
    during,
    filled,
    lies_in,
    move,
    places,
)


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"paths": PATHS}


@pytest.fixture
def log(node: Node) -> Log:
    return filled(node)


# A move


def test_a_restart_finds_it_there_with_its_checkpoints(node: Node, log: Log) -> None:
    node.storage.checkpoint([(PARTITION, 77)])
    move(node)
    before = log.read_all()
    node.stop()
    node.restart()
    assert node.storage.high_watermarks() == {PARTITION: 77}
    log = node.open(**SMALL)
    assert log.log.log_start_offset == 4
    assert node.listener.recoveries == []
    assert log.read_all() == before
    assert node.runtime.files.read_bytes("/a/recovery-point-offset-checkpoint") == b"0\n0\n"


def test_indexes_and_times_of_change_are_those_of_the_log(node: Node, log: Log) -> None:
    """Retention and the cleaner go by the time of change."""
    first = "/topic-0/00000000000000000000"
    files = node.runtime.files
    node.runtime.advance(5_000_000)
    before = [
        files.read_bytes("/a" + first + ".index"),
        files.read_bytes("/a" + first + ".timeindex"),
        files.modified_ms("/a" + first + ".log"),
    ]
    move(node)
    assert before == [
        files.read_bytes("/b" + first + ".index"),
        files.read_bytes("/b" + first + ".timeindex"),
        files.modified_ms("/b" + first + ".log"),
    ]


def test_moves_are_told_of_while_they_run(events: Events) -> None:
    node = new_node(PATHS, move_bytes_per_second_max=1000.0)
    log = node.open(**SMALL)
    log.fill(*[3] * 40, value_bytes=20_000)
    target = begin(node)
    node.runtime.advance(30_000)
    (running_move,) = node.storage.moves()
    assert (running_move.partition, running_move.from_directory_id, running_move.to_directory_id) == (
        PARTITION,
        log.log.directory_id,
        target,
    )
    assert 20_000 < running_move.size_bytes <= 31_000, (
        "no faster than replica.alter.log.dirs.io.max.bytes.per.second"
    )
    assert 0 <= running_move.copied_end_offset < 120
    node.end()


def test_only_some_run_at_a_time_and_all_come_to_their_end(node: Node) -> None:
    partitions = [TopicPartition("topic", number) for number in range(10)]
    (home,) = [info.directory_id for info in node.storage.log_dirs() if info.path == "/a"]
    for partition in partitions:
        node.open(partition, directory_id=home).fill(2)
    for partition in partitions:
        begin(node, "/c", partition)
    assert len(node.storage.moves()) == 10
    node.runtime.advance(1000)
    assert not node.storage.moves()
    assert [node.storage.log_dirs()[2].directory_id] * 10 == [d for _, d in node.watcher.moves]


def test_a_log_that_is_written_all_the_time_comes_to_its_place(node: Node, log: Log) -> None:
    """Writes wait for a few syncs, none fails, and their outcomes come in order."""
    node.runtime.offload_delay_ms = lambda: 5.0
    outcomes: list[WriteOutcome] = []
    waits: list[float] = []

    def write() -> None:
        began_ms = node.runtime.monotonic_ms()
        log.log.place(make_batch(1), 0)
        log.log.write(outcomes.append)
        log.log.write(lambda _: waits.append(node.runtime.monotonic_ms() - began_ms))
        if node.runtime.monotonic_ms() < 3000:
            node.runtime.call_later(1, write)

    write()
    begin(node)
    node.runtime.advance(4000)
    assert not node.storage.moves()
    assert log.log.directory_id == node.directories[1]
    assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
    ends = [outcome.written_end_offset for outcome in outcomes]
    assert len(ends) >= 2900
    assert ends == sorted(ends)
    assert 20 < max(waits) < 100, (
        "writes wait for what must last before they go on: some ten steps off the loop"
    )
    assert [b.base_offset for b in log.read_all(120)] == list(range(120, log.log.written_end_offset))


# In between


STEPS = (
    "make_dirs /b/",
    "pwritev /b/",
    "fdatasync /b/",
    "write_atomically /b/",
    "sync_dir /b/",
    "write_atomically /b/recovery",
    "write_atomically /a/blumfeld-move-checkpoint",
    "rename /b/",
    "rename /a/",
)


def moved_with(node: Node, step: str, act: Callable[[], object]) -> None:
    """A move to /b, in which something is done at a step, once it has ended."""
    done = during(node, step, act)
    begin(node)
    node.runtime.advance(5000)
    assert done, "the step was seen"
    node.runtime.disk.watch = None


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("act", ["append", "truncate", "truncate fully", "roll", "retention", "aux", "flush"])
def test_whatever_is_done_to_the_log_meanwhile_counts(node: Node, log: Log, step: str, act: str) -> None:
    """At each step of the move; the log, and what a restart finds of it, are as they would be without the move."""
    it = log.log
    outcomes: list[WriteOutcome] = []

    def append() -> None:
        it.place(make_batch(4, seed=9), 7)
        it.write(outcomes.append)

    def change_aux() -> None:
        it.aux.write("new", b"1")
        it.aux.delete("00000000000000000042.snapshot")

    def do() -> None:
        acts[act]()
        append()

    acts: dict[str, Callable[[], object]] = {
        "append": append,
        "truncate": lambda: it.truncate_to(50),
        "truncate fully": lambda: it.truncate_fully(50),
        "roll": it.roll,
        "retention": lambda: it.drop_segments(60),
        "aux": change_aux,
        "flush": it.flush,
    }
    before = log.read_all()
    moved_with(node, step, do)
    assert not node.storage.moves()
    expected = {
        "truncate": [b for b in before if b.next_offset <= 50],
        "truncate fully": [],
        "retention": [b for b in before if b.base_offset >= it.segments()[0].base_offset],
    }.get(act, before)
    if act != "truncate fully":
        assert [b.error for b in outcomes] == [None] * len(outcomes)
    all_batches = log.read_all()
    assert all_batches[: len(expected)] == expected
    assert len(all_batches) == len(expected) + (2 if act == "append" else 1)
    assert all_batches[-1].leader_epoch == 7
    assert len(outcomes) == (2 if act == "append" else 1)
    if act == "aux":
        assert it.aux.read("new") == b"1"
        assert it.aux.read("00000000000000000042.snapshot") is None
    ends = (it.log_start_offset, it.written_end_offset)
    assert lies_in(node, "/b")
    node.stop()
    node.restart()
    log = node.open(**SMALL)
    assert (log.log.log_start_offset, log.log.written_end_offset) == ends
    assert log.read_all() == all_batches


@pytest.mark.parametrize("step", STEPS)
def test_a_log_that_is_deleted_meanwhile_is_gone_and_can_be_made_anew(
    node: Node, log: Log, step: str
) -> None:
    moved_with(node, step, lambda: node.storage.delete_log(PARTITION))
    assert not node.storage.moves()
    log = node.open(topic_id=bytes(range(32, 48)))
    assert log.log.written_end_offset == 0
    log.fill(1)
    node.runtime.advance(100_000)
    assert list(places(node).values()) == [[str(PARTITION)]]
    node.crash(power_cut=False)
    assert node.storage.partitions() == [(PARTITION, bytes(range(32, 48)))]


@pytest.mark.parametrize("step", STEPS)
def test_a_log_that_is_closed_meanwhile_goes_on_with_its_move_when_it_is_opened(
    node: Node, log: Log, step: str
) -> None:
    before = log.read_all()
    moved_with(node, step, log.log.close)
    assert not node.storage.moves()
    log = node.open(**SMALL)
    assert log.read_all() == before
    node.runtime.advance(5000)
    assert lies_in(node, "/b")
    assert log.read_all() == before


@pytest.mark.parametrize("step", STEPS)
def test_a_clean_stop_meanwhile_is_clean_and_the_move_outlives_it(node: Node, log: Log, step: str) -> None:
    before = log.read_all()
    stopped: list[bool] = []

    async def stop() -> None:
        await node.storage.stop(3)
        stopped.append(True)

    moved_with(node, step, lambda: node.runtime.spawn(stop(), "stop"))
    assert stopped
    node.restart()
    assert node.storage.previous_broker_epoch() == 3
    log = node.open(**SMALL)
    assert node.listener.recoveries == []
    assert log.read_all() == before
    node.runtime.advance(5000)
    assert lies_in(node, "/b")
    assert log.read_all() == before


@pytest.mark.parametrize("path", ["/c", "/a"], ids=["another directory", "its own, which gives the move up"])
@pytest.mark.parametrize("step", STEPS)
def test_another_wish_counts(node: Node, log: Log, step: str, path: str) -> None:
    """At any step of the first, and for good: a restart does not take the first one up again."""
    before = log.read_all()
    moved_with(node, step, lambda: begin(node, path))
    assert lies_in(node, path)
    node.crash(power_cut=False)
    log = node.open(**SMALL)
    node.runtime.advance(5000)
    assert lies_in(node, path)
    assert log.read_all(4) == before


def test_a_log_that_moves_is_not_compacted(node: Node, log: Log) -> None:
    answers: list[Completion[CompactionResult]] = []
    moved_with(node, "pwritev /b/", lambda: answers.append(log.log.compact(log.compaction())))
    assert isinstance(answers[0].error, CompactionAbandonedError)
    assert lies_in(node, "/b")


def test_the_log_of_the_metadata_is_not_moved(node: Node) -> None:
    metadata = TopicPartition("__cluster_metadata", 0)
    node.open(metadata)
    with pytest.raises(LogNotOpenError, match="moved"):
        begin(node, "/b", metadata)
