"""The small files beside a log: all files in its directory but the logs and indexes of segments."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress

from blumfeld.log.segments.file_names import parse_segment_name
from blumfeld.spi.runtime import File, Files
from blumfeld_storage_local.compaction.swap_plan import SWAP_PLAN
from blumfeld_storage_local.segments.segment import SUFFIXES
from blumfeld_storage_local.sync.small_file import write_unsynced

DRAFT = ".part"
"""Ending of a file that is still arriving. Kafka's unfinished snapshots have it too."""
UNFINISHED = (".tmp", DRAFT)
"""Endings of files that a crash can leave half written."""


class AuxDirectory:
    """``ChunkedAuxFiles`` of one log's directory. Every method may raise ``OSError``.

    :param numbers: for drafts; no other log of the same path ever has one of them
    """

    __slots__ = ("_drafts", "_files", "_numbers", "directory", "touched", "unsynced")

    def __init__(self, files: Files, directory: str, numbers: Iterator[int]) -> None:
        self._files = files
        self._numbers = numbers
        self._drafts: dict[int, FileDraft] = {}
        """Drafts that have not ended, by number. Workers and the loop change it: each change is one call."""
        self.directory = directory
        self.touched: set[str] | None = None
        """Names that were written or deleted while a move copies the log; ``None`` without a move."""
        self.unsynced: set[str] = set()
        """Names that the log's next sync must cover."""

    def names(self) -> list[str]:
        """Return all names, sorted. Files of segments, and files that wait to be removed, are not among them."""
        return [name for name in self._files.list_dir(self.directory) if self._is_ours(name)]

    def _is_ours(self, name: str) -> bool:
        if name.endswith(UNFINISHED) or name == SWAP_PLAN:
            return False
        segment = parse_segment_name(name)
        return segment is None or (segment.suffix not in SUFFIXES and not segment.mark)

    def read(self, name: str) -> bytes | None:
        """Return the file's bytes, or ``None`` if there is no such file."""
        try:
            return self._files.read_bytes(self._path(name))
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write or replace a file; durable when this returns."""
        self._files.write_atomically(self._path(name), data)
        self.unsynced.discard(name)
        if self.touched is not None:
            self.touched.add(name)

    def write_unsynced(self, name: str, data: bytes) -> None:
        """Write or replace a file; the next sync of the log makes it durable."""
        write_unsynced(self._files, self._path(name), data)
        self.unsynced.add(name)
        if self.touched is not None:
            self.touched.add(name)

    def delete(self, name: str) -> None:
        """Remove a file, if it exists."""
        with suppress(FileNotFoundError):
            self._files.unlink(self._path(name))
        self.unsynced.discard(name)
        if self.touched is not None:
            self.touched.add(name)

    def size(self, name: str) -> int | None:
        """Return the file's size in bytes, or ``None`` if there is no such file."""
        file = self._open(name)
        if file is None:
            return None
        try:
            return file.size()
        finally:
            file.close()

    def read_at(self, name: str, position: int, size_bytes: int) -> bytes | None:
        """Return a part of the file, or ``None`` if there is no such file."""
        file = self._open(name)
        if file is None:
            return None
        try:
            data = file.pread(size_bytes, position)
            while 0 < len(data) < size_bytes and (
                more := file.pread(size_bytes - len(data), position + len(data))
            ):
                data += more
            return data
        finally:
            file.close()

    def _open(self, name: str) -> File | None:
        try:
            return self._files.open(self._path(name), write=False)
        except FileNotFoundError:
            return None

    def begin(self, name: str) -> FileDraft:
        """Begin a file that arrives in chunks."""
        for older in list(self._drafts.values()):
            if older.name == name:
                older.abort()
        number = next(self._numbers)
        draft = self._drafts[number] = FileDraft(self, self._files, name, self._path(name), number)
        return draft

    def ended(self, number: int) -> None:
        """Forget a draft."""
        self._drafts.pop(number, None)

    def committed(self, name: str) -> None:
        """Take note that a draft is in its place."""
        if self.touched is not None:
            self.touched.add(name)

    def _path(self, name: str) -> str:
        if "/" in name or not self._is_ours(name):
            raise ValueError(f"{name!r} can't stand beside a log")
        return f"{self.directory}/{name}"


class FileDraft:
    """``AuxDraft`` in a file of its own beside the log, with the ending ``.part``.

    A worker appends while the loop may call :meth:`abort`. A file that is closed under a worker is dangerous: the
    system may give its descriptor to another file, which the worker would then write into. So the one that works takes
    the file out of ``_free``, and puts it back; an abort meanwhile leaves the closing to it.
    """

    __slots__ = ("_aborted", "_aux", "_files", "_free", "_number", "_part", "_path", "name", "size_bytes")

    def __init__(self, aux: AuxDirectory, files: Files, name: str, path: str, number: int) -> None:
        self._aux = aux
        self._files = files
        self.name = name
        self._number = number
        self._path = path
        self._part = f"{path}.{number}{DRAFT}"
        self._aborted = False
        self._free: list[File] = [files.open(self._part, exclusive=True)]
        """The file, while nobody works with it. ``pop`` and ``append`` of a list are atomic."""
        self.size_bytes = 0

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes at the end. On a failure what was written of them is overwritten by the next append."""
        file = self._take()
        try:
            left, position = memoryview(data), self.size_bytes
            while left:
                written = file.pwritev([left], position)
                if written <= 0:
                    raise OSError(errno.ENOSPC, "nothing could be written", file.path)
                left, position = left[written:], position + written
            self.size_bytes = position
        finally:
            self._give_back(file)

    def flush(self) -> None:
        """Sync the bytes."""
        file = self._take()
        try:
            file.truncate(self.size_bytes)
            file.fdatasync()
        finally:
            self._give_back(file)

    def commit(self) -> None:
        """Sync the bytes, then rename the file, then sync its name: a crash leaves the old file or the new one."""
        self._end(flushes=True)
        self.settle()

    def put(self) -> None:
        """Rename the file."""
        self._end(flushes=False)

    def _end(self, *, flushes: bool) -> None:
        file = self._take()
        self._aborted = True
        try:
            if flushes:
                file.truncate(self.size_bytes)
                file.fdatasync()
            self._files.rename(self._part, self._path)
        except OSError:
            self._give_back(file)
            raise
        file.close()
        self._aux.ended(self._number)
        self._aux.committed(self.name)

    def settle(self) -> None:
        """Sync the file's name."""
        self._files.sync_dir(self._path.rpartition("/")[0])

    def abort(self) -> None:
        """Close and remove the file, which may block if it is large. One that can't be removed goes when the log is
        opened again."""
        self._aborted = True
        self._discard()

    def _take(self) -> File:
        if self._aborted or not self._free:
            raise ValueError(f"the draft of {self.name} has ended")
        return self._free.pop()

    def _give_back(self, file: File) -> None:
        self._free.append(file)
        if self._aborted:
            self._discard()

    def _discard(self) -> None:
        try:
            file = self._free.pop()
        except IndexError:
            return  # the worker that has it discards it
        with suppress(OSError):
            file.close()
        with suppress(OSError):
            self._files.unlink(self._part)
        self._aux.ended(self._number)
