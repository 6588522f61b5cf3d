"""What to copy, drop and delete: plans from facts, by the rules of Kafka 4.3.1 (KIP-405). Pure.

A driver carries a plan out and may fail at any step: the next plan, from the facts of then, goes on. Nothing here is
remembered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from blumfeld.log.segments.rules import RetentionLimits
from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld.spi.object_store import ObjectInfo
from blumfeld.spi.storage import SegmentInfo
from blumfeld_storage_tiered.catalog.catalog import RemoteLogCatalog
from blumfeld_storage_tiered.catalog.segment import PartitionDeleteState, RemoteSegment, SegmentState


def epochs_between(epochs: Sequence[EpochEntry], start: int, end: int) -> tuple[EpochEntry, ...]:
    """Returns the leader epochs of the records from ``start`` to ``end``, each with its first offset among them: those
    of a segment."""
    entries = (*epochs, EpochEntry(-1, end))
    return tuple(
        EpochEntry(entry.epoch, max(entry.start_offset, start))
        for entry, following in pairwise(entries)
        if entry.start_offset < end and following.start_offset > start
    )


# Copies


def plan_copies(
    segments: Sequence[SegmentInfo],
    *,
    last_stable_offset: int,
    copied_end_offset: int,
    log_start_offset: int,
) -> list[SegmentInfo]:
    """Select the segments that a leader copies, oldest first: each one sealed, wholly below the last stable offset, and
    with a record that the log still has and the store doesn't.

    A segment that holds the end of what is copied, or the log start, is copied whole. So two remote segments may hold
    the same records.

    :param segments: of the local log, oldest first
    :param copied_end_offset: ``RemoteLogCatalog.served_end_offset`` from the later of the log's two starts on
    """
    wanted = max(copied_end_offset, log_start_offset)
    return [
        segment
        for segment in segments
        if segment.sealed
        and wanted < segment.next_offset <= last_stable_offset
        and segment.base_offset < segment.next_offset
    ]


# Expiration


def log_start_of_leader(
    catalog: RemoteLogCatalog, epochs: Sequence[EpochEntry], *, log_start_offset: int, local_start_offset: int
) -> int:
    """Returns where the log of a new leader begins. The last leader may have deleted segments, and this node may not
    have heard how far it moved the log start (Kafka's ``findLogStartOffset``)."""
    if log_start_offset >= local_start_offset:
        return log_start_offset
    served = catalog.first_from(log_start_offset, epochs)
    if served is not None:
        return min(served.start_offset, local_start_offset)
    # A catalog that never heard of these records has lost its own: the segments may be there, and be found again.
    was_copied = catalog.copied_end_offset(epochs, local_start_offset) >= local_start_offset
    return local_start_offset if was_copied else log_start_offset


class DoomedSegment(NamedTuple):
    """A remote segment to delete, and why."""

    segment: RemoteSegment
    reason: str


class Expiration(NamedTuple):
    """First the log start moves, then the segments go: a reader finds the log start, or the record."""

    log_start_offset: int
    """The new log start; the same as before if nothing expired."""
    segments: tuple[DoomedSegment, ...]


def plan_expiration(
    catalog: RemoteLogCatalog,
    epochs: Sequence[EpochEntry],
    limits: RetentionLimits,
    *,
    log_start_offset: int,
    high_watermark: int,
    local_only_bytes: int,
    now_ms: int,
    grace_ms: int,
    busy: Collection[bytes] = (),
) -> Expiration:
    """Select the remote segments that a leader deletes:

    * those whose deletion had begun,
    * those below the log start, and those of leader epochs that are older than the log's first one,
    * by ``retention.ms`` and ``retention.bytes``, oldest first; the log start moves behind them,
    * copies that were begun more than ``grace_ms`` ago, by any node, and aren't finished.

    :param epochs: the leader epochs of the log, oldest first
    :param local_only_bytes: bytes of local segments that the store doesn't have: they count for ``retention.bytes``
    :param busy: ids of segments that this node copies or deletes now: they are left alone
    """
    doomed = {
        candidate.segment.segment_id: candidate
        for candidate in _left_behind(catalog, now_ms, grace_ms)
        if candidate.segment.segment_id not in busy
    }
    history = epochs_between(epochs, log_start_offset, 1 << 63)
    if not history:
        return Expiration(log_start_offset, tuple(doomed.values()))
    for segment in _below(catalog, history[0].epoch, log_start_offset):
        if segment.segment_id not in busy:
            doomed.setdefault(segment.segment_id, DoomedSegment(segment, "below the log start"))
    excess_bytes = -1
    if limits.retention_bytes >= 0:
        excess_bytes = catalog.size_bytes(history) + local_only_bytes - limits.retention_bytes
    for served in catalog.lineage(history, log_start_offset):
        segment = served.segment
        reason = _breach(segment, limits, excess_bytes, now_ms)
        if reason is None or served.end_offset > high_watermark or segment.segment_id in busy:
            break
        excess_bytes -= segment.size_bytes
        log_start_offset = served.end_offset
        doomed.setdefault(segment.segment_id, DoomedSegment(segment, reason))
    return Expiration(log_start_offset, tuple(doomed.values()))


def _breach(segment: RemoteSegment, limits: RetentionLimits, excess_bytes: int, now_ms: int) -> str | None:
    """Returns the limit that the oldest segment of a log breaks."""
    if limits.retention_ms >= 0 and segment.max_timestamp_ms <= now_ms - limits.retention_ms:
        return "retention.ms"
    return "retention.bytes" if 0 < segment.size_bytes <= excess_bytes else None


def _left_behind(catalog: RemoteLogCatalog, now_ms: int, grace_ms: int) -> Iterator[DoomedSegment]:
    """Deletions that didn't end, and copies that won't."""
    for segment in catalog.unfinished():
        if segment.state is SegmentState.DELETE_STARTED:
            yield DoomedSegment(segment, "its deletion had begun")
        elif segment.event_timestamp_ms + grace_ms <= now_ms:
            yield DoomedSegment(segment, "its copy was never finished")


def _below(catalog: RemoteLogCatalog, first_epoch: int, log_start_offset: int) -> Iterator[RemoteSegment]:
    """Finished segments that the log has left behind: of older epochs alone, or also of its first one and below its
    start. A segment with a later epoch is left alone: a leader that is behind may not delete it."""
    for epoch in catalog.epochs():
        if epoch > first_epoch:
            break
        end_offset = log_start_offset if epoch == first_epoch else None
        for segment in catalog.segments_of(epoch, end_offset):
            if segment.leader_epochs[-1].epoch == epoch:
                yield segment


# The end of a partition


class PartitionDeletion(NamedTuple):
    """The next step: delete these segments, or else write this state."""

    segments: tuple[RemoteSegment, ...]
    write: PartitionDeleteState | None


def plan_partition_delete(catalog: RemoteLogCatalog) -> PartitionDeletion:
    """Returns the next step of a deletion that is marked: STARTED, then all segments, whatever their state, then
    FINISHED. Nothing if it isn't marked, or has ended."""
    if catalog.delete_state is PartitionDeleteState.MARKED:
        return PartitionDeletion((), PartitionDeleteState.STARTED)
    if catalog.delete_state is PartitionDeleteState.STARTED:
        left = tuple(catalog)
        return PartitionDeletion(left, None if left else PartitionDeleteState.FINISHED)
    return PartitionDeletion((), None)


# Orphans


class Sweep(NamedTuple):
    """Listed objects that no record speaks of."""

    orphans: tuple[ObjectInfo, ...]
    """Objects of segments without a record: to delete."""
    unexplained: tuple[ObjectInfo, ...]
    """Objects that are older than all records: the metadata topic has lost those that spoke of them. They are left
    alone, because they may be the only copy, and told of."""
    strangers: tuple[ObjectInfo, ...]
    """Objects whose names aren't ours: left alone, and told of."""


def plan_sweep(
    listed: Iterable[tuple[ObjectInfo, bytes | None]],
    catalog: RemoteLogCatalog,
    *,
    now_ms: int,
    grace_ms: int,
) -> Sweep:
    """Select the objects of a partition that no record speaks of. A copy writes its record first, so none of them is on
    its way.

    The catalog must be ready, or every object looks like an orphan.

    :param listed: objects under the partition's prefix, each with the id of its segment, ``None`` for other names
    :param grace_ms: objects that were changed later than so long ago stay. It must be longer than the clocks of store
        and node differ, and than a record takes to be read
    """
    orphans, unexplained, strangers = [], [], []
    for info, segment_id in listed:
        if segment_id is None:
            strangers.append(info)
        elif catalog.get(segment_id) is not None or info.modified_ms + grace_ms > now_ms:
            continue
        elif catalog.since_ms is None or info.modified_ms < catalog.since_ms:
            unexplained.append(info)
        else:
            orphans.append(info)
    return Sweep(tuple(orphans), tuple(unexplained), tuple(strangers))
