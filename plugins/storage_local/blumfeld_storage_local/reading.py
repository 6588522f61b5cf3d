"""A log's reading half: bytes for an answer, batches, times, what its segments are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from blumfeld.log.segment_index import TimestampPosition
from blumfeld.spi.storage import LogRead, SegmentInfo, TimestampOffset
from blumfeld.wire.record_batch import RecordBatch
from blumfeld_storage_local.log_state import LogState
from blumfeld_storage_local.segment import Segment
from blumfeld_storage_local.time_lookup import first_at_or_after, first_highest


class ReadingHalf(LogState):
    """What of ``PartitionLog`` changes nothing."""

    def read(self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool) -> LogRead:
        """Bytes from the batch that contains ``offset``; see the contract."""
        if offset < self.log_start_offset or offset > self.written_end_offset:
            raise LookupError(
                f"offset {offset} is outside of {self.log_start_offset}..{self.written_end_offset}"
            )
        if self._home.error is not None or not self.is_open:
            self._check()
        if offset >= end_offset:
            return LogRead([], 0, offset)
        segments = self._segments
        at = segments.index_of(offset)
        segment = segments[at]
        position, first_bytes = segment.locate(offset)
        while first_bytes == 0 and at + 1 < len(segments):  # compaction took the end of that segment
            at += 1
            segment = segments[at]
            position, first_bytes = segment.locate(offset)
        if end_offset >= segment.next_offset:
            end_offset, limit = segment.next_offset, segment.size_bytes
        else:
            limit, _ = segment.locate(end_offset)
        size = limit - position
        if size > bytes_max:
            size = bytes_max if first_bytes <= bytes_max or not minimum_one_batch else first_bytes
        if size <= 0:
            return LogRead([], 0, offset)
        return LogRead([segment.part(position, size)], size, end_offset)

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        """Written batches from the one that contains ``offset`` on."""
        self._check()
        end_offset = self.written_end_offset
        while offset < end_offset:
            self._check()
            segment = self._segments[self._segments.index_of(offset)]
            try:
                for batch in segment.batches(offset):
                    if batch.base_offset >= end_offset:
                        return
                    yield batch
                    offset = batch.next_offset
            except OSError:
                if segment in self._segments:
                    raise
                continue  # compaction has put another in its place
            if segment.next_offset < offset:
                return  # it was cut meanwhile
            offset = max(offset, segment.next_offset)

    def offset_for_time(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record with a timestamp ≥ ``timestamp_ms``."""
        self._check()
        return first_at_or_after(self._timed(), timestamp_ms, self.log_start_offset)

    def max_timestamp(self) -> TimestampOffset | None:
        """The first record with the highest timestamp."""
        self._check()
        return first_highest(self._timed(), self.log_start_offset)

    def _timed(self) -> list[tuple[Segment, TimestampPosition]]:
        """Each segment with its highest timestamp."""
        active = self._segments.active
        return [(s, self._writer.highest if s is active else s.highest) for s in self._segments]

    def segments(self) -> Sequence[SegmentInfo]:
        """All segments, the active one last."""
        self._check()
        return [
            segment.info(highest.timestamp_ms, sealed=segment is not self._segments.active)
            for segment, highest in self._timed()
        ]

    def size_bytes(self) -> int:
        """Bytes of record batches."""
        self._check()
        return sum(segment.size_bytes for segment in self._segments)
