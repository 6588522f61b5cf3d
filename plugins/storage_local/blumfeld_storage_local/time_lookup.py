"""Look-ups by time: the segment by its highest timestamp, the batch by the time index, the record inside the batch."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.log.segment_index import TimestampPosition
from blumfeld.spi.storage import TimestampOffset
from blumfeld.wire.record_batch import RecordBatch
from blumfeld.wire.records import records
from blumfeld_storage_local.scan import BatchAt
from blumfeld_storage_local.segment import Segment


def first_at_or_after(
    segments: Sequence[tuple[Segment, TimestampPosition]], timestamp_ms: int, log_start_offset: int
) -> TimestampOffset | None:
    """The first record, from the log start on, with a timestamp ≥ ``timestamp_ms``.

    :param segments: each with its highest timestamp, oldest first
    :raises InvalidRecord: a client wrote a batch whose records break the format
    """
    for segment, highest in segments:
        if highest.timestamp_ms < timestamp_ms:
            continue
        start = max(segment.times.lookup(timestamp_ms).offset, log_start_offset)
        for at in segment.scan_from(start):
            if at.max_timestamp_ms >= timestamp_ms and at.last_offset >= log_start_offset:
                batch = segment.batch(at)
                found = _record(batch, timestamp_ms, log_start_offset)
                if found is not None:
                    return found
    return None


def first_highest(
    segments: Sequence[tuple[Segment, TimestampPosition]], log_start_offset: int
) -> TimestampOffset | None:
    """The first record, from the log start on, with the highest timestamp of all.

    :param segments: as of :func:`first_at_or_after`
    :raises InvalidRecord: likewise
    """
    best: tuple[Segment, TimestampPosition] | None = None
    for segment, highest in segments:
        if highest.timestamp_ms >= 0 and (best is None or highest.timestamp_ms > best[1].timestamp_ms):
            best = segment, highest
    if best is None:
        return None
    segment, highest = best
    if highest.offset < log_start_offset:  # DeleteRecords took it away: only the headers know the next
        return _highest_by_headers([segment for segment, _ in segments], log_start_offset)
    return _record(next(segment.batches(highest.offset)), highest.timestamp_ms, log_start_offset)


def _highest_by_headers(segments: Sequence[Segment], log_start_offset: int) -> TimestampOffset | None:
    best: tuple[int, Segment, BatchAt] | None = None
    for segment in segments:
        if segment.next_offset <= log_start_offset:
            continue
        for at in segment.scan_from(log_start_offset):
            if at.last_offset >= log_start_offset and (best is None or at.max_timestamp_ms > best[0]):
                best = at.max_timestamp_ms, segment, at
    if best is None or best[0] < 0:
        return None
    batch = best[1].batch(best[2])
    return _record(batch, best[0], log_start_offset) or _record(batch, -1, log_start_offset)


def _record(batch: RecordBatch, timestamp_ms: int, from_offset: int) -> TimestampOffset | None:
    for record in records(batch):
        if record.timestamp >= timestamp_ms and record.offset >= from_offset:
            return TimestampOffset(record.timestamp, record.offset, batch.partition_leader_epoch)
    return None
