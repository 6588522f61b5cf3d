"""Read a log: bytes for an answer, batches one by one, and what its segments are."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from typing import Protocol

from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import LogRead, OffsetOutOfRangeError, SegmentInfo
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.logs.active_writer import ActiveWriter
from blumfeld_storage_local.segment_list import SegmentList
from blumfeld_storage_local.segments.cold_reads import ColdBytesError, UncheckedBytesError
from blumfeld_storage_local.segments.scan import REPAIR, SCAN_BYTES
from blumfeld_storage_local.segments.segment import Segment
from blumfeld_storage_local.segments.segment_check import check_of, take_check

COLD_TRIES_MAX = 8
"""How often a read has cold bytes brought: its indexes, its own bytes, those at its limit. Then it reads anyway."""


class ReadLog(Protocol):
    """What the reader asks of its log."""

    home: LogDirectory
    directory: str
    is_open: bool
    log_start_offset: int
    written_end_offset: int

    def check(self) -> None:
        """Raise ``OSError`` if the log is closed or its directory offline."""
        ...


class LogReader:
    """Reads what is written. Changes nothing of the log."""

    __slots__ = ("_active", "_log", "_segments")

    def __init__(self, log: ReadLog, segments: SegmentList, active: ActiveWriter) -> None:
        self._log = log
        self._segments = segments
        self._active = active

    def read(
        self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool, look: bool
    ) -> LogRead:
        """Return bytes from the batch that contains ``offset``, as ``PartitionLog.read`` says.

        :param look: see first that nothing would wait for a disk
        :raises ColdBytesError: only if ``look``: it would; :meth:`read_later` reads then
        :raises OffsetOutOfRangeError: ``offset`` is outside of the log
        """
        log = self._log
        if offset < log.log_start_offset or offset > log.written_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is outside of {log.log_start_offset}..{log.written_end_offset}"
            )
        if log.home.error is not None or not log.is_open:
            log.check()
        if offset >= end_offset:
            return LogRead([], 0, offset)
        segments = self._segments
        at = segments.index_of(offset)
        while True:
            segment = segments[at]
            # The newest batches are in the page cache, and this process has written or walked them: no look, no check.
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
            size = bytes_max if first_bytes <= bytes_max else first_bytes if minimum_one_batch else 0
        if size <= 0:
            return LogRead([], 0, offset)
        if not recent:
            if look and size > bytes_max:
                log.home.cold_reads.look(segment, position, size)
            size = self._sound(segment, position, size, look)
        return LogRead([segment.part(position, size)], size, end_offset)

    def read_later(
        self, cold: ColdBytesError, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool
    ) -> Completion[LogRead]:
        """Return the completion of a read that :meth:`read` refused: a worker brings the bytes first."""
        done: Completion[LogRead] = Completion()
        log = self._log
        log.home.runtime.spawn(
            self._read_cold(cold, done, offset, bytes_max, end_offset, minimum_one_batch),
            f"read {log.directory}",
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
        # The log may be cut, rolled or closed while a worker reads, so each try begins anew with what is there.
        try:
            for tries_left in range(COLD_TRIES_MAX, -1, -1):
                try:
                    await self._bring(cold)
                    end = min(end_offset, self._log.written_end_offset)
                    found = self.read(offset, bytes_max, end, minimum_one_batch, tries_left > 0)
                except ColdBytesError as more:
                    cold = more
                else:
                    done.complete(found)
                    return
            raise OSError(errno.EAGAIN, "the bytes never came", self._log.directory)
        except Exception as error:  # a defect, too, is the read's: the request that waits for it is answered
            done.fail(error)

    async def _bring(self, cold: ColdBytesError) -> None:
        segment = cold.segment
        known = segment.checked.damaged_at
        try:
            await self._log.home.cold_reads.bring(cold)
        finally:
            position = segment.checked.damaged_at
            if position >= 0 and position != known:
                self._active.distrust(segment)
                self._log.home.events.error(
                    "bytes that are no batch, served up to there",
                    file=segment.path(),
                    position=position,
                    repair=REPAIR,
                )

    def _sound(self, segment: Segment, position: int, size: int, look: bool) -> int:
        """Return how many of these bytes may be served: those before a damage, where there is one.

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

        :return: the position at which the search for that batch begins; -1 if the segment ends before it
        :raises ColdBytesError: they can't
        """
        if offset >= segment.next_offset:
            return -1
        cold_reads = self._log.home.cold_reads
        cold_reads.look_for_indexes(segment)
        position = segment.position_before(offset)
        cold_reads.look(segment, position, min(bytes_max + SCAN_BYTES, segment.size_bytes - position))
        return position

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        """Yield written batches from the one that contains ``offset`` on."""
        log = self._log
        log.check()
        end_offset = log.written_end_offset
        while offset < end_offset:
            log.check()
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
        """Return all segments, the active one last."""
        self._log.check()
        active, highest = self._segments.active, self._active.highest
        return [
            segment.info(highest(segment).timestamp_ms, sealed=segment is not active)
            for segment in self._segments
        ]

    def size_bytes(self) -> int:
        """Return the bytes of record batches in all segments."""
        self._log.check()
        return sum(segment.size_bytes for segment in self._segments)
