"""A checkpoint of many logs is taken down over some turns; what happens between two of them must not be lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.fakes.files import Luck
from blumfeld_kit.storage_driver.node import Log, Node
from blumfeld_storage_local.directories import checkpoint_round

LOGS = 5
MARKS = "/data/replication-offset-checkpoint"
RECOVERY_POINTS = "/data/recovery-point-offset-checkpoint"


def at(index: int) -> TopicPartition:
    return TopicPartition("topic", index)


def lines(*offsets: int | None) -> bytes:
    """The file that says these, partition by partition."""
    entries = [f"topic {index} {offset}\n" for index, offset in enumerate(offsets) if offset is not None]
    return f"0\n{len(entries)}\n{''.join(entries)}".encode()


@pytest.fixture(autouse=True)
def _two_logs_or_high_watermarks_are_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_round, "STEP_LOGS", 2)


@pytest.fixture
def logs(node: Node) -> list[Log]:
    """Each with three records that are flushed."""
    logs = [node.open(at(index)) for index in range(LOGS)]
    for log in logs:
        log.fill(3)
        log.flush()
    return logs


def read(node: Node, path: str) -> bytes:
    return node.runtime.files.read_bytes(path)


def marks() -> list[tuple[TopicPartition, int]]:
    return [(at(index), 2) for index in range(LOGS)]


def test_the_files_are_written_when_all_is_taken_down(node: Node, logs: list[Log]) -> None:
    node.storage.checkpoint(marks())
    assert not node.runtime.files.exists(MARKS)
    node.runtime.advance(1)
    assert read(node, MARKS) == lines(*[2] * LOGS)
    assert read(node, RECOVERY_POINTS) == lines(*[3] * LOGS)


def test_high_watermarks_are_asked_for_a_part_at_a_time(node: Node, logs: list[Log]) -> None:
    indexes = []

    def ask() -> Iterator[tuple[TopicPartition, int]]:
        for index in range(LOGS):
            indexes.append(index)
            yield at(index), index

    node.storage.checkpoint(ask())
    assert not indexes, "the logs come first"
    node.runtime.advance(1)
    assert indexes == list(range(LOGS))


def test_a_truncation_between_two_parts_counts(node: Node, logs: list[Log]) -> None:
    """The recovery point was taken down before: it must not stand above what is written anew."""
    node.storage.checkpoint(marks())
    logs[0].log.truncate_to(1)
    node.runtime.advance(1)
    assert read(node, RECOVERY_POINTS) == lines(1, 3, 3, 3, 3)


@pytest.mark.parametrize("parts", [0, 3, 4])
def test_a_log_that_is_deleted_between_two_parts_leaves_nothing(
    node: Node, logs: list[Log], parts: int
) -> None:
    node.storage.checkpoint(marks())
    for _ in range(parts):
        node.runtime.run_turn()
    node.storage.delete_log(at(0))
    log = node.open(at(0))
    log.fill(1)
    node.runtime.advance(1)
    assert read(node, MARKS) == lines(None, 2, 2, 2, 2)
    assert b"topic 0 3" not in read(node, RECOVERY_POINTS)


def test_a_stop_ends_it(node: Node, logs: list[Log]) -> None:
    node.storage.checkpoint(marks())
    node.stop()
    assert read(node, MARKS) == lines(*[2] * LOGS)


def test_a_newer_one_takes_its_place(node: Node, logs: list[Log]) -> None:
    node.storage.checkpoint(marks())
    node.storage.checkpoint([(at(index), 3) for index in range(LOGS)])
    node.runtime.advance(1)
    assert read(node, MARKS) == lines(*[3] * LOGS)


def test_a_crash_within_leaves_the_last_one(node: Node, logs: list[Log]) -> None:
    node.storage.checkpoint(marks())
    node.runtime.advance(1)
    node.storage.checkpoint([(at(index), 3) for index in range(LOGS)])
    node.crash(luck=Luck(0))
    assert node.storage.high_watermarks() == dict(marks())
