"""The segments of one log, in order; they are added to and removed from its directory here."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from blumfeld.log.segments.file_names import Mark, Suffix
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.durability import can_be_undone
from blumfeld_storage_local.segments.segment import SUFFIXES, Segment
from blumfeld_storage_local.segments.start_mark import mark_start


class SegmentList:
    """The segments of one log, never none. The last one is active. Every method may raise ``OSError``."""

    __slots__ = ("_bases", "_home", "_segments", "at_rest", "directory")

    def __init__(self, home: LogDirectory, directory: str, segments: list[Segment]) -> None:
        self.directory = directory
        self.at_rest = False
        """No file was opened: size and end of the active segment are those of the clean close."""
        self._home = home
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        for segment in segments:
            segment.counted_by(home.open_files)

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, at: int) -> Segment:
        return self._segments[at]

    @property
    def active(self) -> Segment:
        """The segment that is written."""
        return self._segments[-1]

    @property
    def first_offset(self) -> int:
        """The base offset of the oldest segment."""
        return self._bases[0]

    def index_of(self, offset: int) -> int:
        """Return the number of the segment that holds ``offset``, or would hold it; 0 for an offset before all."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def lasting(self, flushed_end_offset: int) -> int:
        """Return the offset below which records and indexes are on the device.

        That is ``flushed_end_offset``, less the sealed segments right before it whose indexes are not synced: a start
        must rebuild those, and it only looks above the recovery point.
        """
        at = self.index_of(flushed_end_offset)
        while at > 0 and self._segments[at - 1].index_unsynced:
            at -= 1
            flushed_end_offset = self._segments[at].base_offset
        return flushed_end_offset

    def add(self, base_offset: int) -> Segment:
        """Add a new active segment, and return it. The one before it ends there, or is removed if it is empty."""
        before = self._segments[-1] if self._segments else None
        empty = before is not None and before.size == 0
        if before is not None and empty and before.base_offset == base_offset:
            return before
        segment = Segment(self._home.files, self.directory, base_offset, base_offset)
        segment.counted_by(self._home.open_files)
        segment.create()
        self._segments.append(segment)
        self._bases.append(base_offset)
        if empty:
            self._take_out(len(self._segments) - 2, len(self._segments) - 1, 0)
        return segment

    def stand_in(self, base_offset: int) -> None:
        """Hold a segment that isn't on the disk: the list has lost all others, and its log is to be closed."""
        self._segments.append(Segment(self._home.files, self.directory, base_offset, base_offset))
        self._bases.append(base_offset)

    def drop_oldest(self, end_offset: int, delay_ms: int, *, names_unsynced: bool = True) -> int:
        """Remove sealed segments that end at or below ``end_offset``, oldest first, and return how many.

        :param names_unsynced: whether segments that went before may come back in a power cut
        """
        count = 0
        while count < len(self._segments) - 1 and self._segments[count].next_offset <= end_offset:
            count += 1
        if count:
            if count > 1 or names_unsynced:
                try:
                    mark_start(self._home.files, self.directory, self._bases[count])
                except OSError as error:
                    if not can_be_undone(error):
                        raise
                    # A full disk without room for a name needs the room of the segments all the more.
            self._take_out(0, count, delay_ms)
        return count

    def drop_behind(self, keep: int, delay_ms: int) -> int:
        """Remove all but the first ``keep`` segments, and return how many.

        The newest goes first, so that a crash leaves no hole.
        """
        count = len(self._segments) - keep
        if count > 0:
            self._take_out(keep, len(self._segments), delay_ms, newest_first=True)
        return count

    def replace(self, start: int, count: int, made: Sequence[Segment]) -> None:
        """Put sealed segments in the place of others, in one step. The caller cares for the files.

        The old segments are closed. Regions of them stay valid.
        """
        old = self._segments[start : start + count]
        self._segments[start : start + count] = made
        self._bases[start : start + count] = [segment.base_offset for segment in made]
        for at, segment in enumerate(made, start=start + 1):
            segment.next_offset = self._bases[at]
            segment.counted_by(self._home.open_files)
        for segment in old:
            segment.close()

    def relocate(self, home: LogDirectory, directory: str, copies: Sequence[Segment]) -> list[Segment]:
        """Go on with copies of all segments in another directory. Return the old segments, still open."""
        old, self._segments = self._segments, list(copies)
        self._home, self.directory = home, directory
        for segment in copies:
            segment.counted_by(home.open_files)
        return old

    def _take_out(self, start: int, end: int, delay_ms: int, *, newest_first: bool = False) -> None:
        gone = self._segments[start:end]
        del self._segments[start:end]
        del self._bases[start:end]
        if newest_first:
            gone.reverse()
        marked: list[str] = []
        for segment in gone:
            segment.close()
            for suffix in (*SUFFIXES, Suffix.TRANSACTION_INDEX):
                path = segment.path(suffix)
                if suffix is not Suffix.LOG and not self._home.files.exists(path):
                    continue  # an index file is made only with its first entries
                self._home.files.rename(path, path + Mark.DELETED.value)
                marked.append(path + Mark.DELETED.value)
        self._home.remove_later(marked, delay_ms)

    def close(self) -> None:
        """Close all segments."""
        for segment in self._segments:
            segment.close()
