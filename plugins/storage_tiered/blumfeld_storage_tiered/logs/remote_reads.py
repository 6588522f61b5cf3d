"""Reads in remote segments: bytes from an offset on, the first record of a time, the transactions that were aborted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple, Protocol

from blumfeld.log.segments.index import OffsetIndex
from blumfeld.log.segments.record_search import record_at_time
from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.spi.parts import release, size_of
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.storage import LogRead, TimestampOffset
from blumfeld.wire.batches.record_batch import HEADER_BYTES, RecordBatch
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_storage_tiered.cache.segment_bytes import SegmentBytes
from blumfeld_storage_tiered.catalog.catalog import Served
from blumfeld_storage_tiered.catalog.segment import RemoteSegment

SCAN_BYTES = 16 << 10
"""Bytes that are read at once while a batch is looked for: four times the distance of two index entries."""


class History(Protocol):
    """The remote segments of one partition that belong to the log as it is now, in the order of their offsets."""

    def find(self, offset: int) -> Served | None:
        """Return the segment with ``offset``, and how far it can be read; ``None`` if no finished one has it."""
        ...

    def lineage(self, offset: int) -> Iterator[Served]:
        """Yield the segments with ``offset`` and later ones. The metadata may not change meanwhile."""
        ...

    def next_with_transactions(self, offset: int) -> RemoteSegment | None:
        """Return the first segment, with ``offset`` or later ones, that may have aborted transactions."""
        ...


class BatchPlace(NamedTuple):
    """A batch in the log of a remote segment."""

    position: int
    size_bytes: int
    batch: RecordBatch
    """The header alone."""


class RemoteReads:
    """Reads of one log's remote part. Every method may raise ``StoreError``, ``CorruptBatch``, ``CorruptIndex``, or
    ``BrokerError`` where too many reads wait."""

    def __init__(self, runtime: Runtime, source: SegmentBytes, history: History) -> None:
        self._runtime = runtime
        self._source = source
        self._history = history

    async def read(self, offset: int, bytes_max: int, minimum_one_batch: bool) -> LogRead | None:
        """Return bytes from the batch with ``offset`` on, within one segment. ``None`` if no segment has it."""
        history, source = self._history, self._source
        served = history.find(offset)
        place = None if served is None else await self._batch_with(served.segment, offset)
        if served is None or place is None:
            return None
        segment, served_end = served.segment, served.end_offset
        limit = segment.size_bytes
        if served_end <= segment.end_offset:
            behind = await self._batch_with(segment, served_end)
            limit = limit if behind is None else behind.position
        size = min(bytes_max, limit - place.position)
        if size < place.size_bytes:
            if not minimum_one_batch:
                return LogRead([], 0, offset)
            size = place.size_bytes
        index = await source.offset_index(segment)
        parts = await source.parts(segment, place.position, place.size_bytes, size)
        try:
            got = size_of(parts)
            end_offset = min(served_end, _end_at(index, place.position + got, segment))
            beyond = source.pieces_beyond(segment, place.position + max(got, 1) - 1)
            if beyond or place.position + got >= limit:
                self._prepare_next(served_end, max(beyond, 1))
            aborted = await self._aborted(offset, end_offset)
        except BaseException:
            release(parts)
            raise
        return LogRead(parts, got, end_offset, aborted)

    def _prepare_next(self, offset: int, pieces: int) -> None:
        behind = self._history.find(offset)
        if behind is not None:
            self._source.prepare(behind.segment, pieces)

    async def _aborted(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Return the transactions with a record in the range that were aborted. A marker may lie segments behind it."""
        transactions: list[AbortedTransaction] = []
        offset = from_offset
        while (segment := self._history.next_with_transactions(offset)) is not None:
            index = await self._source.aborted(segment)
            transactions += index.overlapping(from_offset, to_offset)
            if any(entry.last_stable_offset >= to_offset for entry in index.entries):
                break
            offset = segment.end_offset + 1
        return transactions

    async def _batch_with(self, segment: RemoteSegment, offset: int) -> BatchPlace | None:
        """Return the first batch that ends at ``offset`` or later."""
        index = await self._source.offset_index(segment)
        async for place in self._batches(segment, index.lookup(offset).position):
            if place.batch.last_offset >= offset:
                return place
        return None

    async def _batches(self, segment: RemoteSegment, position: int) -> AsyncIterator[BatchPlace]:
        """Yield the batches of a segment from ``position``, where one begins."""
        data, data_at = b"", position
        while position < segment.size_bytes:
            at = position - data_at
            if at + HEADER_BYTES > len(data):
                data = await self._source.read_some(segment, position, HEADER_BYTES, SCAN_BYTES)
                data_at, at = position, 0
            try:
                batch = RecordBatch.peek(memoryview(data)[at:])
            except BrokerError as error:
                # The store's bytes were checked: those of the cache have changed since.
                self._source.forget(segment)
                raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"in the cache: {error}") from None
            yield BatchPlace(position, batch.size_bytes, batch)
            position += batch.size_bytes

    # By time

    async def first_at(self, timestamp_ms: int, from_offset: int, to_offset: int) -> TimestampOffset | None:
        """Return the first record in the range of offsets with a timestamp ≥ ``timestamp_ms``."""
        for served in list(self._history.lineage(from_offset)):
            if served.start_offset >= to_offset:
                break
            if served.segment.max_timestamp_ms >= timestamp_ms:
                start, end = max(served.start_offset, from_offset), min(served.end_offset, to_offset)
                place = await self._first_in(served.segment, timestamp_ms, start)
                if place is not None and place.offset < end:
                    return place
        return None

    async def _first_in(
        self, segment: RemoteSegment, timestamp_ms: int, from_offset: int
    ) -> TimestampOffset | None:
        times = await self._source.time_index(segment)
        index = await self._source.offset_index(segment)
        begin = max(times.lookup(timestamp_ms).offset, from_offset)
        async for place in self._batches(segment, index.lookup(begin).position):
            header = place.batch
            if header.max_timestamp >= timestamp_ms and header.last_offset >= from_offset:
                data = await self._source.read(segment, place.position, place.size_bytes)
                batch = RecordBatch(memoryview(data))
                position = await self._runtime.offload(record_at_time, batch, timestamp_ms, from_offset)
                if position is not None:
                    return position
        return None

    async def highest_timestamp(self, from_offset: int, to_offset: int) -> TimestampOffset | None:
        """Return the first record in the range with the highest timestamp of its segments; ``None`` without one."""
        newest = -1
        for served in self._history.lineage(from_offset):
            if served.start_offset < to_offset:
                newest = max(newest, served.segment.max_timestamp_ms)
        return None if newest < 0 else await self.first_at(newest, from_offset, to_offset)


def _end_at(index: OffsetIndex, position: int, segment: RemoteSegment) -> int:
    """Return an offset that every record before ``position`` lies below."""
    at = bisect_left(range(len(index)), position, key=lambda entry: index.entry(entry).position)
    return segment.end_offset + 1 if at == len(index) else index.entry(at).offset
