"""Rules of rolling a segment, and of the segments that retention deletes (Kafka's ``LogSegment``). Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from blumfeld.log.segments.index import RELATIVE_OFFSET_MAX
from blumfeld.spi.storage import SegmentInfo

NO_TIMESTAMP = -1
UNLIMITED = -1


class RollLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The topic's limits, under Kafka's names."""

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int = 0
    """Drawn by the caller once for each segment, in [0, ``segment.jitter.ms``)."""


class ActiveSegment(msgspec.Struct, frozen=True, kw_only=True):
    """The active segment, with what is already due to be written before the batch counted in."""

    base_offset: int
    size_bytes: int
    created_ms: int
    first_timestamp_ms: int = NO_TIMESTAMP
    """Highest timestamp of the first batch; -1 if the segment is empty or the batch has none."""
    index_full: bool = False
    """The offset index or the time index is full."""


class IncomingBatch(msgspec.Struct, frozen=True):
    """The batch to be written."""

    size_bytes: int
    last_offset: int
    max_timestamp_ms: int = NO_TIMESTAMP


class RollReason(StrEnum):
    """Reason to roll a segment before a batch."""

    SIZE = "size"
    TIME = "time"
    INDEX_FULL = "index full"
    OFFSET_RANGE = "offset range"


def should_roll(
    segment: ActiveSegment, batch: IncomingBatch, now_ms: int, limits: RollLimits
) -> RollReason | None:
    """Returns the reason why ``batch`` must start a new segment, or ``None``.

    Time is measured by the records' timestamps if the segment's first batch has one, so that replayed old
    data rolls where it rolled before; else from the segment's creation to ``now_ms``.
    """
    if segment.size_bytes > limits.segment_bytes - batch.size_bytes:
        return RollReason.SIZE
    if segment.size_bytes > 0:
        if segment.first_timestamp_ms >= 0:
            waited_ms = batch.max_timestamp_ms - segment.first_timestamp_ms
        else:
            waited_ms = now_ms - segment.created_ms
        if waited_ms > limits.segment_ms - limits.segment_jitter_ms:
            return RollReason.TIME
    if segment.index_full:
        return RollReason.INDEX_FULL
    if batch.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        return RollReason.OFFSET_RANGE
    return None


class RetentionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Retention limits of a topic; -1 is unlimited. A topic that is only compacted has neither."""

    retention_ms: int = UNLIMITED
    retention_bytes: int = UNLIMITED


class RetentionPlan(msgspec.Struct, frozen=True):
    """The present work of retention: the segments that go, and whether to roll first."""

    end_offset: int
    """All segments that end at or below it go: the argument of ``PartitionLog.drop_segments``, and the new log
    start if it is above the old one.
    """
    segments: int
    """Number of segments that go; 0 if there is nothing to do."""
    roll: bool
    """The active segment is among them and must be rolled first."""


def plan_retention(
    segments: Sequence[SegmentInfo],
    limits: RetentionLimits,
    *,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
    copied_end_offset: int | None = None,
) -> RetentionPlan:
    """Select the segments at the beginning of a log that are to be deleted.

    A segment goes only together with all segments before it, and only below the high watermark. One of
    these must hold:

    * It is sealed and wholly below the log start.
    * The log has ``retention_bytes`` without it.
    * Its highest timestamp is more than ``retention_ms`` in the past. The file's modification time counts
      if no record has a timestamp.

    An empty active segment stays. An empty sealed one, which compaction left, may go like any other.

    :param segments: all of them, oldest first, the active one last
    :param copied_end_offset: a remote store has what lies below. Only such a segment, or one wholly below the log
        start, may go. ``None``: there is no store to wait for
    """
    excess_bytes = UNLIMITED
    if limits.retention_bytes >= 0:
        excess_bytes = sum(segment.size_bytes for segment in segments) - limits.retention_bytes
    gone = 0
    for segment in segments:
        if segment.next_offset > high_watermark or (segment.size_bytes == 0 and not segment.sealed):
            break
        below_start = segment.sealed and segment.next_offset <= log_start_offset
        if copied_end_offset is not None and segment.next_offset > copied_end_offset and not below_start:
            break
        outgrown = limits.retention_bytes >= 0 and excess_bytes >= segment.size_bytes
        if not (outgrown or below_start or _expired(segment, limits.retention_ms, now_ms)):
            break
        excess_bytes -= segment.size_bytes
        gone += 1
    end_offset = segments[gone - 1].next_offset if gone else log_start_offset
    return RetentionPlan(end_offset, gone, gone > 0 and not segments[gone - 1].sealed)


def _expired(segment: SegmentInfo, retention_ms: int, now_ms: int) -> bool:
    newest_ms = segment.max_timestamp_ms if segment.max_timestamp_ms >= 0 else segment.modified_ms
    return retention_ms >= 0 and now_ms - newest_ms > retention_ms
