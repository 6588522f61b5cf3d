"""A reference model of compaction: which records must be left, and whether they are. It is slow and plain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from blumfeld.spi.compaction import CompactionRequest
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record, records

RecordKept = tuple[int, bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]
"""Offset, key, value, timestamp, headers."""


class BatchContent(msgspec.Struct, frozen=True):
    """The contents of a batch, independent of compression and encoding."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    attributes: int
    """The batch's attributes without the flag of a delete horizon."""
    delete_horizon_ms: int | None
    records: tuple[RecordKept, ...]

    def without(self, removed: Iterable[int]) -> BatchContent:
        """Return the batch without the records at these offsets."""
        gone = frozenset(removed)
        left = tuple(record for record in self.records if record[0] not in gone)
        return msgspec.structs.replace(self, records=left)

    def same(self, other: BatchContent) -> bool:
        """Return whether two batches are equal except for the delete horizon."""
        return self == msgspec.structs.replace(other, delete_horizon_ms=self.delete_horizon_ms)


def content(data: bytes) -> BatchContent:
    """Return a batch's contents. Checks its CRC."""
    batch = RecordBatch(memoryview(data))
    batch.verify_crc()
    return BatchContent(
        base_offset=batch.base_offset,
        next_offset=batch.next_offset,
        leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        attributes=batch.attributes & ~0x40,
        delete_horizon_ms=batch.delete_horizon_ms,
        records=tuple(map(_kept, records(batch))),
    )


def _kept(record: Record) -> RecordKept:
    return record.offset, record.key, record.value, record.timestamp, tuple(record.headers)


class Compacted(msgspec.Struct, frozen=True):
    """The expected result of a cleaner pass without transactions, which have tests of their own."""

    batches: tuple[BatchContent, ...]
    """All batches that the pass read, with the records that stay. A batch without records may be there or not."""
    removed: frozenset[int]
    """Offsets of removed records."""
    keys: int
    horizons: frozenset[int]
    """Base offsets of batches that get a delete horizon for their tombstones."""


def compact(batches: Sequence[BatchContent], request: CompactionRequest) -> Compacted:
    """Apply the rules: the newest record of each key stays, tombstones stay until their horizon, records without a key
    go.
    """
    below = [batch for batch in batches if batch.next_offset <= request.end_offset]
    newest = {
        key: offset
        for batch in below
        for offset, key, *_ in batch.records
        if key is not None and offset >= request.first_dirty_offset
    }
    removed: set[int] = set()
    horizons: set[int] = set()
    left: list[BatchContent] = []
    for batch in below:
        expired = batch.delete_horizon_ms is not None and request.now_ms >= batch.delete_horizon_ms
        gone = {
            offset
            for offset, key, value, *_ in batch.records
            if key is None or newest.get(key, -1) > offset or (value is None and expired)
        }
        removed |= gone
        left.append(batch.without(gone))
        if any(record[2] is None for record in left[-1].records):
            horizons.add(batch.base_offset)
    return Compacted(tuple(left), frozenset(removed), len(newest), frozenset(horizons))


def difference(batches: Sequence[BatchContent], expected: Sequence[BatchContent]) -> str | None:
    """Return the first difference as text, or ``None``. Empty batches may be there or not."""
    at = 0
    for batch in expected:
        if at < len(batches) and batches[at].base_offset == batch.base_offset:
            if not batches[at].same(batch):
                return f"the batch at {batch.base_offset} is {batches[at]}, expected {batch}"
            at += 1
        elif batch.records:
            there = batches[at].base_offset if at < len(batches) else "nothing"
            return f"the batch at {batch.base_offset} is missing, with {len(batch.records)} records; {there} is there"
    if at < len(batches):
        return f"a batch at {batches[at].base_offset} that was not to be there"
    return None
