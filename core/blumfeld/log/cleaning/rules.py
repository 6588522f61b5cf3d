"""Selection of the log to clean next, and of the part that may be cleaned. Pure functions (Kafka's
``LogCleanerManager``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from blumfeld.spi.storage import SegmentInfo, TopicPartition


class CleanableLog(msgspec.Struct, frozen=True, kw_only=True):
    """Present state of a compacted log."""

    partition: TopicPartition
    segments: Sequence[SegmentInfo]
    """All segments, oldest first; the last one is active."""
    log_start_offset: int
    log_end_offset: int
    cleaned_end_offset: int | None
    """First dirty offset in the checkpoint; ``None`` if the log was never cleaned."""
    last_stable_offset: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    first_timestamps_ms: Mapping[int, int] = {}
    """Base offset of a sealed segment → highest timestamp of its first batch. For a segment that is missing
    here, its creation time counts.
    """


class CheckpointReset(StrEnum):
    """Reason to discard the checkpoint and clean from the log start again."""

    BELOW_LOG_START = "the checkpoint is below the log start"
    """Normal in a log that retention shortens too."""
    ABOVE_LOG_END = "the checkpoint is above the log end"
    """The log was truncated."""


class CleaningPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a log that a cleaner pass would clean."""

    partition: TopicPartition
    first_dirty_offset: int
    end_offset: int
    """Base offset of a segment; nothing from there on may be cleaned yet. At most ``first_dirty_offset`` if
    there is nothing to clean.
    """
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """Milliseconds by which the oldest dirty record exceeds ``max.compaction.lag.ms``; 0 if none does."""
    min_cleanable_dirty_ratio: float
    reset: CheckpointReset | None
    """Set if the checkpoint must be rewritten with ``first_dirty_offset``."""

    @property
    def dirty_ratio(self) -> float:
        """Share of cleanable bytes in all bytes below ``end_offset``; 0 if there are none."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether the log is dirtier than ``min.cleanable.dirty.ratio``, or overdue with something to clean.

        An expired delete horizon alone does not start a pass: tombstones go in the next one.
        """
        overdue = self.overdue_ms > 0 and self.dirty_bytes > 0
        return overdue or self.dirty_ratio > self.min_cleanable_dirty_ratio


def plan_cleaning(log: CleanableLog, now_ms: int) -> CleaningPlan:
    """Compute how far a pass may go, and how much it would clean.

    It never cleans the active segment, unstable data, or anything from the first dirty segment on that has
    a record younger than ``min.compaction.lag.ms``. The limit is rounded down to the base of a segment.
    """
    first_dirty, reset = _first_dirty_offset(log)
    active = log.segments[-1]
    dirty = [segment for segment in log.segments[:-1] if segment.next_offset > first_dirty]
    limit = min(log.last_stable_offset, active.base_offset)
    if log.min_compaction_lag_ms > 0:
        young_ms = now_ms - log.min_compaction_lag_ms
        young = (segment.base_offset for segment in dirty if segment.max_timestamp_ms > young_ms)
        limit = min(limit, next(young, limit))
    end_offset = max(
        (segment.base_offset for segment in log.segments if segment.base_offset <= limit),
        default=log.segments[0].base_offset,
    )
    return CleaningPlan(
        partition=log.partition,
        first_dirty_offset=first_dirty,
        end_offset=end_offset,
        clean_bytes=sum(segment.size_bytes for segment in log.segments if segment.base_offset < first_dirty),
        dirty_bytes=sum(segment.size_bytes for segment in dirty if segment.base_offset < end_offset),
        overdue_ms=_overdue_ms(log, dirty, now_ms),
        min_cleanable_dirty_ratio=log.min_cleanable_dirty_ratio,
        reset=reset,
    )


def choose(plans: Iterable[CleaningPlan]) -> CleaningPlan | None:
    """Returns the log to clean next: an overdue one first, then the dirtiest, then the first by name.

    Kafka always takes the dirtiest one. There an overdue log with a low ratio waits for all that are
    dirtier.
    """
    due = sorted((plan for plan in plans if plan.is_due), key=lambda plan: plan.partition)
    return max(due, key=lambda plan: (plan.overdue_ms > 0, plan.dirty_ratio), default=None)


def _first_dirty_offset(log: CleanableLog) -> tuple[int, CheckpointReset | None]:
    checkpoint = log.cleaned_end_offset
    if checkpoint is None:
        return log.log_start_offset, None
    if checkpoint < log.log_start_offset:
        return log.log_start_offset, CheckpointReset.BELOW_LOG_START
    if checkpoint > log.log_end_offset:
        return log.log_start_offset, CheckpointReset.ABOVE_LOG_END
    return checkpoint, None


def _overdue_ms(log: CleanableLog, dirty: Sequence[SegmentInfo], now_ms: int) -> int:
    first_ms = (
        log.first_timestamps_ms.get(segment.base_offset, segment.created_ms)
        for segment in dirty
        if segment.size_bytes
    )
    oldest_ms = min((timestamp_ms for timestamp_ms in first_ms if timestamp_ms > 0), default=now_ms)
    return max(now_ms - max(log.max_compaction_lag_ms, 0) - oldest_ms, 0)
