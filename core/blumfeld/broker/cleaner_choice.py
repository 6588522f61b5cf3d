"""What the cleaner sees in one hosted log, and what it asks of its storage."""

from __future__ import annotations

import msgspec

from blumfeld.broker.partitions import Partition
from blumfeld.spi.compaction import CompactionRequest, LastProducerBatch

UNLIMITED_MS = (1 << 63) - 1
"""``max.compaction.lag.ms`` by default: no log is cleaned for its age."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A log with something to clean."""

    partition: Partition
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """How much older than ``max.compaction.lag.ms`` its first dirty record is."""

    @property
    def dirty_ratio(self) -> float:
        """Of the bytes that a round would go over."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)

    @property
    def is_due(self) -> bool:
        """Dirtier than ``min.cleanable.dirty.ratio``, or overdue."""
        return self.overdue_ms > 0 or self.dirty_ratio > self.partition.config.min_cleanable_dirty_ratio


def examine(partition: Partition, now_ms: int) -> Candidate | None:
    """What a round could clean of it; ``None``: nothing. Raises ``OSError``.

    Not the active segment, nothing that is not stable yet, nothing younger than ``min.compaction.lag.ms``; and whole
    segments only.
    """
    log, config = partition.log, partition.config
    segments = log.segments()
    first_dirty = log.cleaned_end_offset
    if not log.log_start_offset <= first_dirty <= segments[-1].base_offset:
        first_dirty = log.log_start_offset
    clean_bytes = dirty_bytes = 0
    end_offset = segments[0].base_offset
    stable = partition.last_stable_offset
    for segment in segments[:-1]:
        young = segment.max_timestamp_ms > now_ms - config.min_compaction_lag_ms
        if segment.next_offset > stable or (segment.next_offset > first_dirty and young):
            break
        end_offset = segment.next_offset
        if end_offset <= first_dirty:
            clean_bytes += segment.size_bytes
        else:
            dirty_bytes += segment.size_bytes
    if end_offset <= first_dirty or dirty_bytes == 0:
        return None
    return Candidate(
        partition=partition,
        first_dirty_offset=first_dirty,
        end_offset=end_offset,
        clean_bytes=clean_bytes,
        dirty_bytes=dirty_bytes,
        overdue_ms=_overdue_ms(partition, first_dirty, now_ms),
    )


def _overdue_ms(partition: Partition, first_dirty_offset: int, now_ms: int) -> int:
    max_lag_ms = partition.config.max_compaction_lag_ms
    if max_lag_ms >= UNLIMITED_MS:
        return 0
    for batch in partition.log.batches(first_dirty_offset):
        return max(0, now_ms - max_lag_ms - batch.max_timestamp) if batch.max_timestamp > 0 else 0
    return 0


def request_for(
    candidate: Candidate, *, now_ms: int, map_bytes: int, map_load_factor: float, bytes_per_second_max: float
) -> CompactionRequest:
    """What the storage is asked for."""
    partition = candidate.partition
    config = partition.config
    return CompactionRequest(
        first_dirty_offset=candidate.first_dirty_offset,
        end_offset=candidate.end_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        batch_bytes_max=config.max_message_bytes,
        map_bytes=map_bytes,
        map_load_factor=map_load_factor,
        bytes_per_second_max=bytes_per_second_max,
        aborted=tuple(partition.state.aborted.entries),
        producers={
            entry.producer_id: LastProducerBatch(entry.last_offset, entry.epoch)
            for entry in partition.state.producers.producers()
        },
    )
