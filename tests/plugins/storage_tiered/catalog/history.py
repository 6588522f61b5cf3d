"""A partition whose leaders change and whose logs are cut: the model that catalog and plans are held against.

A record is known by its offset and the leader epoch that wrote it. So a log is a list of epochs, one for each offset,
and a segment holds a piece of such a list.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld_storage_tiered.catalog.segment import (
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)

AT = TopicIdPartition(bytes(range(16)), 0, "ticks")


def entries_of(log: Sequence[int], start: int = 0, end: int | None = None) -> tuple[EpochEntry, ...]:
    """The leader epochs of a log's records from ``start`` to ``end``, each with its first offset."""
    entries: list[EpochEntry] = []
    for offset in range(start, len(log) if end is None else end):
        if not entries or entries[-1].epoch != log[offset]:
            entries.append(EpochEntry(log[offset], offset))
    return tuple(entries)


def remote_segment(
    log: Sequence[int],
    start: int,
    end: int,
    number: int,
    *,
    state: SegmentState = SegmentState.COPY_STARTED,
    txn_index_empty: bool = True,
    time_ms: int = 0,
    size_bytes: int = 100,
) -> RemoteSegment:
    """The records of ``log`` from ``start`` to ``end`` as a remote segment."""
    return RemoteSegment(
        partition=AT,
        segment_id=number.to_bytes(16, "big"),
        start_offset=start,
        end_offset=end - 1,
        broker_id=1,
        max_timestamp_ms=time_ms,
        event_timestamp_ms=time_ms,
        leader_epochs=entries_of(log, start, end),
        size_bytes=size_bytes,
        state=state,
        txn_index_empty=txn_index_empty,
    )


def update(segment: RemoteSegment, state: SegmentState, time_ms: int = 0) -> SegmentUpdate:
    """The record that says that a segment has this state now."""
    return SegmentUpdate(
        partition=AT,
        segment_id=segment.segment_id,
        broker_id=segment.broker_id,
        event_timestamp_ms=time_ms,
        state=state,
    )


def grown_log(chance: random.Random, log: list[int], epoch: int) -> list[int]:
    """The log of the leader of ``epoch``: an earlier one, cut somewhere, with records of its own behind it."""
    cut = chance.randrange(len(log) + 1) if log and chance.random() < 0.7 else len(log)
    return log[:cut] + [epoch] * chance.randrange(0, 30)
