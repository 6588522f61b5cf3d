"""Which log the cleaner takes next, and how far it may go in it. Pure functions over small values (Kafka's
``LogCleanerManager``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from blumfeld.spi.storage import SegmentInfo, TopicPartition


class CleanableLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log that is compacted, as of now."""

    partition: TopicPartition
    segments: Sequence[SegmentInfo]
    """All of them, oldest first, the active one last."""
    log_start_offset: int
    log_end_offset: int
    cleaned_end_offset: int | None
    """What the checkpoint says; None: the log was never cleaned."""
    last_stable_offset: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    first_timestamps_ms: Mapping[int, int] = {}
    """Of sealed segments, by base offset: the highest timestamp of the first batch, as far as it is known. Where
    it isn't, the time of the segment's creation stands in.
    """


class CheckpointReset(StrEnum):
    """Why cleaning begins anew at the log start: what was remembered can't be."""

    BELOW_LOG_START = "the checkpoint is below the log start"
    """Normal where retention deletes too."""
    ABOVE_LOG_END = "the checkpoint is above the log end"
    """The log lost its end."""


class CleaningPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a round over a log would be."""

    partition: TopicPartition
    first_dirty_offset: int
    end_offset: int
    """The base of a segment: nothing from there on may be cleaned yet. At most ``first_dirty_offset`` if there
    is nothing to clean.
    """
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """By how much the oldest dirty record is over ``max.compaction.lag.ms``; 0 if none is."""
    min_cleanable_dirty_ratio: float
    reset: CheckpointReset | None
    """Set if the checkpoint must be written anew, with ``first_dirty_offset``."""

    @property
    def dirty_ratio(self) -> float:
        """Bytes that may be cleaned, of all below ``end_offset``; 0 for a log without any."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Dirtier than ``min.cleanable.dirty.ratio``, or overdue with something to clean.

        A delete horizon that has come is no reason: tombstones go in the next round that there is.
        """
        overdue = self.overdue_ms > 0 and self.dirty_bytes > 0
        return overdue or self.dirty_ratio > self.min_cleanable_dirty_ratio


def plan_cleaning(log: CleanableLog, now_ms: int) -> CleaningPlan:
    """How far a round may go, and what there is to gain.

    Not cleaned are: the active segment; what isn't stable; the first dirty segment with a record younger than
    ``min.compaction.lag.ms``, and all behind it. The limit is rounded down to the base of a segment.
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
    """The one to do next: overdue before dirty, then the dirtiest; the first by name where they are equal.

    Kafka takes the dirtiest in any case, which lets an overdue log of a low ratio wait for all that are
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
