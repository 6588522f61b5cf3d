"""A log of four sealed segments and an active one, for tests of what compaction does to it."""

from __future__ import annotations

from typing import Any

from blumfeld.log.segments.file_names import parse_segment_name
from blumfeld.spi.compaction import CompactionResult
from blumfeld.spi.completion import Completion
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record
from blumfeld_kit.storage_driver.node import PARTITION, TIME_MS, Log, Node
from blumfeld_storage_local.compaction.swap_plan import SWAP_PLAN
from tests.plugins.storage_local.local_node import new_node

DIRECTORY = f"/data/{PARTITION}"
GROUP_BYTES = 900
"""Such that a round makes some segments out of more."""


def keyed(key: int, version: int) -> RecordBatch:
    record = Record(b"%d" % key, b"%d" % version * 40, timestamp=TIME_MS + version)
    return RecordBatch(memoryview(build_batch([record])))


KEYS = ([0, 1, 2, 3], [1, 0], [4, 5, 1], [4, 6], [0, 2, 1, 5])
"""The keys of each segment; the last segment is active."""


def opened(node: Node, **config: Any) -> Log:
    return node.open(cleanup_policy="compact", index_interval_bytes=100, **config)


def filled(node: Node | None = None) -> Log:
    """A log of four sealed segments and an active one, all flushed."""
    log = opened(node or new_node())
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


def start_round(log: Log, **options: Any) -> Completion[CompactionResult]:
    return log.log.compact(log.compaction(segment_bytes=GROUP_BYTES, **options))


def finish(log: Log, done: Completion[CompactionResult]) -> CompactionResult:
    async def wait() -> CompactionResult:
        return await done

    return log.node.runtime.run(wait())


def names(log: Log) -> list[str]:
    return log.node.runtime.files.list_dir(DIRECTORY)


def leftovers(file_names: list[str]) -> list[str]:
    return [
        n for n in file_names if n == SWAP_PLAN or ((file := parse_segment_name(n)) is not None and file.mark)
    ]
