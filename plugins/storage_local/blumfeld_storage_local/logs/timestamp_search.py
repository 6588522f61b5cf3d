"""Search a log by time: the segment by its highest timestamp, the batch by the time index, then the record.

A search reads headers and decompresses a batch, anywhere in a log. So it runs in a worker, with descriptors of its own,
on a list of segments that the loop took down. The loop finds out afterwards whether the log was cut meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from blumfeld.log.segments.file_names import Suffix
from blumfeld.log.segments.index import CorruptIndex, OffsetIndex, TimeIndex, TimestampPosition
from blumfeld.log.segments.record_search import record_at_time
from blumfeld.spi.runtime import File, Files
from blumfeld.spi.storage import TimestampOffset
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld_storage_local.segments.index_files import highest_timestamp
from blumfeld_storage_local.segments.scan import BatchAt, read_batches, scan

Check = Callable[[], None]
"""Raises ``OSError`` once the log is closed."""


class TimedSegment(msgspec.Struct):
    """A segment as it was when the search began."""

    path_of: Callable[[Suffix], str]
    base_offset: int
    next_offset: int
    size_bytes: int
    highest: TimestampPosition | None
    """``None`` if it is not known yet: the worker finds it."""
    indexes: tuple[OffsetIndex, TimeIndex] | None = None
    """Copies of the indexes, for the active segment: its files lack the newest entries."""


def first_at_or_after(
    files: Files, segments: Sequence[TimedSegment], timestamp_ms: int, log_start_offset: int, check: Check
) -> TimestampOffset | None:
    """Find the first record, from the log start on, with a timestamp ≥ ``timestamp_ms``. Blocks.

    :param segments: oldest first
    :param check: called now and then
    :raises InvalidRecord: a client wrote a batch whose records break the format
    :raises OSError: a segment is gone, its bytes are no batches, or the log was closed
    """
    for segment in segments:
        if _highest(files, segment).timestamp_ms < timestamp_ms:
            continue
        with _opened(files, segment) as file:
            start = _start(files, segment, timestamp_ms, log_start_offset)
            for at in scan(file, start, segment.size_bytes):
                if at.max_timestamp_ms >= timestamp_ms and at.last_offset >= log_start_offset:
                    position = record_at_time(_batch(file, at), timestamp_ms, log_start_offset, check)
                    if position is not None:
                        return position
    return None


def first_highest(
    files: Files, segments: Sequence[TimedSegment], log_start_offset: int, check: Check
) -> TimestampOffset | None:
    """Find the first record, from the log start on, with the highest timestamp of all. Blocks.

    Takes and raises the same as :func:`first_at_or_after`.
    """
    best: TimedSegment | None = None
    for segment in segments:
        highest = _highest(files, segment)
        if highest.timestamp_ms >= 0 and (
            best is None or highest.timestamp_ms > _highest(files, best).timestamp_ms
        ):
            best = segment
    if best is None:
        return None
    highest = _highest(files, best)
    if highest.offset < log_start_offset:  # DeleteRecords took it away: only headers tell the next
        return _highest_by_headers(files, segments, log_start_offset, check)
    with _opened(files, best) as file:
        for at in scan(file, _position(files, best, highest.offset), best.size_bytes):
            if at.last_offset >= highest.offset:
                return record_at_time(_batch(file, at), highest.timestamp_ms, log_start_offset, check)
    return None


def _highest_by_headers(
    files: Files, segments: Sequence[TimedSegment], log_start_offset: int, check: Check
) -> TimestampOffset | None:
    best: tuple[int, TimedSegment, BatchAt] | None = None
    for segment in segments:
        if segment.next_offset <= log_start_offset:
            continue
        with _opened(files, segment) as file:
            for at in scan(file, _position(files, segment, log_start_offset), segment.size_bytes):
                if at.last_offset >= log_start_offset and (best is None or at.max_timestamp_ms > best[0]):
                    best = at.max_timestamp_ms, segment, at
    if best is None or best[0] < 0:
        return None
    with _opened(files, best[1]) as file:
        batch = _batch(file, best[2])
    position = record_at_time(batch, best[0], log_start_offset, check)
    return position or record_at_time(batch, -1, log_start_offset, check)


def _highest(files: Files, segment: TimedSegment) -> TimestampPosition:
    if segment.highest is None:
        try:
            segment.highest = highest_timestamp(
                files, segment.path_of, segment.base_offset, segment.next_offset
            )
        except (FileNotFoundError, CorruptIndex):
            position = TimestampPosition(-1, segment.base_offset)
            with _opened(files, segment) as file:
                for at in scan(file, 0, segment.size_bytes):
                    if at.max_timestamp_ms > position.timestamp_ms:
                        position = TimestampPosition(at.max_timestamp_ms, at.last_offset)
            segment.highest = position
    return segment.highest


def _start(files: Files, segment: TimedSegment, timestamp_ms: int, log_start_offset: int) -> int:
    offset = segment.base_offset
    with suppress(FileNotFoundError, CorruptIndex):
        if segment.indexes is not None:
            times = segment.indexes[1]
        else:
            times = TimeIndex(offset, files.read_bytes(segment.path_of(Suffix.TIME_INDEX)))
            times.check()
        offset = times.lookup(timestamp_ms).offset
    return _position(files, segment, max(offset, log_start_offset))


def _position(files: Files, segment: TimedSegment, offset: int) -> int:
    """Return a position at which a batch starts, such that every batch before it ends below ``offset``."""
    with suppress(FileNotFoundError, CorruptIndex):
        if segment.indexes is not None:
            offsets = segment.indexes[0]
        else:
            data = files.read_bytes(segment.path_of(Suffix.OFFSET_INDEX))
            offsets = OffsetIndex(segment.base_offset, data)
            offsets.check(segment.size_bytes)
        return offsets.lookup(offset).position
    return 0


@contextmanager
def _opened(files: Files, segment: TimedSegment) -> Iterator[File]:
    file = files.open(segment.path_of(Suffix.LOG), write=False)
    try:
        yield file
    finally:
        file.close()


def _batch(file: File, at: BatchAt) -> RecordBatch:
    return next(read_batches(lambda: file, at.position, at.position + at.size_bytes))
