"""The remote segments of one partition, as the records of ``__remote_log_metadata`` have made them (KIP-405). Pure.

Kafka's ``RemoteLogMetadataCache``, with two differences:

* Of two finished segments of which one lies inside the other, in some leader epoch, the larger one serves, in whatever
  order they came. In Kafka the later one may hide a part of the larger one.
* A look-up names the partition's present leader epochs, and says how far the segment agrees with them. A segment may
  hold records behind that, of a history that was given up.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from msgspec.structs import replace

from blumfeld.spi.completion import Steps
from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld.wire.primitives import DecodeError
from blumfeld_storage_tiered.catalog.records import (
    decode_snapshot_segment,
    encode_snapshot_segment,
    known_state,
)
from blumfeld_storage_tiered.catalog.segment import (
    Change,
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)

_NEXT = {
    None: {SegmentState.COPY_STARTED},
    SegmentState.COPY_STARTED: {SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED},
    SegmentState.COPY_FINISHED: {SegmentState.DELETE_STARTED},
    SegmentState.DELETE_STARTED: {SegmentState.DELETE_FINISHED},
}
_NEXT_OF_PARTITION = {
    None: PartitionDeleteState.MARKED,
    PartitionDeleteState.MARKED: PartitionDeleteState.STARTED,
    PartitionDeleteState.STARTED: PartitionDeleteState.FINISHED,
}
SEGMENTS_A_STEP = 64
"""Segments of a snapshot in one step: 1.5 ms to restore, a third of it to write."""
_HEADER = struct.Struct(">16sihbqII")
"""Topic id, partition, length of the topic's name, state of the deletion or -1, time of the oldest record or -1, number
of epochs, of segments."""
_EPOCH = struct.Struct(">iq")
_LENGTH = struct.Struct(">I")
_NO_END = 1 << 63
_START = itemgetter(1)
"""The start offset of an ``EpochEntry``."""
_EPOCH_OF = itemgetter(0)


class CatalogError(Exception):
    """A change that the catalog didn't take. It is as it was before."""


class UnknownSegmentError(CatalogError):
    """An update of a segment that the catalog doesn't have: it is deleted, or its first record is lost."""


class IllegalTransitionError(CatalogError):
    """A change to a state that can't follow the present one."""


class Served(NamedTuple):
    """A segment that holds an offset of the present history."""

    segment: RemoteSegment
    start_offset: int
    """The first offset that it serves, of those that were looked for."""
    end_offset: int
    """From here on its records are of another history, or it has ended."""


class _Range(NamedTuple):
    """The offsets of one leader epoch in one finished segment."""

    start: int
    end: int
    """The first offset behind it."""
    segment_id: bytes
    has_transactions: bool

    def is_inside(self, other: _Range) -> bool:
        """Whether ``other`` holds all of it. Of two equal ranges one is inside the other, the same one always."""
        if (self.start, self.end) == (other.start, other.end):
            return self.segment_id < other.segment_id
        return other.start <= self.start and self.end <= other.end


class _EpochRanges:
    """The ranges of one leader epoch that serve. None lies inside another one, so starts and ends both ascend."""

    __slots__ = ("ends", "hidden", "highest", "ranges", "starts", "with_transactions")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.ranges: list[_Range] = []
        self.hidden: list[_Range] = []
        """Ranges that lie inside others. Few: two leaders copied the same."""
        self.with_transactions: list[int] = []
        """Starts of the ranges whose segments have aborted transactions."""
        self.highest = -1
        """The last offset of the furthest range that was ever here: as in Kafka, deletions don't lower it."""

    def add(self, new: _Range) -> list[_Range]:
        """Add a range. Returns those that serve no more: the new one itself, or those that lie inside it."""
        self.highest = max(self.highest, new.end - 1)
        at = bisect_right(self.starts, new.start)
        if at and new.is_inside(self.ranges[at - 1]):
            self.hidden.append(new)
            return [new]
        first = bisect_left(self.starts, new.start)
        behind = bisect_right(self.ends, new.end, first)
        inside = self.ranges[first:behind]
        self.hidden += inside
        for hidden in inside:
            self._forget_transactions(hidden)
        self.starts[first:behind] = [new.start]
        self.ends[first:behind] = [new.end]
        self.ranges[first:behind] = [new]
        if new.has_transactions:
            insort(self.with_transactions, new.start)
        return inside

    def remove(self, gone: _Range) -> tuple[bool, list[_Range]]:
        """Take a range out. Returns whether it served, and those inside it that serve from now on."""
        at = bisect_left(self.starts, gone.start)
        if at == len(self.ranges) or self.ranges[at] != gone:
            self.hidden.remove(gone)
            return False, []
        del self.starts[at], self.ends[at], self.ranges[at]
        self._forget_transactions(gone)
        if not self.hidden:
            return True, []
        again, self.hidden = self.hidden, []
        for hidden in again:
            self.add(hidden)
        return True, [span for span in again if span not in self.hidden]

    def _forget_transactions(self, gone: _Range) -> None:
        if gone.has_transactions:
            del self.with_transactions[bisect_left(self.with_transactions, gone.start)]

    def has(self, offsets: _Range) -> bool:
        """Whether this range serves."""
        at = bisect_left(self.starts, offsets.start)
        return at < len(self.ranges) and self.ranges[at] == offsets

    def first_from(self, offset: int) -> _Range | None:
        """Returns the range that holds ``offset`` and goes furthest, or else the next one."""
        at = bisect_right(self.starts, offset)
        if at and offset < self.ends[at - 1]:
            return self.ranges[at - 1]
        return self.ranges[at] if at < len(self.ranges) else None


def _ranges(segment: RemoteSegment) -> Iterator[tuple[int, _Range]]:
    """The leader epochs of a segment with their ranges, but for epochs without a record."""
    epochs = segment.leader_epochs
    for at, (epoch, start_offset) in enumerate(epochs):
        start = max(start_offset, segment.start_offset)
        end = epochs[at + 1].start_offset if at + 1 < len(epochs) else segment.end_offset + 1
        if start < end:
            yield epoch, _Range(start, end, segment.segment_id, not segment.txn_index_empty)


class RemoteLogCatalog:
    """The remote segments of a partition. Look-ups take the partition's leader epochs, oldest first.

    The last epoch has no end here. Where a log ends below what was copied of it (an unclean election, before the new
    leader's first record), ends that are returned lie above the log's end: the caller takes the smaller one.
    """

    def __init__(self, partition: TopicIdPartition) -> None:
        self.partition = partition
        self.delete_state: PartitionDeleteState | None = None
        """How far the deletion of the whole partition has got; ``None``: nobody wants it."""
        self.since_ms: int | None = None
        """The time of the oldest record that was ever applied; ``None`` if there was none. Records that the topic has
        lost are not known here, so of older objects nothing can be said."""
        self._segments: dict[bytes, RemoteSegment] = {}
        self._epochs: dict[int, _EpochRanges] = {}
        self._serving: dict[bytes, int] = {}
        """Segments that serve → the number of epochs in which they do."""
        self._serving_bytes = 0
        self._unfinished: dict[bytes, None] = {}
        """Segments in the state COPY_STARTED or DELETE_STARTED: they serve nothing."""

    def __len__(self) -> int:
        """Number of segments in any state."""
        return len(self._segments)

    def __iter__(self) -> Iterator[RemoteSegment]:
        """All segments, in any state, in the order of their first records."""
        return iter(self._segments.values())

    def get(self, segment_id: bytes) -> RemoteSegment | None:
        """The segment with this id, in any state but DELETE_FINISHED."""
        return self._segments.get(segment_id)

    # Changes

    def apply(self, change: Change) -> None:
        """Take a record. The same record again changes nothing.

        :raises UnknownSegmentError: an update of a segment that isn't here
        :raises IllegalTransitionError: its state can't follow the present one
        :raises CatalogError: it is about another partition
        """
        if (change.partition.topic_id, change.partition.partition) != (
            self.partition.topic_id,
            self.partition.partition,
        ):
            raise CatalogError(f"a record of {change.partition} in the catalog of {self.partition}")
        if isinstance(change, RemoteSegment):
            self._begin(change)
        elif isinstance(change, SegmentUpdate):
            self._update(change)
        else:
            self._delete_partition(change)
        if self.since_ms is None or change.event_timestamp_ms < self.since_ms:
            self.since_ms = change.event_timestamp_ms

    def _begin(self, segment: RemoteSegment) -> None:
        known = self._segments.get(segment.segment_id)
        if segment.state is not SegmentState.COPY_STARTED or (known and known.state is not segment.state):
            raise _illegal(segment, known.state if known else None)
        if known is None:
            self._put(segment)

    def _update(self, update: SegmentUpdate) -> None:
        known = self._segments.get(update.segment_id)
        if known is None:
            raise UnknownSegmentError(
                f"segment {update.segment_id.hex()} of {self.partition} is not known: its update to"
                f" {update.state.name} by node {update.broker_id} is ignored"
            )
        if known.state is update.state:
            return
        if update.state not in _NEXT[known.state]:
            raise _illegal(update, known.state)
        self._take_out(known)
        if update.state is SegmentState.DELETE_FINISHED:
            del self._segments[known.segment_id]
            return
        custom = known.custom_metadata if update.custom_metadata is None else update.custom_metadata
        self._put(
            replace(
                known,
                broker_id=update.broker_id,
                event_timestamp_ms=update.event_timestamp_ms,
                custom_metadata=custom,
                state=update.state,
            )
        )

    def _delete_partition(self, change: PartitionDelete) -> None:
        if change.state is self.delete_state:
            return
        if self.delete_state is PartitionDeleteState.FINISHED or (
            change.state is not _NEXT_OF_PARTITION[self.delete_state]
        ):
            present = "none" if self.delete_state is None else self.delete_state.name
            raise IllegalTransitionError(
                f"the deletion of {self.partition} can't go from {present} to {change.state.name}"
            )
        self.delete_state = change.state

    def _put(self, segment: RemoteSegment) -> None:
        """Keep a segment, and let it serve if it is finished."""
        self._segments[segment.segment_id] = segment
        if segment.state is not SegmentState.COPY_FINISHED:
            self._unfinished[segment.segment_id] = None
            return
        for epoch, offsets in _ranges(segment):
            ranges = self._epochs.get(epoch)
            if ranges is None:
                ranges = self._epochs[epoch] = _EpochRanges()
            self._count(offsets, 1)
            for hidden in ranges.add(offsets):
                self._count(hidden, -1)

    def _take_out(self, segment: RemoteSegment) -> None:
        """Let a segment serve no more."""
        if segment.state is not SegmentState.COPY_FINISHED:
            del self._unfinished[segment.segment_id]
            return
        for epoch, offsets in _ranges(segment):
            served, again = self._epochs[epoch].remove(offsets)
            if served:
                self._count(offsets, -1)
            for span in again:
                self._count(span, 1)

    def _count(self, offsets: _Range, change: int) -> None:
        """A range of a segment serves, or serves no more."""
        segment_id = offsets.segment_id
        before = self._serving.pop(segment_id, 0)
        if before + change:
            self._serving[segment_id] = before + change
        if not before or not before + change:
            self._serving_bytes += change * self._segments[segment_id].size_bytes

    # Look-ups

    def lookup(self, epoch: int, offset: int) -> RemoteSegment | None:
        """Returns the finished segment with the record of ``offset`` that was written in ``epoch``."""
        ranges = self._epochs.get(epoch)
        first_range = None if ranges is None else ranges.first_from(offset)
        return (
            self._segments[first_range.segment_id]
            if first_range is not None and first_range.start <= offset
            else None
        )

    def find(self, offset: int, epochs: Sequence[EpochEntry]) -> Served | None:
        """Returns the finished segment with the record of ``offset`` in the history of ``epochs``, and how far it can
        be read. The next segment is found at its ``end_offset``."""
        served = self.first_from(offset, epochs)
        return served if served is not None and served.start_offset == offset else None

    def first_from(self, offset: int, epochs: Sequence[EpochEntry]) -> Served | None:
        """Returns the segment with ``offset`` as :meth:`find` does, or else with the next offset that any has."""
        for at in range(max(bisect_right(epochs, offset, key=_START) - 1, 0), len(epochs)):
            epoch, epoch_start = epochs[at]
            ranges = self._epochs.get(epoch)
            start = max(offset, epoch_start)
            first_range = None if ranges is None else ranges.first_from(start)
            if first_range is None or first_range.start >= _end_of(at, epochs):
                continue
            segment = self._segments[first_range.segment_id]
            return Served(
                segment, max(start, first_range.start), _agreement(segment, first_range.end, at, epochs)
            )
        return None

    def served_end_offset(self, offset: int, epochs: Sequence[EpochEntry]) -> int:
        """Returns the first offset from ``offset`` on that no segment has: all before it, from ``offset`` on, is in the
        store. Local segments below it may go, and copies go on from it."""
        while (served := self.find(offset, epochs)) is not None:
            offset = served.end_offset
        return offset

    def copied_end_offset(self, epochs: Sequence[EpochEntry], log_end_offset: int) -> int:
        """Returns the offset behind the last one that was ever copied of this history (Kafka's
        ``findHighestRemoteOffset``); 0 if nothing was. Expired segments count, and so do gaps before it."""
        end = log_end_offset
        for epoch, start_offset in reversed(epochs):
            highest = self.highest_offset_for(epoch)
            if highest >= start_offset:
                return min(highest + 1, end)
            end = start_offset
        return 0

    def highest_offset_for(self, epoch: int) -> int:
        """Returns the last offset that was ever copied of an epoch; -1 if none was."""
        ranges = self._epochs.get(epoch)
        return -1 if ranges is None else ranges.highest

    def lineage(self, epochs: Sequence[EpochEntry], offset: int = 0) -> Iterator[Served]:
        """The segments that serve the history of ``epochs`` from ``offset`` on, in the order of their offsets. The
        catalog may not change meanwhile."""
        while (served := self.first_from(offset, epochs)) is not None:
            yield served
            offset = served.end_offset

    def start_offset(self, epochs: Sequence[EpochEntry]) -> int | None:
        """Returns the first offset of this history that a segment has; ``None`` if there is none."""
        served = self.first_from(0, epochs)
        return None if served is None else served.start_offset

    def next_with_transactions(self, offset: int, epochs: Sequence[EpochEntry]) -> RemoteSegment | None:
        """Returns the segment at ``offset`` or behind it, the first one of this history whose transaction index isn't
        known to be empty."""
        for at in range(max(bisect_right(epochs, offset, key=_START) - 1, 0), len(epochs)):
            ranges = self._epochs.get(epochs[at].epoch)
            if ranges is None or not ranges.with_transactions:
                continue
            start = max(offset, epochs[at].start_offset)
            starts = ranges.with_transactions
            nearest = max(bisect_right(starts, start) - 1, 0)
            for range_start in starts[nearest : nearest + 2]:
                segment_range = ranges.ranges[bisect_left(ranges.starts, range_start)]
                if segment_range.end > start and segment_range.start < _end_of(at, epochs):
                    return self._segments[segment_range.segment_id]
        return None

    # Lists

    def epochs(self) -> list[int]:
        """Leader epochs of finished segments, ascending."""
        return sorted(epoch for epoch, ranges in self._epochs.items() if ranges.ranges)

    def segments_of(self, epoch: int, end_offset: int | None = None) -> list[RemoteSegment]:
        """Returns the finished segments with records of an epoch, those that serve nothing included.

        :param end_offset: only those whose records of this epoch all lie below it
        """
        ranges = self._epochs.get(epoch)
        if ranges is None:
            return []
        count = len(ranges.ends) if end_offset is None else bisect_right(ranges.ends, end_offset)
        hidden = [span for span in ranges.hidden if end_offset is None or span.end <= end_offset]
        return [self._segments[span.segment_id] for span in [*ranges.ranges[:count], *sorted(hidden)]]

    def unfinished(self) -> list[RemoteSegment]:
        """Returns the segments whose copy or deletion isn't finished."""
        return [self._segments[segment_id] for segment_id in self._unfinished]

    def size_bytes(self, epochs: Sequence[EpochEntry]) -> int:
        """Returns the bytes of the segments that hold records of this history, without those that lie inside others.

        It looks at segments of other histories alone, so it takes no time with one history.
        """
        history = {entry.epoch: (entry.start_offset, _end_of(at, epochs)) for at, entry in enumerate(epochs)}
        strangers: set[bytes] = set()
        for epoch, ranges in self._epochs.items():
            start, end = history.get(epoch, (_NO_END, _NO_END))
            strangers.update(span.segment_id for span in ranges.ranges[: bisect_right(ranges.ends, start)])
            strangers.update(span.segment_id for span in ranges.ranges[bisect_left(ranges.starts, end) :])
        strange = (self._segments[segment_id] for segment_id in strangers)
        return self._serving_bytes - sum(
            segment.size_bytes for segment in strange if not self._serves(segment, history)
        )

    def _serves(self, segment: RemoteSegment, history: Mapping[int, tuple[int, int]]) -> bool:
        for epoch, offsets in _ranges(segment):
            start, end = history.get(epoch, (_NO_END, _NO_END))
            if offsets.start < end and offsets.end > start and self._epochs[epoch].has(offsets):
                return True
        return False

    # Snapshots

    def snapshot(self) -> Steps[bytes]:
        """The whole catalog as bytes, in steps."""
        name = self.partition.topic.encode()
        state = -1 if self.delete_state is None else int(self.delete_state)
        segments, epochs = list(self), sorted(self._epochs.items())
        out = bytearray(
            _HEADER.pack(
                self.partition.topic_id,
                self.partition.partition,
                len(name),
                state,
                -1 if self.since_ms is None else self.since_ms,
                len(epochs),
                len(segments),
            )
        )
        out += name
        for epoch, ranges in epochs:
            out += _EPOCH.pack(epoch, ranges.highest)
        for number, segment in enumerate(segments, 1):
            record = encode_snapshot_segment(segment)
            out += _LENGTH.pack(len(record)) + record
            if number % SEGMENTS_A_STEP == 0:
                yield None
        return bytes(out)

    @classmethod
    def restore(cls, data: bytes) -> Steps[RemoteLogCatalog]:
        """The catalog of a snapshot, in steps.

        :raises DecodeError: the bytes are no snapshot
        """
        try:
            topic_id, partition, name_bytes, state, since_ms, epochs, segments = _HEADER.unpack_from(data)
            at = _HEADER.size + name_bytes
            catalog = cls(TopicIdPartition(topic_id, partition, data[_HEADER.size : at].decode()))
            catalog.delete_state = None if state < 0 else known_state(PartitionDeleteState, state)
            catalog.since_ms = None if since_ms < 0 else since_ms
            for _ in range(epochs):
                epoch, highest = _EPOCH.unpack_from(data, at)
                catalog._epochs[epoch] = ranges = _EpochRanges()
                ranges.highest = highest
                at += _EPOCH.size
            for number in range(1, segments + 1):
                (size,) = _LENGTH.unpack_from(data, at)
                at += _LENGTH.size + size
                record = memoryview(data)[at - size : at]
                catalog._put(decode_snapshot_segment(record, catalog.partition))
                if number % SEGMENTS_A_STEP == 0:
                    yield None
        except (struct.error, UnicodeDecodeError) as error:
            raise DecodeError(f"not a snapshot of a remote log catalog: {error}") from error
        if at != len(data):
            raise DecodeError(f"{len(data) - at} bytes behind the snapshot of a remote log catalog")
        return catalog


def _end_of(at: int, epochs: Sequence[EpochEntry]) -> int:
    """The offset behind an epoch of a history; the last one has no end."""
    return epochs[at + 1].start_offset if at + 1 < len(epochs) else _NO_END


def _agreement(segment: RemoteSegment, end: int, at: int, epochs: Sequence[EpochEntry]) -> int:
    """Returns how far a segment agrees with a history, from its records of ``epochs[at]`` on, which end at ``end``.

    A record is known by its leader epoch and its offset: they agree as long as both go over to the same epoch at the
    same offset.
    """
    mine = segment.leader_epochs
    index = bisect_left(mine, epochs[at].epoch, key=_EPOCH_OF)
    while end == _end_of(at, epochs) and end <= segment.end_offset:
        index, at = index + 1, at + 1
        if mine[index] != epochs[at]:
            break
        end = mine[index + 1].start_offset if index + 1 < len(mine) else segment.end_offset + 1
    return min(end, _end_of(at, epochs))


def _illegal(change: RemoteSegment | SegmentUpdate, present: SegmentState | None) -> IllegalTransitionError:
    allowed = ", ".join(sorted(state.name for state in _NEXT.get(present, ()))) or "nothing"
    return IllegalTransitionError(
        f"segment {change.segment_id.hex()} of {change.partition} can't go from"
        f" {'none' if present is None else present.name} to {change.state.name}, as node {change.broker_id} wrote;"
        f" allowed: {allowed}"
    )
