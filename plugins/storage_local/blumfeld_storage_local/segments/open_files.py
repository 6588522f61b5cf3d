"""How many files of a directory's segments are open, and how many indexes mapped: no more than a process may have.

Ten thousand logs have more files than a process may open. A segment opens its log file when it is first needed; here
the least recently used is closed for it. "Recently" is by second chance: who was used since it was last looked at
stays, so that a use costs one flag and no list.

**An error of write-back isn't lost by closing.** Linux tells a failed write-back to each descriptor that was open when
it happened, and to the first that is opened after it, but only while the file's inode stays in memory, which nothing
promises once nobody has it open. So a file with bytes that were not synced is synced before it is closed, off the loop
where there is time for that, and a failure takes the directory offline as every failed sync does.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

from blumfeld.spi.parts import FileRegion
from blumfeld.spi.runtime import File, Runtime

OPEN_FILES_MAX = 8192
"""For a storage that is not told what the process may open."""
MAPPED_MAX = 16_384
"""Segments with both indexes mapped: together half of ``vm.max_map_count`` (65,530 unless raised)."""
SYNCED_AT_ONCE = 32
"""Files that a worker syncs before they are closed."""
LOOKS_MAX = 64
"""Segments that are looked at to find one to close, for each that opens."""
_SOFT_SHARE = 7 / 8
"""From here on what was not synced is synced, so that it can be closed without waiting when all is full."""


class Opener(Protocol):
    """A segment, as far as its descriptor and maps go."""

    touched: bool
    """Its file or index was used; cleared by who looks for one to close."""
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
        """A sync has covered the first ``size`` bytes, which began when there had been so many :attr:`cuts`."""
        ...

    def written_bytes(self) -> int:
        """How many bytes it has."""
        ...

    def close_file(self) -> None:
        """Give the descriptor back until it is needed again."""
        ...

    def forget_indexes(self) -> None:
        """Give the maps back until they are needed again."""
        ...


class OpenFiles:
    """The open files and maps of one log directory.

    :param failed: told when a sync before a close fails
    :param descriptors_max: half of it is for log files, half for maps: each map of Python's keeps a descriptor
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
        """Files that are open."""
        return len(self._open)

    @property
    def mapped(self) -> int:
        """Segments whose indexes are mapped."""
        return len(self._mapped)

    def opened(self, segment: Opener) -> None:
        """It has opened its file; the least recently used are closed if there are too many.

        :raises OSError: the budget is full of unsynced files, and to sync one of them has failed
        """
        self._open[segment] = None
        if len(self._open) > self._soft_max:
            self._make_room(segment)

    def closed(self, segment: Opener) -> None:
        """It has closed its file."""
        self._open.pop(segment, None)

    def has_mapped(self, segment: Opener) -> None:
        """It has mapped its indexes; the least recently used are given back if there are too many."""
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
        """It has given its maps back, or writes its indexes now."""
        self._mapped.pop(segment, None)

    def give_way(self) -> None:
        """The process can open no more: close what can be closed without a sync, half of all at most."""
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
        """On the loop: nothing else is left. A node that gets here has too few descriptors for what it writes."""
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
                return  # one was closed or deleted meanwhile; the others come again
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
