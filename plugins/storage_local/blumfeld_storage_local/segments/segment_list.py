"""The segments of one log in order, and how they come and go in its directory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from blumfeld.log.segments.file_names import Mark, Suffix
from blumfeld_storage_local.directories.directory import LogDirectory
from blumfeld_storage_local.segments.segment import SUFFIXES, Segment


class SegmentList:
    """Never empty; the last segment is the active one. Every method may raise ``OSError``."""

    __slots__ = ("_bases", "_home", "_segments", "at_rest", "directory")

    def __init__(self, home: LogDirectory, directory: str, segments: list[Segment]) -> None:
        self.directory = directory
        self.at_rest = False
        """Size and end of the active segment are known from when the log was closed; no file was opened."""
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
        """The one that is written."""
        return self._segments[-1]

    @property
    def first_offset(self) -> int:
        """The base of the oldest."""
        return self._bases[0]

    def index_of(self, offset: int) -> int:
        """Which segment holds ``offset``, or would; 0 for one before all."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def lasting(self, flushed_end_offset: int) -> int:
        """``flushed_end_offset``, or where the sealed segments right before it begin whose indexes aren't synced."""
        at = self.index_of(flushed_end_offset)
        while at > 0 and self._segments[at - 1].index_unsynced:
            at -= 1
            flushed_end_offset = self._segments[at].base_offset
        return flushed_end_offset

    def add(self, base_offset: int) -> Segment:
        """A new active segment. The one before it ends there; an empty one gives way, as it holds nothing."""
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

    def drop_oldest(self, end_offset: int, delay_ms: int) -> int:
        """Remove sealed segments that end at or below ``end_offset``, oldest first; how many."""
        count = 0
        while count < len(self._segments) - 1 and self._segments[count].next_offset <= end_offset:
            count += 1
        if count:
            self._take_out(0, count, delay_ms)
        return count

    def drop_behind(self, keep: int, delay_ms: int) -> int:
        """Remove all but the first ``keep``, the newest first, so that a crash leaves no hole; how many."""
        count = len(self._segments) - keep
        if count > 0:
            self._take_out(keep, len(self._segments), delay_ms, newest_first=True)
        return count

    def replace(self, start: int, count: int, made: Sequence[Segment]) -> None:
        """Let sealed segments take the place of others, in one step; their files are somebody else's business.

        The old ones are closed; regions of them live on.
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
        """Go on with the copies of all segments in another directory; the old ones, still open."""
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
                    continue  # an index is written when its first entries are
                self._home.files.rename(path, path + Mark.DELETED.value)
                marked.append(path + Mark.DELETED.value)
        self._home.remove_later(marked, delay_ms)

    def close(self) -> None:
        """Give all descriptors back."""
        for segment in self._segments:
            segment.close()
