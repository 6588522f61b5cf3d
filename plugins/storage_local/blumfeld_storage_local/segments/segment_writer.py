"""Write the active segment: one gather write a turn, rolls where the rules say, index entries saved now and then."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from itertools import accumulate

from blumfeld.config.values import TopicConfig
from blumfeld.log.segments.index import (
    NO_TIMESTAMP,
    RELATIVE_OFFSET_MAX,
    TIME_ENTRY_BYTES,
    SegmentIndexer,
    TimestampPosition,
)
from blumfeld.log.segments.rules import ActiveSegment, IncomingBatch, RollLimits, RollReason, should_roll
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld_storage_local.durability import can_be_undone
from blumfeld_storage_local.segments.recent import RecentBatches
from blumfeld_storage_local.segments.scan import damaged, scan
from blumfeld_storage_local.segments.segment import Segment

IOV_MAX = 1024
"""Buffers that one gather write takes (Linux)."""
INDEX_SAVE_ENTRIES = 64
"""Index entries that wait in memory before they are saved. A start after a crash rebuilds them in any case."""
_NEVER_MS = 1 << 62


class CutBackError(OSError):
    """A write failed, and then the cut back to the old end: it is not known what the file holds."""


class SegmentWriter:
    """Writes to the last segment of a log. Every method may raise ``OSError``.

    The segment's bytes must be sound. Its indexes are read, and the headers behind the last index entry.

    :param failed: called with an error that shows the disk to be bad, in a method that has done its own work
    """

    __slots__ = (
        "_entries_sure",
        "_failed",
        "_first_timestamp_ms",
        "_index_bytes_max",
        "_index_full",
        "_index_saved",
        "_jitter_ms",
        "_limits",
        "_offset_max",
        "_recent",
        "_reserved",
        "_roll_at_ms",
        "_saved_offsets",
        "_saved_times",
        "_size_max",
        "indexer",
        "segment",
    )

    def __init__(
        self,
        segment: Segment,
        config: TopicConfig,
        jitter_ms: int,
        now_ms: int,
        failed: Callable[[OSError], None],
    ) -> None:
        self.segment = segment
        self._failed = failed
        self._reserved = False
        self._offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
        self._first_timestamp_ms = NO_TIMESTAMP
        self._jitter_ms = jitter_ms
        self.configure(config)
        self.indexer = self._resume(config.index_interval_bytes)
        segment.created_ms = now_ms
        unsaved = segment.index_unsaved
        self._index_saved = segment.size != 0 and not unsaved
        self._saved_offsets, self._saved_times = (
            (0, 0) if unsaved else (len(segment.offsets), len(segment.times))
        )
        self._note_fullness()

    def _resume(self, interval_bytes: int) -> SegmentIndexer:
        segment = self.segment
        (offsets, times), size = segment.growing_indexes(), segment.size_bytes
        max_timestamp_ms, max_offset = times.last if len(times) else (-1, -1)
        recent, next_offset = RecentBatches(segment.base_offset), segment.base_offset
        start = offsets.entry(len(offsets) - 1).position if len(offsets) else 0
        if (start and start >= size) or (not size and len(times)):
            # New entries would else follow entries of records that are gone.
            raise damaged(segment.file(), size, f"the file ends there, its index knows of byte {start}")
        for batch in scan(segment.file(), start, size) if size else ():
            if not recent.lasts:
                recent.floor = batch.base_offset if start else segment.base_offset
            recent.add(batch.last_offset, batch.position)
            next_offset = batch.last_offset + 1
            if batch.max_timestamp_ms > max_timestamp_ms:
                max_timestamp_ms, max_offset = batch.max_timestamp_ms, batch.last_offset
        segment.checked.add(start, size)
        segment.checked.from_here_on = min(segment.checked.from_here_on, start)
        if size:
            first = next(scan(segment.file(), 0, size))
            self._begin(first.max_timestamp_ms)
        segment.next_offset, segment.recent, self._recent = next_offset, recent, recent
        return SegmentIndexer(offsets, times, interval_bytes, max_timestamp_ms, max_offset)

    def configure(self, config: TopicConfig) -> None:
        """Take the topic's limits. The jitter of this segment stays."""
        self._limits = RollLimits(
            segment_bytes=config.segment_bytes,
            segment_ms=config.roll_ms,
            segment_jitter_ms=min(self._jitter_ms, config.roll_ms),
        )
        self._index_bytes_max = config.segment_index_bytes
        self._entries_sure = config.segment_index_bytes // TIME_ENTRY_BYTES - 1
        """With fewer offset entries no index is full: each time entry but the last comes with an offset entry."""
        self._index_is_full(full=False)
        self._begin(self._first_timestamp_ms)

    def _index_is_full(self, *, full: bool) -> None:
        self._index_full = full
        self._size_max = -1 if full else self._limits.segment_bytes

    def _begin(self, first_timestamp_ms: int) -> None:
        self._first_timestamp_ms = first_timestamp_ms
        limits = self._limits
        self._roll_at_ms = (
            min(first_timestamp_ms + limits.segment_ms - limits.segment_jitter_ms, _NEVER_MS)
            if first_timestamp_ms >= 0
            else -2  # below every timestamp, so that the rule itself is asked: it needs the clock
        )

    def must_roll(self, batch: RecordBatch, pending_bytes: int, now_ms: Callable[[], int]) -> bool:
        """Return whether ``batch`` belongs to a new segment, after ``pending_bytes`` more in this one.

        Mostly a few comparisons say no. Otherwise the rule itself (``log.segment_rules``) is asked.
        """
        size = self.segment.size + pending_bytes
        if size == 0:
            self._begin(batch.max_timestamp)
            return batch.last_offset > self._offset_max
        if (
            size + batch.size_bytes <= self._limits.segment_bytes
            and batch.max_timestamp <= self._roll_at_ms
            and not self._index_full
            and batch.last_offset <= self._offset_max
        ):
            return False
        return self._rule(batch, size, now_ms()) is not None

    def _rule(self, batch: RecordBatch, size: int, now_ms: int) -> RollReason | None:
        segment = ActiveSegment(
            base_offset=self.segment.base_offset,
            size_bytes=size,
            created_ms=self.segment.created_ms,
            first_timestamp_ms=self._first_timestamp_ms,
            index_full=self._index_full,
        )
        incoming = IncomingBatch(batch.size_bytes, batch.last_offset, batch.max_timestamp)
        return should_roll(segment, incoming, now_ms, self._limits)

    def append_one(self, batch: RecordBatch) -> bool:
        """Write one batch if a few comparisons show that it belongs here. Return whether it was written.

        Most turns bring a partition one batch. So this repeats :meth:`append_few` without its lists.

        :raises OSError: as :meth:`append`
        """
        segment = self.segment
        start, size_bytes = segment.size, batch.size_bytes
        last_offset = batch.base_offset + batch.last_offset_delta
        if (
            start + size_bytes > self._size_max
            or batch.max_timestamp > self._roll_at_ms
            or last_offset > self._offset_max
        ):
            return False
        try:
            file = segment.opened or segment.file()
            if file.pwritev([batch.data], start) != size_bytes:
                raise self._short(size_bytes)
        except OSError as error:
            self._cut_back(start, error)
            raise
        segment.touched = True
        segment.size = start + size_bytes
        segment.next_offset = last_offset + 1
        self._recent.add(last_offset, start)
        if self.indexer.add(last_offset, start, size_bytes, batch.max_timestamp):
            self._indexed()
        return True

    def append_few(self, batches: Sequence[RecordBatch]) -> bool:
        """Write the batches, all or none, if a few comparisons show that all belong here. Return whether they were
        written.

        :raises OSError: as :meth:`append`
        """
        last = batches[-1]
        if (
            self.segment.size + sum([batch.size_bytes for batch in batches]) > self._size_max
            or max([batch.max_timestamp for batch in batches]) > self._roll_at_ms
            or last.base_offset + last.last_offset_delta > self._offset_max
        ):
            return False
        self.append(batches)
        return True

    def append(self, batches: Sequence[RecordBatch]) -> None:
        """Write the batches, all or none, in one gather write.

        :raises OSError: nothing was written; CutBackError: that is not certain
        """
        # A turn may bring a partition many batches. What is noted of them is gathered by list, not batch by batch.
        segment = self.segment
        start = segment.size
        buffers = [batch.data for batch in batches]
        *positions, end = accumulate(map(len, buffers), initial=start)
        try:
            if len(buffers) <= IOV_MAX:
                self._gather(buffers, end - start, start)
            else:
                self._gather_all(buffers, start)
        except OSError as error:
            self._cut_back(start, error)
            raise
        last_offsets = [batch.base_offset + batch.last_offset_delta for batch in batches]
        segment.touched = True
        segment.size = end
        segment.next_offset = last_offsets[-1] + 1
        self._recent.add_run(last_offsets, positions)
        if self.indexer.add_run(last_offsets, positions, end, [batch.max_timestamp for batch in batches]):
            self._indexed()

    def _gather(self, buffers: Sequence[memoryview], size_bytes: int, position: int) -> None:
        file = self.segment.opened or self.segment.file()
        if file.pwritev(buffers, position) != size_bytes:
            raise self._short(size_bytes)

    def _short(self, size_bytes: int) -> OSError:
        return OSError(errno.ENOSPC, f"not all of {size_bytes} bytes could be written", self.segment.path())

    def _gather_all(self, buffers: Sequence[memoryview], position: int) -> None:
        for at in range(0, len(buffers), IOV_MAX):
            some = buffers[at : at + IOV_MAX]
            size_bytes = sum(map(len, some))
            self._gather(some, size_bytes, position)
            position += size_bytes

    def _cut_back(self, size: int, cause: OSError) -> None:
        if cause.filename is None:
            cause.filename = self.segment.path()  # the error of a call on a descriptor has no path
        if size == 0:
            self._begin(NO_TIMESTAMP)  # the next batch is the first again
        try:
            self.segment.file().truncate(size)
        except OSError as error:
            raise CutBackError(
                error.errno, f"a write failed ({cause}), then the cut back to byte {size}: {error}"
            ) from error

    def _indexed(self) -> None:
        self._note_fullness()
        if len(self.indexer.offsets) - self._saved_offsets >= INDEX_SAVE_ENTRIES:
            try:
                self.save()
            except OSError as error:
                # The outcome of a write is about records, and these are written. No entry is lost: all stay in memory
                # for the next save, and a start rebuilds the index of an active segment. The seal fails if it can't
                # save them. Only a bad disk must not be written any more.
                if not can_be_undone(error):
                    self._failed(error)

    def _note_fullness(self) -> None:
        if len(self.indexer.offsets) < self._entries_sure:
            return
        bytes_max = self._index_bytes_max
        self._index_is_full(
            full=self.indexer.offsets.is_full(bytes_max) or self.indexer.times.is_full(bytes_max)
        )

    def save(self) -> None:
        """Write the index entries that wait, to files that are made if necessary."""
        offsets, times = len(self.indexer.offsets), len(self.indexer.times)
        if self._index_saved and (offsets, times) == (self._saved_offsets, self._saved_times):
            return
        self.segment.save_indexes(self._saved_offsets, self._saved_times)
        self._saved_offsets, self._saved_times = offsets, times
        self._index_saved = True

    def reserve(self) -> None:
        """Reserve the space of a whole segment (``preallocate``). :meth:`seal` gives the rest back."""
        self.segment.file().reserve(self._limits.segment_bytes)
        self._reserved = True

    def seal(self) -> None:
        """Complete the index files, because the segment rolls or is closed. May be called twice."""
        if self._reserved:
            self.segment.file().truncate(self.segment.size)
            self._reserved = False
        self.indexer.seal()
        self.save()

    @property
    def highest(self) -> TimestampPosition:
        """The highest timestamp so far, -1 if there is none, and the last offset of the batch that it came with."""
        return TimestampPosition(self.indexer.max_timestamp_ms, self.indexer.max_timestamp_offset)
