"""A node with three log directories, for tests of moves between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.storage_driver.node import PARTITION, TIME_MS, Log, Node

PATHS = ("/a", "/b", "/c")
SMALL: dict[str, Any] = {"segment_bytes": 1000, "index_interval_bytes": 200}


def begin(node: Node, path: str = "/b", partition: TopicPartition = PARTITION) -> bytes:
    (directory_id,) = [info.directory_id for info in node.storage.log_dirs() if info.path == path]
    node.storage.move_log(partition, directory_id)
    return directory_id


def move(node: Node, path: str = "/b") -> None:
    begin(node, path)
    node.runtime.advance(1000)
    assert not node.storage.moves()


def places(node: Node, partition: TopicPartition = PARTITION) -> dict[str, list[str]]:
    """By log directory: names of directories of this partition."""
    names_by_path = {
        path: [name for name in node.runtime.files.list_dir(path) if name.startswith(str(partition))]
        for path in PATHS
    }
    return {path: names for path, names in names_by_path.items() if names}


def lies_in(node: Node, path: str) -> bool:
    """The log is there, and nowhere else is anything of it."""
    node.runtime.advance(100_000)
    return places(node) == {path: [str(PARTITION)]}


def filled(node: Node) -> Log:
    """In /a: several segments, small files beside them, a log start of its own."""
    log = node.open(**SMALL)
    log.fill(*[3] * 40, timestamp_ms=TIME_MS)
    log.log.aux.write("leader-epoch-checkpoint", b"0\n1\n0 0\n")
    log.log.aux.write("00000000000000000042.snapshot", b"producers")
    log.log.advance_log_start(4)
    assert len(log.log.segments()) > 3
    return log


def during(node: Node, step: str, act: Callable[[], object]) -> list[bool]:
    """Do something once, in a turn of the loop, when the disk first sees ``"operation path-part"``."""

    def do() -> None:
        act()

    operation, _, path = step.partition(" ")
    done: list[bool] = []

    def watch(seen: str, where: str) -> None:
        if seen == operation and path in where and not done:
            done.append(True)
            node.runtime.call_later(0, do)

    node.runtime.disk.watch = watch
    return done
