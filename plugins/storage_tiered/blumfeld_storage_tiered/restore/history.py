"""Chooses the segments that make up the log of a partition, by the store alone. Pure.

A partition's present history is that of the segment with the highest leader epoch, and of these the one that goes
furthest. The leader of an epoch has all that was committed before it, so it decides about everything below. That
segment was copied together with the leader epochs of its log. Which segment serves which offset of them is
:class:`RemoteLogCatalog`'s rule, as on a node that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld_storage_tiered.catalog.catalog import RemoteLogCatalog
from blumfeld_storage_tiered.catalog.segment import (
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)


class Hole(msgspec.Struct, frozen=True, order=True):
    """Offsets that no segment has, between two that are there."""

    start_offset: int
    end_offset: int
    """The first offset behind it."""


class RestoredHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The log of a partition, as it is restored."""

    start_offset: int = 0
    end_offset: int = 0
    """The offset of the next record. Without a segment the log is empty and begins at 0."""
    epochs: tuple[EpochEntry, ...] = ()
    """The leader epochs of its records, each with its first offset among them."""
    segments: tuple[RemoteSegment, ...] = ()
    """Every segment that the restored cluster knows of: those that serve, and those that are hidden by others or belong
    to a history that was given up."""
    left_out: tuple[RemoteSegment, ...] = ()
    """Segments before the last hole. They stay in the store, and no record speaks of them: else their leader would
    delete them, because they lie below the log's start."""
    holes: tuple[Hole, ...] = ()


NO_HISTORY = RestoredHistory()


def newest_segment(segments: Iterable[RemoteSegment]) -> RemoteSegment:
    """Returns the segment whose history is the present one.

    :param segments: whole ones of one partition, at least one
    """
    return max(segments, key=lambda segment: (segment.leader_epochs[-1].epoch, segment.end_offset))


def history_of(
    partition: TopicIdPartition, segments: Sequence[RemoteSegment], epochs: Sequence[EpochEntry]
) -> RestoredHistory:
    """Returns the log that these segments make up. It begins behind the last hole.

    :param segments: the whole segments of the partition, in the state COPY_FINISHED
    :param epochs: the leader epochs that were copied with the newest segment
    """
    catalog = RemoteLogCatalog(partition)
    for segment in segments:
        for change in copy_records(segment):
            catalog.apply(change)
    holes: list[Hole] = []
    start = end = None
    for served in catalog.lineage(epochs):
        if end is not None and served.start_offset > end:
            holes.append(Hole(end, served.start_offset))
        if end is None or served.start_offset > end:
            start = served.start_offset
        end = served.end_offset
    if start is None or end is None:
        return replace(NO_HISTORY, left_out=tuple(segments))
    behind = LeaderEpochCache(epochs)
    behind.truncate_from_end(end)
    behind.truncate_from_start(start)
    kept = [segment for segment in segments if not holes or segment.end_offset >= start]
    return RestoredHistory(
        start_offset=start,
        end_offset=end,
        epochs=tuple(behind.entries),
        segments=tuple(kept),
        left_out=tuple(segment for segment in segments if segment not in kept),
        holes=tuple(holes),
    )


def copy_records(segment: RemoteSegment) -> tuple[RemoteSegment, SegmentUpdate]:
    """Returns the two records of a copy that is finished."""
    started = replace(segment, state=SegmentState.COPY_STARTED, custom_metadata=None)
    finished = SegmentUpdate(
        partition=segment.partition,
        segment_id=segment.segment_id,
        broker_id=segment.broker_id,
        event_timestamp_ms=segment.event_timestamp_ms,
        state=SegmentState.COPY_FINISHED,
        custom_metadata=segment.custom_metadata,
    )
    return started, finished
