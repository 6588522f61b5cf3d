"""Logs in memory for the tests of cleaning: segments to read, segments in the making, and rounds over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from blumfeld.log.cleaning.cleaner_pass import BatchSpan, Buffer, clean
from blumfeld.spi.compaction import (
    AbortedTransaction,
    CompactionRequest,
    CompactionResult,
    LastProducerBatch,
)
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.control_records import build_transaction_marker
from blumfeld.wire.batches.record_batch import NO_TIMESTAMP, RecordBatch, split_batches
from blumfeld.wire.batches.records import Record, records
from blumfeld.wire.compression.codec import Codec

T = 1_700_000_000_000
DAY_MS = 86_400_000


class MemorySource:
    """A sealed segment."""

    def __init__(self, base_offset: int, next_offset: int, data: bytes, modified_ms: int = T) -> None:
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.data = data
        self.size_bytes = len(data)
        self.modified_ms = modified_ms

    def read(self, position: int, size: int) -> bytes:
        return self.data[position : position + size]


class MemoryTarget:
    """A segment in the making, which believes nothing that it is told."""

    def __init__(self, base_offset: int, replaced: Sequence[int]) -> None:
        self.base_offset = base_offset
        self.replaced = list(replaced)
        self.data = b""
        self.aborted: list[AbortedTransaction] | None = None
        self.modified_ms = -1
        self.buffers = 0

    def append(self, buffers: Sequence[Buffer], batches: Sequence[BatchSpan]) -> None:
        assert self.aborted is None
        data = b"".join(buffers)
        self.buffers += len(buffers)
        spans = [
            BatchSpan(
                batch.last_offset,
                batch.size_bytes,
                batch.max_timestamp if batch.record_count else NO_TIMESTAMP,
            )
            for batch in split_batches(memoryview(data))
        ]
        assert spans == list(batches)
        self.data += data

    def finish(self, aborted: Sequence[AbortedTransaction], modified_ms: int) -> None:
        assert self.aborted is None
        self.aborted = list(aborted)
        self.modified_ms = modified_ms


class MemoryLog:
    """Sealed segments that rounds replace."""

    def __init__(self, *segments: Iterable[bytes | bytearray]) -> None:
        self.sources: list[MemorySource] = []
        self.targets: list[MemoryTarget] = []
        """Segments that the last round wrote."""
        for segment in segments:
            self.add([bytes(batch) for batch in segment])

    def add(self, segment: Sequence[bytes], modified_ms: int = T) -> None:
        """One more segment, which must not be empty."""
        batches = [RecordBatch(memoryview(batch)) for batch in segment]
        base_offset = self.sources[-1].next_offset if self.sources else batches[0].base_offset
        data = b"".join(segment)
        self.sources.append(MemorySource(base_offset, batches[-1].next_offset, data, modified_ms))

    @property
    def end_offset(self) -> int:
        return self.sources[-1].next_offset

    def round(
        self,
        first_dirty_offset: int = 0,
        *,
        now_ms: int = T,
        delete_retention_ms: int = DAY_MS,
        segment_bytes: int = 1 << 30,
        segment_index_bytes: int = 10 << 20,
        map_bytes: int = 1 << 20,
        aborted: Sequence[AbortedTransaction] = (),
        producers: Mapping[int, LastProducerBatch] | None = None,
        end_offset: int | None = None,
    ) -> CompactionResult:
        """Clean, and put the targets where what they replace was."""
        request = CompactionRequest(
            first_dirty_offset=first_dirty_offset,
            end_offset=self.end_offset if end_offset is None else end_offset,
            now_ms=now_ms,
            delete_retention_ms=delete_retention_ms,
            segment_bytes=segment_bytes,
            segment_index_bytes=segment_index_bytes,
            index_interval_bytes=4096,
            batch_bytes_max=1 << 20,
            map_bytes=map_bytes,
            aborted=tuple(aborted),
            producers=producers or {},
        )
        self.targets = targets = []

        def open_target(base_offset: int, replaced: Sequence[int]) -> MemoryTarget:
            targets.append(MemoryTarget(base_offset, replaced))
            return targets[-1]

        steps = clean(self.sources, request, open_target)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                result: CompactionResult = stop.value
                break
        self._swap()
        return result

    def _swap(self) -> None:
        by_base = {source.base_offset: source for source in self.sources}
        for target in self.targets:
            assert target.aborted is not None
            old = [by_base.pop(base_offset) for base_offset in target.replaced]
            by_base[target.base_offset] = MemorySource(
                target.base_offset, old[-1].next_offset, target.data, target.modified_ms
            )
        self.sources = [by_base[base_offset] for base_offset in sorted(by_base)]

    def batches(self) -> list[RecordBatch]:
        """All that is there, with right CRCs and rising offsets."""
        read_batches: list[RecordBatch] = []
        for source in self.sources:
            next_offset = source.base_offset
            for batch in split_batches(memoryview(source.data)):
                batch.verify_crc()
                assert next_offset <= batch.base_offset
                next_offset = batch.next_offset
                assert next_offset <= source.next_offset
                read_batches.append(batch)
        return read_batches

    def survivors(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of each record that isn't a marker."""
        return [
            (record.offset, record.key, record.value)
            for batch in self.batches()
            if not batch.is_control
            for record in records(batch)
        ]


def batch(
    base_offset: int,
    *pairs: tuple[bytes | None, bytes | None],
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    timestamp_ms: int = T,
) -> bytes:
    """Records of keys and values, a millisecond apart."""
    made = [Record(key, value, timestamp=timestamp_ms + index) for index, (key, value) in enumerate(pairs)]
    return bytes(
        build_batch(
            made,
            base_offset=base_offset,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            leader_epoch=3,
            transactional=transactional,
        )
    )


def marker(base_offset: int, producer_id: int, *, commit: bool, timestamp_ms: int = T) -> bytes:
    """The end of a transaction."""
    return bytes(
        build_transaction_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=1,
            timestamp_ms=timestamp_ms,
            base_offset=base_offset,
            leader_epoch=3,
        )
    )
