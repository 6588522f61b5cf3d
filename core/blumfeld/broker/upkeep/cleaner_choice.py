"""The cleaner's view of one hosted log, and the compaction request for its storage."""

from __future__ import annotations

from typing import cast

from blumfeld.broker.fetch.first_timestamps import FirstTimestamps
from blumfeld.broker.replicas.partition import Partition
from blumfeld.config.values import BrokerConfig
from blumfeld.log.cleaning.rules import CleanableLog, CleaningPlan
from blumfeld.spi.compaction import CompactionRequest, LastProducerBatch
from blumfeld.spi.storage import SegmentedLog

UNLIMITED_MS = (1 << 63) - 1
"""Default of ``max.compaction.lag.ms``: no log is cleaned because of its age."""


def with_segments(partition: Partition) -> SegmentedLog:
    """Returns the log as one with segments. The kernel has checked that the logs of a compacting storage have them."""
    return cast("SegmentedLog", partition.log)


def cleanable(partition: Partition, first_timestamps: FirstTimestamps) -> CleanableLog:
    """Returns the present state of the partition's log, for the cleaner's rules. Raises ``OSError``."""
    log, config = with_segments(partition), partition.config
    segments = log.segments()
    first_timestamps_ms: dict[int, int] = {}
    if config.max_compaction_lag_ms < UNLIMITED_MS:
        clean_to = max(log.cleaned_end_offset, log.log_start_offset)
        dirty = [s for s in segments[:-1] if s.next_offset > clean_to and s.size_bytes]
        first_timestamps_ms = first_timestamps.of(partition, dirty)
    return CleanableLog(
        partition=partition.partition,
        segments=segments,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.written_end_offset,
        cleaned_end_offset=log.cleaned_end_offset or None,
        last_stable_offset=partition.last_stable_offset,
        min_compaction_lag_ms=config.min_compaction_lag_ms,
        max_compaction_lag_ms=config.max_compaction_lag_ms,
        min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
        first_timestamps_ms=first_timestamps_ms,
    )


def request_for(
    partition: Partition, plan: CleaningPlan, config: BrokerConfig, now_ms: int
) -> CompactionRequest:
    """Returns the request that carries out the plan."""
    topic = partition.config
    return CompactionRequest(
        first_dirty_offset=plan.first_dirty_offset,
        end_offset=plan.end_offset,
        now_ms=now_ms,
        delete_retention_ms=topic.delete_retention_ms,
        segment_bytes=topic.segment_bytes,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        batch_bytes_max=topic.max_message_bytes,
        map_bytes=config.int("log.cleaner.dedupe.buffer.size"),
        map_load_factor=config.float("log.cleaner.io.buffer.load.factor"),
        bytes_per_second_max=config.float("log.cleaner.io.max.bytes.per.second"),
        aborted=tuple(partition.state.aborted.entries),
        producers={
            entry.producer_id: LastProducerBatch(entry.last_offset, entry.epoch)
            for entry in partition.state.producers.producers()
        },
    )
