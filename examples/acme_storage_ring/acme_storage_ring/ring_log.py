"""The log of one partition in memory, whose oldest segments fall off when it holds too much.

Batches lie in one list in offset order; a segment is a range of that list. What is placed is written at the end of
the turn, and what is written counts as flushed: there is nothing more lasting here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

import msgspec

from blumfeld.config.values import TopicConfig
from blumfeld.log.segments.rules import ActiveSegment, IncomingBatch, RollLimits, should_roll
from blumfeld.spi.compaction import CompactionRequest, CompactionResult
from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import Part
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.storage import (
    AuxFiles,
    LogListener,
    LogRead,
    OffsetOutOfRangeError,
    SegmentInfo,
    TimestampOffset,
    WriteOutcome,
)
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import times

SEGMENTS_IN_RING = 4
"""The largest segment is this part of the ring, so that a fall-off takes no more than that."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One batch: a copy of its bytes, since the receive buffer isn't ours."""

    base_offset: int
    next_offset: int
    max_timestamp_ms: int
    data: bytes

    def view(self) -> RecordBatch:
        """The batch itself."""
        return RecordBatch(memoryview(self.data))


class Segment(msgspec.Struct):
    """Where a segment begins, and what it holds."""

    base_offset: int
    created_ms: int
    modified_ms: int
    size_bytes: int = 0


class MemoryAux:
    """``AuxFiles`` in a dictionary."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def names(self) -> list[str]:
        """All of them, sorted."""
        return sorted(self._files)

    def read(self, name: str) -> bytes | None:
        """The file's bytes, or ``None``."""
        return self._files.get(name)

    def write(self, name: str, data: bytes) -> None:
        """Replace it."""
        self._files[name] = bytes(data)

    write_unsynced = write

    def delete(self, name: str) -> None:
        """Remove it; it may be absent."""
        self._files.pop(name, None)


class RingLog:
    """``PartitionLog`` with at most ``bytes_max`` bytes, and one batch more; ``None`` is without limit."""

    def __init__(
        self,
        runtime: Runtime,
        directory_id: bytes,
        bytes_max: int | None,
        config: TopicConfig,
        listener: LogListener,
    ) -> None:
        self.aux: AuxFiles = MemoryAux()
        self.directory_id = directory_id
        self.cleaned_end_offset = 0
        self.log_start_offset = 0
        self.placed_end_offset = self.written_end_offset = self.flushed_end_offset = 0
        self._runtime = runtime
        self._bytes_max = bytes_max
        self._config = config
        self._listener = listener
        self._placed: list[RecordBatch] = []
        self._batches: list[Stored] = []
        self._segments = [Segment(0, runtime.now_ms(), runtime.now_ms())]
        self._size_bytes = 0

    def reopen(self, config: TopicConfig, listener: LogListener) -> None:
        """Opened again after a close: the same records, maybe another owner."""
        self._config, self._listener = config, listener

    # Append

    def place(self, batch: RecordBatch, leader_epoch: int) -> int:
        """Give the batch the next offsets."""
        base_offset = self.placed_end_offset
        batch.assign_offset(base_offset, leader_epoch)
        self._placed.append(batch)
        self.placed_end_offset = batch.next_offset
        return base_offset

    def place_as_is(self, batch: RecordBatch) -> None:
        """Place a batch that has its offsets already."""
        if batch.base_offset < self.placed_end_offset:
            raise ValueError(f"a batch at {batch.base_offset} can't follow {self.placed_end_offset}")
        self._placed.append(batch)
        self.placed_end_offset = batch.next_offset

    def write(self, done: Callable[[WriteOutcome], None]) -> None:
        """Keep what is placed; then let the oldest segments fall off."""
        placed, self._placed = self._placed, []
        for batch in placed:
            if self._must_roll_before(batch):
                self._begin_segment(batch.base_offset)
            self._store(batch)
        self.written_end_offset = self.flushed_end_offset = self.placed_end_offset
        self._fall_off()
        done(WriteOutcome(self.written_end_offset))

    def _store(self, batch: RecordBatch) -> None:
        data = bytes(batch.data)
        self._batches.append(Stored(batch.base_offset, batch.next_offset, batch.max_timestamp, data))
        segment = self._segments[-1]
        segment.size_bytes += len(data)
        segment.modified_ms = self._runtime.now_ms()
        self._size_bytes += len(data)

    def _must_roll_before(self, batch: RecordBatch) -> bool:
        segment = self._segments[-1]
        if not segment.size_bytes:
            return False
        first = self._batches[self._first_at(segment.base_offset)]
        active = ActiveSegment(
            base_offset=segment.base_offset,
            size_bytes=segment.size_bytes,
            created_ms=segment.created_ms,
            first_timestamp_ms=first.max_timestamp_ms,
        )
        segment_bytes = self._config.segment_bytes
        if self._bytes_max is not None:
            segment_bytes = min(segment_bytes, self._bytes_max // SEGMENTS_IN_RING)
        limits = RollLimits(segment_bytes=segment_bytes, segment_ms=self._config.segment_ms)
        incoming = IncomingBatch(batch.size_bytes, batch.last_offset, batch.max_timestamp)
        return should_roll(active, incoming, self._runtime.now_ms(), limits) is not None

    def _begin_segment(self, base_offset: int) -> None:
        now_ms = self._runtime.now_ms()
        self._segments.append(Segment(base_offset, now_ms, now_ms))
        self._listener.rolled(base_offset)

    def _fall_off(self) -> None:
        """This is the ring."""
        while self._bytes_max is not None and self._size_bytes > self._bytes_max and len(self._segments) > 1:
            self.drop_segments(self._segments[1].base_offset)

    def roll(self) -> None:
        """Seal the active segment now."""
        if self._segments[-1].size_bytes:
            self._begin_segment(self.written_end_offset)

    def flush(self) -> Completion[int]:
        """Done: it can't last any longer."""
        return Completion.of(self.flushed_end_offset)

    # Read

    def _first_at(self, offset: int) -> int:
        """Which batch is the first that ends behind ``offset``."""
        return bisect_right(self._batches, offset, key=lambda stored: stored.next_offset)

    def read(self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool) -> LogRead:
        """Whole batches from the one that contains ``offset``."""
        if not self.log_start_offset <= offset <= self.written_end_offset:
            raise OffsetOutOfRangeError(
                f"{offset} is outside of {self.log_start_offset}..{self.written_end_offset}"
            )
        parts: list[Part] = []
        size = 0
        for at in range(self._first_at(offset), len(self._batches)):
            stored = self._batches[at]
            if stored.next_offset > end_offset:
                break
            if size + len(stored.data) > bytes_max and (parts or not minimum_one_batch):
                break
            parts.append(stored.data)
            size += len(stored.data)
            offset = stored.next_offset
        return LogRead(parts, size, offset)

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        """Written batches from the one that contains ``offset`` on."""
        for stored in self._batches[self._first_at(offset) :]:
            yield stored.view()

    def offset_for_time(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record with a timestamp ≥ ``timestamp_ms``."""
        for stored in self._batches[self._first_at(self.log_start_offset) :]:
            if stored.max_timestamp_ms < timestamp_ms:
                continue
            batch = stored.view()
            for time_ms, offset in times(batch):
                if time_ms >= timestamp_ms and offset >= self.log_start_offset:
                    return TimestampOffset(time_ms, offset, batch.partition_leader_epoch)
        return None

    def max_timestamp(self) -> TimestampOffset | None:
        """The first record with the highest timestamp; a batch at the log's start may hold it below that start."""
        newest: TimestampOffset | None = None
        for stored in self._batches[self._first_at(self.log_start_offset) :]:
            if newest is not None and stored.max_timestamp_ms <= newest.timestamp_ms:
                continue
            batch = stored.view()
            for time_ms, offset in times(batch):
                if offset < self.log_start_offset:
                    continue
                if newest is None or time_ms > newest.timestamp_ms:
                    newest = TimestampOffset(time_ms, offset, batch.partition_leader_epoch)
        return newest

    # Segments

    def segments(self) -> Sequence[SegmentInfo]:
        """All segments, the active one last."""
        ends = [segment.base_offset for segment in self._segments[1:]] + [self.written_end_offset]
        return [
            SegmentInfo(
                base_offset=segment.base_offset,
                next_offset=end,
                size_bytes=segment.size_bytes,
                max_timestamp_ms=self._newest_ms(segment, end),
                created_ms=segment.created_ms,
                modified_ms=segment.modified_ms,
                sealed=segment is not self._segments[-1],
                files=(),
            )
            for segment, end in zip(self._segments, ends, strict=True)
        ]

    def _newest_ms(self, segment: Segment, end_offset: int) -> int:
        if not segment.size_bytes:
            return -1
        within = self._batches[self._first_at(segment.base_offset) : self._first_at(end_offset)]
        newest = max(stored.max_timestamp_ms for stored in within)
        return newest if newest >= 0 else segment.modified_ms

    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return self._size_bytes

    def drop_segments(self, end_offset: int) -> int:
        """Forget sealed segments that end at or below ``end_offset``."""
        count = 0
        while len(self._segments) > 1 and self._segments[1].base_offset <= end_offset:
            gone = self._segments.pop(0)
            self._size_bytes -= gone.size_bytes
            del self._batches[: self._first_at(self._segments[0].base_offset)]
            count += 1
        self.log_start_offset = max(self.log_start_offset, self._segments[0].base_offset)
        return count

    def advance_log_start(self, offset: int) -> None:
        """The log starts at ``offset`` now."""
        if offset > self.written_end_offset:
            raise ValueError(f"the log ends at {self.written_end_offset}, and can't start at {offset}")
        self.log_start_offset = max(self.log_start_offset, offset)

    # Truncation

    def truncate_to(self, offset: int) -> None:
        """Drop all batches that reach to ``offset`` or beyond it."""
        self._end_at(self.written_end_offset)
        if offset >= self.written_end_offset:
            return
        if offset <= self._segments[0].base_offset:
            self.truncate_fully(offset)
            return
        at = self._first_at(offset)
        if at < len(self._batches):
            offset = min(offset, self._batches[at].base_offset)
        del self._batches[at:]
        kept = bisect_left(self._segments, offset, key=lambda segment: segment.base_offset)
        del self._segments[max(kept, 1) :]
        segment = self._segments[-1]
        segment.size_bytes = sum(len(s.data) for s in self._batches[self._first_at(segment.base_offset) :])
        self._size_bytes = sum(segment.size_bytes for segment in self._segments)
        self._end_at(offset)

    def truncate_fully(self, start_offset: int) -> None:
        """Drop everything."""
        self._batches.clear()
        self._segments = [Segment(start_offset, self._runtime.now_ms(), self._runtime.now_ms())]
        self._size_bytes = 0
        self.log_start_offset = start_offset
        self._end_at(start_offset)

    def _end_at(self, offset: int) -> None:
        self._placed.clear()
        self.placed_end_offset = self.written_end_offset = self.flushed_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)

    # Life

    def compact(self, request: CompactionRequest) -> Completion[CompactionResult]:
        """Not done here: every record stays."""
        raise NotImplementedError("this storage does not compact")

    def reconfigure(self, config: TopicConfig) -> None:
        """The topic's configuration changed."""
        self._config = config

    def close(self) -> None:
        """Forget what was placed and never written; opened again, the rest is the same."""
        self._end_at(self.written_end_offset)
