"""What a power cut may not take from a log whose every record was synced before it was sealed: its indexes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from blumfeld.spi.storage import LogStorage
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.storage_driver.node import PARTITION, Log, Node
from blumfeld_storage_local.storage import LocalStorage
from tests.plugins.storage_local.test_log import Events

SEALED = f"/data/{PARTITION}/00000000000000000000"


def make_storage(runtime: FakeRuntime) -> LogStorage:
    return LocalStorage(runtime, "/data", Events())


def make_runtime(previous: FakeRuntime | None) -> FakeRuntime:
    return FakeRuntime(1) if previous is None else FakeRuntime(2, disk=previous.disk)


def stop_before_the_indexes_are_synced(node: Node) -> Callable[[str, str], None]:
    """Watches the disk: a kill comes before the first sync of an index."""

    def watch(operation: str, path: str) -> None:
        if operation == "fdatasync" and path.endswith("index") and not node.runtime.dead:
            node.runtime.crash(power_cut=False)

    return watch


@pytest.fixture
def log() -> Log:
    """Each write is synced before its outcome, so that nothing is left to flush when a segment is sealed."""
    node = Node(make_runtime, make_storage).start()
    return node.open(flush_messages=1, index_interval_bytes=0)


def test_the_indexes_of_a_sealed_segment_are_synced(log: Log) -> None:
    """Nobody checks them again after the recovery point has passed."""
    log.fill(2, 2, 2)
    log.log.roll()
    log.node.runtime.run_turn()
    disk = log.node.runtime.disk
    assert disk.tree.file(SEALED + ".index").is_synced
    assert disk.tree.file(SEALED + ".timeindex").is_synced


def test_the_recovery_point_waits_for_them(log: Log) -> None:
    """Until then a start walks over the sealed segment, and makes its indexes anew."""
    log.fill(2, 2, 2)
    log.log.roll()
    log.node.storage.checkpoint([])
    log.node.runtime.disk.watch = stop_before_the_indexes_are_synced(log.node)
    log.node.runtime.run_turn()
    node = log.node.restart()
    node.open(flush_messages=1, index_interval_bytes=0)
    assert node.listener.recoveries[0] == (0, 2)
