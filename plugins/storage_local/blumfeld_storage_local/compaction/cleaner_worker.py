"""The work of a cleaner pass, in a worker process: read sealed segments, write ``.cleaned`` files, at a bounded rate.

The log itself does not change here: :mod:`blumfeld_storage_local.compaction.cleaner_pass` swaps the files in.
"""

from __future__ import annotations

import errno
from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from blumfeld.log.producers.aborted_transactions import encode_aborted
from blumfeld.log.segments.file_names import Mark, Suffix, parse_segment_name, segment_name
from blumfeld.log.segments.index import OffsetIndex, SegmentIndexer, TimeIndex
from blumfeld.spi.compaction import AbortedTransaction, CompactionRequest, CompactionResult
from blumfeld.spi.runtime import File, Files

if TYPE_CHECKING:
    from blumfeld.log.cleaning.cleaner_pass import BatchSpan, Buffer

IOV_MAX = 1024
"""Buffers that one gather write takes (Linux)."""
RESERVE_BYTES = 16 << 20
"""A pass gives up before less than this is left on the disk: producers need the rest."""


class CompactionJob(msgspec.Struct, frozen=True):
    """The work for one pass, as the worker process gets it."""

    directory: str
    sources: tuple[tuple[int, int], ...]
    """(base offset, next offset) of each segment, from the log's first on."""
    request: CompactionRequest


class CleanedSegment(msgspec.Struct, frozen=True):
    """A segment whose ``.cleaned`` files are on the device."""

    base_offset: int
    size_bytes: int
    suffixes: tuple[Suffix, ...]
    """Suffixes of its files. The log is the last: the rename of the first segment's log makes the swap happen."""
    replaced: tuple[int, ...]
    """Base offsets of the old segments that this one replaces."""


class CompactionOutcome(msgspec.Struct, frozen=True):
    """The result of one pass, as the worker process returns it."""

    result: CompactionResult
    segments: tuple[CleanedSegment, ...]


def compact_files(files: Files, job: CompactionJob) -> Generator[float, float, CompactionOutcome]:
    """Do the pass. If it fails, it removes its files. If it is killed, the next pass or start removes them.

    A generator: it yields the seconds to pause, which bound its rate, and is sent the time.

    :raises OSError: a batch is bad, or the disk is full, or too little room would be left
    """
    # Only the worker process needs the cleaning: a broker starts without it.
    from blumfeld.log.cleaning.cleaner_pass import clean

    began = yield 0.0
    remove_leftovers(files, job.directory)
    pass_ = _Pass(files, job)
    steps = clean(pass_.sources, job.request, pass_.open_target)
    work_bytes, paused_seconds = 0, 0.0
    now = began
    try:
        while True:
            work_bytes += next(steps)
            pass_.check_space()
            due = began + work_bytes / job.request.bytes_per_second_max
            pause_seconds = max(0.0, due - now)
            paused_seconds += pause_seconds
            now = yield pause_seconds
    except StopIteration as stop:
        result: CompactionResult = stop.value
    except Exception:
        pass_.close()
        with suppress(OSError):
            remove_leftovers(files, job.directory)
        raise
    pass_.close()
    now = yield 0.0
    result = msgspec.structs.replace(result, seconds=max(0.0, now - began - paused_seconds))
    return CompactionOutcome(result, tuple(target.made() for target in pass_.targets))


def remove_leftovers(files: Files, directory: str) -> None:
    """Remove the files of a pass that was not completed. Call it only while no swap is being finished.

    ``.swap`` files go first, and that is synced: without a ``.cleaned`` file beside them, a start would take them for
    a swap that has happened.
    """
    marked = [(name, file.mark) for name in files.list_dir(directory) if (file := parse_segment_name(name))]
    swaps = [name for name, mark in marked if mark is Mark.SWAP]
    for name in swaps:
        files.unlink(f"{directory}/{name}")
    if swaps:
        files.sync_dir(directory)
    for name in (name for name, mark in marked if mark is Mark.CLEANED):
        files.unlink(f"{directory}/{name}")


class _Pass:
    def __init__(self, files: Files, job: CompactionJob) -> None:
        self._files = files
        self._job = job
        self.sources = [FileSource(files, job.directory, *offsets) for offsets in job.sources]
        self.targets: list[FileTarget] = []

    def open_target(self, base_offset: int, replaced: Sequence[int]) -> FileTarget:
        target = FileTarget(
            self._files,
            self._job.directory,
            base_offset,
            tuple(replaced),
            self._job.request.index_interval_bytes,
        )
        self.targets.append(target)
        return target

    def check_space(self) -> None:
        _, usable = self._files.space(self._job.directory)
        if usable < RESERVE_BYTES:
            raise OSError(errno.ENOSPC, "too little space is left to compact", self._job.directory)

    def close(self) -> None:
        for source in self.sources:
            source.close()
        for target in self.targets:
            target.close()


class FileSource:
    """``Source``: a sealed segment's log file, opened when it is first read."""

    def __init__(self, files: Files, directory: str, base_offset: int, next_offset: int) -> None:
        self.base_offset = base_offset
        self.next_offset = next_offset
        self._files = files
        self._path = f"{directory}/{segment_name(base_offset)}"
        self._file: File | None = None
        self._size_bytes = -1

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        if self._size_bytes < 0:
            self._size_bytes = self._opened().size()
            self.close()  # the sizes of many sources are asked before the first is read: don't keep them all open
        return self._size_bytes

    @property
    def modified_ms(self) -> int:
        """Modification time of the file: retention by time goes by it where records have no timestamps."""
        return self._files.modified_ms(self._path)

    def read(self, position: int, size: int) -> bytes:
        """Return bytes of the file. The file is closed when its last byte was read."""
        data = self._opened().pread(size, position)
        if position + len(data) >= self.size_bytes:
            self.close()
        return data

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._files.open(self._path, write=False)
        return self._file

    def close(self) -> None:
        """Close the file. It may be read again, and is opened again then."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()


class FileTarget:
    """``Target``: the ``.cleaned`` files of one segment, indexed as its writer would have done."""

    def __init__(
        self, files: Files, directory: str, base_offset: int, replaced: tuple[int, ...], interval_bytes: int
    ) -> None:
        self.base_offset = base_offset
        self.replaced = replaced
        self._files = files
        self._directory = directory
        self._size_bytes = 0
        self._suffixes: tuple[Suffix, ...] = (Suffix.OFFSET_INDEX, Suffix.TIME_INDEX, Suffix.LOG)
        self._indexer = SegmentIndexer(OffsetIndex(base_offset), TimeIndex(base_offset), interval_bytes)
        self._file = files.open(self._path(Suffix.LOG), create=True, exclusive=True)

    def _path(self, suffix: Suffix) -> str:
        return f"{self._directory}/{segment_name(self.base_offset, suffix, Mark.CLEANED)}"

    def append(self, buffers: Sequence[Buffer], batches: Sequence[BatchSpan]) -> None:
        """Write whole batches."""
        position, add = self._size_bytes, self._indexer.add
        for start in range(0, len(buffers), IOV_MAX):
            some = buffers[start : start + IOV_MAX]
            self._size_bytes += _write_all(self._file, some, self._size_bytes)
        for last_offset, size_bytes, max_timestamp_ms in batches:
            add(last_offset, position, size_bytes, max_timestamp_ms)
            position += size_bytes

    def finish(self, aborted: Sequence[AbortedTransaction], modified_ms: int) -> None:
        """Write the indexes, and sync all files."""
        indexer = self._indexer
        indexer.seal()
        self._put(Suffix.OFFSET_INDEX, indexer.offsets.encode())
        self._put(Suffix.TIME_INDEX, indexer.times.encode())
        if aborted:
            self._suffixes = (Suffix.TRANSACTION_INDEX, *self._suffixes)
            self._put(Suffix.TRANSACTION_INDEX, encode_aborted(aborted))
        self._file.fdatasync()
        self._file.close()
        self._files.set_modified_ms(self._path(Suffix.LOG), modified_ms)

    def _put(self, suffix: Suffix, data: bytes) -> None:
        file = self._files.open(self._path(suffix), create=True, exclusive=True)
        try:
            if data:
                _write_all(file, [data], 0)
            file.fdatasync()
        finally:
            file.close()

    def made(self) -> CleanedSegment:
        """Return what was written."""
        return CleanedSegment(self.base_offset, self._size_bytes, self._suffixes, self.replaced)

    def close(self) -> None:
        """Close the file. May be called twice."""
        self._file.close()


def _write_all(file: File, buffers: Sequence[Buffer], position: int) -> int:
    """Write all buffers, and return their size. After a short write a second try tells that the disk is full.

    Raises ``OSError``.
    """
    size = sum(map(len, buffers))
    written = file.pwritev(buffers, position)
    while written < size:
        rest = memoryview(b"".join(buffers))[written:]
        more = file.pwritev([rest], position + written)
        if more == 0:
            raise OSError(errno.ENOSPC, "nothing more could be written", file.path)
        written += more
    return written
