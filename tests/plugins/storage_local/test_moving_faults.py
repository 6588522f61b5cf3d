"""Moves of logs that fail: a full or broken disk, and a crash at every operation."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import WriteOutcome
from blumfeld_kit.fakes.files import Adversary, Fault
from blumfeld_kit.storage_driver.node import PARTITION, Log, Node, make_batch
from blumfeld_storage_local.durability import Durability, FlushMode
from tests.everyday import first
from tests.plugins.storage_local.local_node import Events, new_node, node_on_disk
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


# Faults


def test_a_full_target_leaves_the_log_where_it_is(node: Node, log: Log, events: Events) -> None:
    node.runtime.disk.inject(
        Fault(operation="pwritev", path_part="/b/", nth=3, error_number=errno.ENOSPC, times=-1)
    )
    before = log.read_all()
    move(node)
    assert "log not moved" in events.said
    assert lies_in(node, "/a")
    assert [info.online for info in node.storage.log_dirs()] == [True] * 3
    log.fill(1)
    assert log.read_all()[:-1] == before
    node.runtime.disk.heal()
    move(node)
    assert lies_in(node, "/b")


def count_operations(act: Callable[[Node], None], path: str) -> dict[str, int]:
    """By operation: how many of a move concern this path."""
    node = new_node(PATHS)
    log = node.open(**SMALL)
    log.fill(*[3] * 40)
    counted: dict[str, int] = {}

    def watch(operation: str, where: str) -> None:
        if where.startswith(path):
            counted[operation] = counted.get(operation, 0) + 1

    node.runtime.disk.watch = watch
    act(node)
    node.runtime.disk.watch = None
    node.end()
    return counted


def test_whatever_operation_on_the_target_fails_the_log_serves_on() -> None:
    """Each in turn fails, for good: the log stays where it is, nothing is lost, a restart finds it in one place."""
    counted = count_operations(move, "/b")
    assert sum(counted.values()) > 40
    for operation, count in counted.items():
        if operation in ("space", "exists"):
            continue
        for nth in range(1, count + 1):
            node = new_node(PATHS)
            log = node.open(**SMALL)
            log.fill(*[3] * 40)
            node.runtime.disk.inject(Fault(operation=operation, path_part="/b", nth=nth, times=-1))
            begin(node)
            node.runtime.advance(2000)
            assert not node.storage.moves()
            where = f"{operation} {nth}"
            if log.log.directory_id == node.directories[0]:
                log.fill(1)
                assert len(log.read_all()) == 41, where
                assert not log.flush() < 121, where
            node.runtime.disk.heal()
            node.crash(power_cut=True, luck=Adversary.LOSE)
            log = node.open(**SMALL)
            assert log.log.written_end_offset >= 120 or log.log.flushed_end_offset == 0, where
            node.runtime.advance(200_000)
            assert len(places(node)) == 1, where
            node.end()


def test_the_logs_own_directory_fails_within_a_move(node: Node, log: Log) -> None:
    """Its log is offline; when the directory is back the move begins anew."""
    before = log.read_all()
    during(
        node, "pwritev /b/", lambda: node.runtime.disk.inject(Fault(operation="fdatasync", path_part="/a"))
    )
    log.log.flush().when_done(lambda _: None)
    begin(node)
    log.append(make_batch())
    log.log.flush().when_done(lambda _: None)
    node.runtime.advance(2000)
    node.runtime.disk.watch = None
    assert [failed.path for failed, _ in node.watcher.failures] in ([], ["/a"])
    node.runtime.disk.heal()
    node.crash(power_cut=False)
    log = node.open(**SMALL)
    node.runtime.advance(2000)
    assert lies_in(node, "/b")
    assert log.read_all()[: len(before)] == before


def test_the_old_directory_fails_when_the_log_has_gone_on_elsewhere(node: Node, log: Log) -> None:
    """It can't be renamed there any more: when it is back, what is left there does not count."""
    before = log.read_all()
    node.runtime.disk.inject(Fault(operation="rename", path_part="/a/topic-0", times=-1))
    move(node)
    assert [failed.path for failed, _ in node.watcher.failures] == ["/a"]
    assert log.log.directory_id == node.directories[1]
    log.fill(2)
    log.flush()
    node.runtime.disk.heal()
    node.crash(power_cut=True, luck=Adversary.LOSE)
    log = node.open(**SMALL)
    assert log.read_all()[-len(before) - 1 : -1] == before
    assert log.log.written_end_offset == 122
    assert lies_in(node, "/b")


# Crashes


EVERY_DAY = (Adversary.LOSE, Adversary.NEWEST)


class Life:
    """A log that is written, flushed and moved, until the power is cut."""

    def __init__(self, crash_at: int, luck: Adversary | None, flush: FlushMode) -> None:
        self.node = new_node(PATHS, durability=Durability(flush))
        self._flush: FlushMode = flush
        self.operations = 0
        self.flushed = 0
        self._crash_at = crash_at
        self._luck = luck

    def run(self) -> bool:
        """Whether it was cut short."""
        node = self.node
        log = node.open(**SMALL)
        log.fill(*[3] * 14)
        log.log.aux.write("leader-epoch-checkpoint", b"0\n1\n0 0\n")
        self.flushed = log.flush()
        log.fill(*[3] * 3)
        node.storage.checkpoint([(PARTITION, 42)])
        node.runtime.run_turn()
        node.runtime.disk.watch = self._watch
        begin(node)
        for _ in range(5):
            if node.runtime.dead:
                break
            log.log.place(make_batch(3), 1)
            log.log.write(self._written)
            node.runtime.run_turn()
            if node.runtime.dead:
                break
            if self._flush == "never":
                log.log.flush().when_done(self._flushed)
            node.runtime.advance(1)
        if not node.runtime.dead:
            node.runtime.advance(1000)
        node.runtime.disk.watch = None
        return node.runtime.dead

    def _flushed(self, flush: Completion[int]) -> None:
        if flush.error is None and not self.node.runtime.dead:
            self.flushed = max(self.flushed, flush.result())

    def _written(self, outcome: WriteOutcome) -> None:
        if outcome.error is None and self._flush == "every" and not self.node.runtime.dead:
            self.flushed = max(self.flushed, outcome.written_end_offset)

    def _watch(self, operation: str, path: str) -> None:
        self.operations += 1
        if self.operations == self._crash_at:
            self.node.runtime.crash(power_cut=self._luck is not None, luck=self._luck)


@pytest.mark.parametrize("stride", first(1, [4, 1]))
@pytest.mark.parametrize("flush", ["never", "every"])
@pytest.mark.parametrize(
    "luck",
    [
        None,
        *EVERY_DAY,
        *(pytest.param(luck, marks=pytest.mark.slow) for luck in Adversary if luck not in EVERY_DAY),
    ],
)
def test_a_crash_at_any_operation_leaves_the_log_in_one_place_with_all_that_was_flushed(
    luck: Adversary | None, flush: FlushMode, stride: int
) -> None:
    """The move is taken up again, or was done. With ``flush = "every"`` an ack says that it was flushed."""
    crash_at, seen = 0, set()
    while True:
        crash_at += stride
        life = Life(crash_at, luck, flush)
        if not life.run():
            break
        node = life.node.restart()
        assert [partition for partition, _ in node.storage.partitions()] == [PARTITION]
        log = node.open(**SMALL)
        seen.add(log.log.directory_id)
        where = f"operation {crash_at}"
        assert log.log.written_end_offset >= life.flushed, where
        assert [b.base_offset for b in log.read_all()] == list(range(0, log.log.written_end_offset, 3)), where
        assert log.log.aux.read("leader-epoch-checkpoint") is not None
        assert node.storage.high_watermarks() == {PARTITION: 42}, where
        log.fill(1)
        node.runtime.advance(200_000)
        assert len(places(node)) == 1, where
        assert [str(PARTITION)] in places(node).values(), where
        node.end()
    assert crash_at > 100
    assert len(seen) == 2, "before the change-over and behind it"
    life.node.end()


# On a real disk


def test_a_move_between_real_directories(tmp_path: Path) -> None:
    paths = (str(tmp_path / "a"), str(tmp_path / "b"))
    node = node_on_disk(*paths)
    log = node.open(**SMALL)
    log.fill(*[3] * 40)
    before = log.read_all()
    begin(node, paths[1])
    node.runtime.advance(1000)
    assert log.log.directory == f"{paths[1]}/topic-0"  # type: ignore[attr-defined]
    log.fill(1)
    node.runtime.advance(100_000)
    assert not (tmp_path / "a" / "topic-0").exists()
    node.stop()
    node.restart()
    log = node.open(**SMALL)
    assert log.read_all()[:-1] == before
    node.end()
