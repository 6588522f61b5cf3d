"""Keep the open files and mapped indexes of a directory's segments within a budget.

Ten thousand logs have more files than a process may open. A segment opens its log file when it is first needed, and the
least recently used file is closed for it. "Recently" is by second chance: a segment stays if it was used since the last
look at it. So a use costs one flag, and no move in a list.

**Closing must not lose an error of write-back.** Linux reports a failed write-back to each descriptor that was open
when it happened, and to the first one opened later. But it forgets the error with the file's inode, which may leave
memory once no descriptor is open. So a file with unsynced bytes is synced before it is closed, in a worker where there
is time for that. A failure takes the directory offline, as every failed sync does.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

from blumfeld.spi.parts import FileRegion
from blumfeld.spi.runtime import File, Runtime

OPEN_FILES_MAX = 8192
"""Budget of a storage that is not told how many files the process may open."""
MAPPED_MAX = 16_384
"""Segments whose indexes may be mapped. Two maps each are half of ``vm.max_map_count`` (65,530 unless raised)."""
SYNCED_AT_ONCE = 32
"""Files that a worker syncs in one job, before they are closed."""
LOOKS_MAX = 64
"""Segments to look at, at most, to find one that can be closed."""
_SOFT_SHARE = 7 / 8
"""Share of the budget from which on unsynced files are synced, so that later ones can be closed without waiting."""


class Opener(Protocol):
    """A segment that opens files and maps indexes."""

    touched: bool
    """The file or an index was used since the budget last looked at this segment."""
    cuts: int
    """How often the file was truncated."""

    @property
    def unsynced(self) -> bool:
        """Bytes were written that no sync has covered."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether the log file is open."""
        ...

    def file(self) -> File:
        """The log file, open."""
        ...

    def synced(self, size: int, cuts: int) -> None:
        """Take down that a sync has covered the first ``size`` bytes.

        :param cuts: :attr:`cuts` when the sync began: after a later one it proves nothing
        """
        ...

    def written_bytes(self) -> int:
        """Return how many bytes the file has."""
        ...

    def close_file(self) -> None:
        """Close the file until it is needed again."""
        ...

    def forget_indexes(self) -> None:
        """Unmap the indexes until they are needed again."""
        ...


class OpenFiles:
    """The open files and maps of one log directory.

    :param failed: called when a sync before a close fails
    :param descriptors_max: half of these are for log files, half for maps, as each Python map keeps a descriptor
    """

    __slots__ = (
        "_failed",
        "_mapped",
        "_open",
        "_runtime",
        "_soft_max",
        "_syncing",
        "files_max",
        "mapped_max",
    )

    def __init__(
        self,
        runtime: Runtime,
        failed: Callable[[OSError], None],
        descriptors_max: int = OPEN_FILES_MAX,
    ) -> None:
        self.files_max = max(descriptors_max // 2, 8)
        self.mapped_max = max(min(descriptors_max // 4, MAPPED_MAX), 4)
        self._soft_max = int(self.files_max * _SOFT_SHARE)
        self._runtime = runtime
        self._failed = failed
        self._open: dict[Opener, None] = {}
        self._mapped: dict[Opener, None] = {}
        self._syncing = False

    def __len__(self) -> int:
        """How many files are open."""
        return len(self._open)

    @property
    def mapped(self) -> int:
        """How many segments have their indexes mapped."""
        return len(self._mapped)

    def opened(self, segment: Opener) -> None:
        """Count a file that was opened. Close the least recently used ones if there are too many.

        :raises OSError: the budget is full of unsynced files, and a sync of one of them has failed
        """
        self._open[segment] = None
        if len(self._open) > self._soft_max:
            self._make_room(segment)

    def closed(self, segment: Opener) -> None:
        """Count a file as closed."""
        self._open.pop(segment, None)

    def has_mapped(self, segment: Opener) -> None:
        """Count mapped indexes. Unmap the least recently used ones if there are too many."""
        self._mapped[segment] = None
        looks = 0
        while len(self._mapped) > self.mapped_max:
            oldest = next(iter(self._mapped))
            del self._mapped[oldest]
            looks += 1
            if oldest is segment or (oldest.touched and looks < LOOKS_MAX):
                oldest.touched = False
                self._mapped[oldest] = None
            else:
                oldest.forget_indexes()

    def has_unmapped(self, segment: Opener) -> None:
        """Count the indexes as not mapped: they were unmapped, or are written now."""
        self._mapped.pop(segment, None)

    def give_way(self) -> None:
        """Make room in a process that can open no more files: close up to half of those that need no sync."""
        clean = (segment for segment in list(self._open) if not segment.unsynced)
        for segment in list(islice(clean, len(self._open) // 2 + 1)):
            segment.close_file()

    def _make_room(self, newest: Opener) -> None:
        for _ in range(LOOKS_MAX):
            if len(self._open) <= self._soft_max:
                return
            oldest = next(iter(self._open))
            if oldest is newest or oldest.touched or oldest.unsynced:
                oldest.touched = False
                self._open[oldest] = self._open.pop(oldest)
            else:
                oldest.close_file()
        if not self._syncing:
            self._syncing = True
            self._runtime.spawn(self._sync_oldest(), "sync files to be closed")
        while len(self._open) > self.files_max:
            self._sync_and_close(newest)

    def _sync_and_close(self, newest: Opener) -> None:
        """Sync and close one file, on the loop: no other way is left.

        This happens only on a node with too few descriptors for the logs that it writes.
        """
        oldest = next(segment for segment in self._open if segment is not newest)
        if oldest.unsynced:
            try:
                oldest.file().fdatasync()
            except OSError as error:
                self._failed(error)
                raise
            oldest.synced(oldest.written_bytes(), oldest.cuts)
        oldest.close_file()

    async def _sync_oldest(self) -> None:
        try:
            while len(self._open) > self._soft_max:
                unsynced = (segment for segment in self._open if segment.unsynced)
                if not (oldest := list(islice(unsynced, SYNCED_AT_ONCE))):
                    return
                await self._sync(oldest)
        except OSError as error:
            self._failed(error)
        finally:
            self._syncing = False

    async def _sync(self, segments: Sequence[Opener]) -> None:
        before = [(segment.written_bytes(), segment.cuts) for segment in segments]
        files: list[File] = []
        held: list[FileRegion] = []
        try:
            for segment in segments:
                files.append(segment.file())
                held.append(files[-1].region(0, 0))
            await self._runtime.offload(_sync_all, files)
        except OSError as error:
            if error.errno == errno.EBADF and not all(segment.is_open for segment in segments):
                return  # one was closed or deleted meanwhile; the others are synced in the next job
            raise
        finally:
            for region in held:
                region.release()
        for segment, (size, cuts) in zip(segments, before, strict=True):
            segment.synced(size, cuts)
            if segment in self._open and not segment.unsynced:
                segment.close_file()


def _sync_all(files: Sequence[File]) -> None:
    for file in files:
        file.fdatasync()
