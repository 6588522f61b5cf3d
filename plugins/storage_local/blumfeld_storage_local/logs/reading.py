"""A log's reading half: bytes for an answer, batches, what its segments are."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence

from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import LogRead, LogReadOutcome, SegmentInfo
from blumfeld.wire.record_batch import RecordBatch
from blumfeld_storage_local.logs.cold_reads import ColdBytesError, UncheckedBytesError
from blumfeld_storage_local.logs.log_state import LogState
from blumfeld_storage_local.segments.scan import REPAIR, SCAN_BYTES
from blumfeld_storage_local.segments.segment import Segment
from blumfeld_storage_local.segments.segment_check import check_of, take_check

COLD_ROUNDS_MAX = 8
"""How often a read looks for cold bytes, its indexes', its own, those at its limit; then it reads anyway."""


class ReadingHalf(LogState):
    """What of ``PartitionLog`` changes nothing, but for look-ups by time."""

    def read(self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool) -> LogReadOutcome:
        """Bytes from the batch that contains ``offset``; see the contract. Cold ones come by a completion."""
        try:
            return self._read(offset, bytes_max, end_offset, minimum_one_batch, True)
        except ColdBytesError as cold:
            done: Completion[LogRead] = Completion()
            self._runtime.spawn(
                self._read_cold(cold, done, offset, bytes_max, end_offset, minimum_one_batch),
                f"read {self.directory}",
            )
            return done

    async def _read_cold(
        self,
        cold: ColdBytesError,
        done: Completion[LogRead],
        offset: int,
        bytes_max: int,
        end_offset: int,
        minimum_one_batch: bool,
    ) -> None:
        """Meanwhile the log may be cut, rolled or closed: each round begins anew with what is there."""
        try:
            for rounds_left in range(COLD_ROUNDS_MAX, -1, -1):
                try:
                    await self._bring(cold)
                    end = min(end_offset, self.written_end_offset)
                    found = self._read(offset, bytes_max, end, minimum_one_batch, rounds_left > 0)
                except ColdBytesError as more:
                    cold = more
                else:
                    done.complete(found)
                    return
            raise OSError(errno.EAGAIN, "the bytes never came", self.directory)
        except (OSError, LookupError) as error:
            done.fail(error)

    async def _bring(self, cold: ColdBytesError) -> None:
        segment = cold.segment
        known = segment.checked.damaged_at
        try:
            await self._home.cold_reads.bring(cold)
        finally:
            position = segment.checked.damaged_at
            if position >= 0 and position != known:
                if segment is self._segments.active and not self._is_awake:
                    self._as_closed = False  # so that the next start recovers it
                self._home.events.error(
                    "bytes that are no batch, served up to there",
                    file=segment.path(),
                    position=position,
                    repair=REPAIR,
                )

    def _read(
        self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool, look: bool
    ) -> LogRead:
        """:raises ColdBytesError: only if ``look``: it would wait for a disk"""
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
        while True:
            segment = segments[at]
            recent, start = segment.is_recent(offset), -1
            if look and not recent:
                start = self._look(segment, offset, bytes_max)
            position, first_bytes = segment.locate(offset, start)
            at += 1
            if first_bytes or at == len(segments):
                break  # otherwise compaction took the end of that segment
        if end_offset >= segment.next_offset:
            end_offset, limit = segment.next_offset, segment.size_bytes
        else:
            if look and not segment.is_recent(end_offset):
                self._look(segment, end_offset, 0)
            limit, _ = segment.locate(end_offset)
        size = limit - position
        if size > bytes_max:
            size = bytes_max if first_bytes <= bytes_max or not minimum_one_batch else first_bytes
        if size <= 0:
            return LogRead([], 0, offset)
        if not recent:
            if look and size > bytes_max:
                self._home.cold_reads.look(segment, position, size)
            size = self._sound(segment, position, size, look)
        return LogRead([segment.part(position, size)], size, end_offset)

    def _sound(self, segment: Segment, position: int, size: int, look: bool) -> int:
        """How many of these bytes may be served: those before a damage, where there is one.

        :raises UncheckedBytesError: only if ``look``: a worker has to look at them first
        """
        sound = segment.checked.sound_bytes(position, size)
        if not sound:
            if look:
                raise UncheckedBytesError(segment, position, size)
            take_check(segment, position, check_of(segment, position, size)())
            sound = segment.checked.sound_bytes(position, size)
        return sound

    def _look(self, segment: Segment, offset: int, bytes_max: int) -> int:
        """See that ``bytes_max`` from the batch with ``offset`` on can be found and read without waiting.

        Gives the position at which the look for that batch begins; -1 if the segment ends before it.
        """
        if offset >= segment.next_offset:
            return -1
        cold_reads = self._home.cold_reads
        cold_reads.look_for_indexes(segment)
        position = segment.position_before(offset)
        cold_reads.look(segment, position, min(bytes_max + SCAN_BYTES, segment.size_bytes - position))
        return position

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

    def segments(self) -> Sequence[SegmentInfo]:
        """All segments, the active one last."""
        self._check()
        return [
            segment.info(self._highest(segment).timestamp_ms, sealed=segment is not self._segments.active)
            for segment in self._segments
        ]

    def size_bytes(self) -> int:
        """Bytes of record batches."""
        self._check()
        return sum(segment.size_bytes for segment in self._segments)
