"""Tools of the compaction tests: the contents and keys of a log, transactions, and a cleaner pass that a test
watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from blumfeld.spi.compaction import CompactionAbandonedError, CompactionResult
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record
from blumfeld_kit.storage_driver.compaction_model import BatchContent, content, difference
from blumfeld_kit.storage_driver.node import TIME_MS, Log

TURNS_MAX = 200


def contents(log: Log) -> list[BatchContent]:
    """Return every batch that a reader can get."""
    return [content(batch.data) for batch in log.read_all()]


def keys(log: Log, *, active: bool = False) -> dict[bytes | None, int]:
    """Return the offset of each key. No key may be there twice, unless its newest record is in the ``active``
    segment.
    """
    pairs = [
        (record[1], record[0]) for batch in contents(log) for record in batch.records if not _control(batch)
    ]
    assert active or len(dict(pairs)) == len(pairs), f"a key has two records after a cleaner pass: {pairs}"
    return dict(pairs)


def _control(batch: BatchContent) -> bool:
    return bool(batch.attributes & 0x20)


def check_same(log: Log, expected: Sequence[BatchContent]) -> None:
    """Check that a reader gets exactly these batches, and that a replay sees the same ones."""
    batches = contents(log)
    assert difference(batches, expected) is None
    assert [batch.base_offset for batch in log.log.batches(0)] == [batch.base_offset for batch in batches]


def transactional(*pairs: tuple[bytes, bytes], sequence: int) -> RecordBatch:
    """Return a transactional batch of producer 5."""
    records = [Record(key, value, timestamp=TIME_MS) for key, value in pairs]
    data = build_batch(records, producer_id=5, producer_epoch=0, base_sequence=sequence, transactional=True)
    return RecordBatch(memoryview(data))


def marker(*, commit: bool) -> RecordBatch:
    """Return the marker that ends a transaction of producer 5."""
    key, value = (0).to_bytes(2, "big") + int(commit).to_bytes(2, "big"), bytes(6)
    record = Record(key, value, timestamp=TIME_MS)
    data = build_batch([record], producer_id=5, producer_epoch=0, transactional=True, control=True)
    return RecordBatch(memoryview(data))


def meanwhile(
    log: Log, look: Callable[[], Awaitable[None]] | None = None, *, at_least: int = 0
) -> CompactionResult | OSError | CompactionAbandonedError:
    """Run a cleaner pass and call ``look()`` in each turn of the loop. Return the result, or the error that ended the
    pass.
    """
    runtime = log.node.runtime

    async def go() -> CompactionResult | OSError | CompactionAbandonedError:
        pass_ = log.log.compact(log.compaction())
        turns = 0
        while not pass_.done or turns < at_least:
            turns += 1
            assert not runtime.defects, runtime.defects
            assert turns < 100 * TURNS_MAX, "the cleaner pass doesn't end"
            if look is not None:
                await look()
            await asyncio.sleep(0 if turns < TURNS_MAX else 0.001)
        try:
            return await pass_
        except (OSError, CompactionAbandonedError) as error:
            return error

    return runtime.run(go())
