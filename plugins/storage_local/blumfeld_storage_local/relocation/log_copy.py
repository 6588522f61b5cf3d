"""Copy a log's files to another directory, step by step, while the log is written.

The methods that copy block: the move calls them in a worker, one at a time, and hands in what the log consists of.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from blumfeld.log.segments.file_names import Suffix, segment_name
from blumfeld.spi.runtime import File, Files
from blumfeld_storage_local.logs.partition_log import Original
from blumfeld_storage_local.segments.segment import Segment

READ_BYTES = 1 << 20
_BESIDE = (Suffix.OFFSET_INDEX, Suffix.TIME_INDEX, Suffix.TRANSACTION_INDEX)
"""Suffixes of a segment's files beside its log. Each of these files may be missing."""


class TargetError(OSError):
    """The target directory can't be written."""


class TargetSyncError(TargetError):
    """A sync of the target directory failed. Linux may have dropped the bytes, so the directory must go offline."""


class SourceChangedError(Exception):
    """A source file is gone or shorter than expected, after a truncation, a cleaner pass or retention.

    The move lists the segments again and goes on.
    """


class _Copied(msgspec.Struct):
    segment: Segment
    size_bytes: int = 0
    whole: bool = False
    """The segment was sealed, and its whole copy is synced."""


class LogCopy:
    """Copies a log's files from ``source``, the log's own directory, to ``directory``."""

    def __init__(self, files: Files, source: str, directory: str) -> None:
        self.directory = directory
        self._files = files
        self._source = source
        self._copied: dict[int, _Copied] = {}
        self._at: tuple[int, File, File] | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of segments that are copied so far."""
        return sum(copied.size_bytes for copied in self._copied.values())

    def end_offset(self, originals: Sequence[Original]) -> int:
        """Return the offset below which all is copied, rounded down to a segment's base."""
        for original in originals:
            if not self._has_all(original):
                return original.segment.base_offset
        return originals[-1].next_offset

    def bytes_left(self, originals: Sequence[Original]) -> int:
        """Return how many bytes of these segments are still to be copied."""
        return sum(original.size_bytes - self._have(original) for original in originals)

    def has_sealed(self, originals: Sequence[Original]) -> bool:
        """Return whether every sealed segment is copied and synced."""
        return all(self._has_all(original) for original in originals if original.sealed)

    def _has_all(self, original: Original) -> bool:
        copied = self._copied.get(original.segment.base_offset)
        if copied is None or copied.segment is not original.segment:
            return False
        return copied.size_bytes == original.size_bytes and (copied.whole or not original.sealed)

    def _have(self, original: Original) -> int:
        copied = self._copied.get(original.segment.base_offset)
        return copied.size_bytes if copied is not None and copied.segment is original.segment else 0

    # In a worker

    def begin(self) -> None:
        """Make the target directory, empty: remove what an earlier try left."""
        with _writing():
            self._files.remove_tree(self.directory)
            self._files.make_dirs(self.directory)
        with _syncing():
            self._files.sync_dir(_parent(self.directory))

    def step(self, originals: Sequence[Original], bytes_max: int) -> int:
        """Copy up to ``bytes_max`` bytes more, and return how many. 0 means that all these segments are copied.

        :raises SourceChangedError: list the segments again
        :raises TargetError: the copy can't be written
        :raises OSError: the log can't be read
        """
        self._drop_gone({original.segment.base_offset for original in originals})
        total = 0
        for original in originals:
            if self._has_all(original):
                continue
            total += self._copy(original, bytes_max - total)
            if total >= bytes_max:
                break
        return total

    def cut(self, offset: int) -> None:
        """Drop the copies that reach beyond ``offset``, where the log was truncated. They are made again."""
        below = max((base for base in self._copied if base < offset), default=-1)
        for base_offset in list(self._copied):
            if base_offset >= below:
                self._drop(base_offset)

    def copy_beside(self, names: Iterable[str]) -> None:
        """Copy, or delete, these small files beside the log. The copies are durable when this returns."""
        for name in names:
            data = self._read_whole(name)
            with _writing():
                if data is not None:
                    self._files.write_atomically(f"{self.directory}/{name}", data)
                else:
                    self._remove(name)

    def complete(self, originals: Sequence[Original], names: Iterable[str]) -> None:
        """Copy the last bytes and the indexes of the active segment. The whole copy is durable when this returns."""
        while self.step(originals, 1 << 30):
            pass
        self._close()
        self.copy_beside(names)
        active = originals[-1].segment.base_offset
        if active not in self._copied:
            raise SourceChangedError
        self._copy_indexes(active)
        with _syncing():
            self._sync(active)
            self._files.sync_dir(self.directory)

    def close(self) -> None:
        """Close the files that are open."""
        self._close()

    def _drop_gone(self, bases: set[int]) -> None:
        for base_offset in self._copied.keys() - bases:
            self._drop(base_offset)

    def _drop(self, base_offset: int) -> None:
        self._copied.pop(base_offset)
        self._close()
        with _writing():
            for suffix in (Suffix.LOG, *_BESIDE):
                self._remove(segment_name(base_offset, suffix))

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._files.unlink(f"{self.directory}/{name}")

    def _copy(self, original: Original, bytes_max: int) -> int:
        base_offset = original.segment.base_offset
        copied = self._copied.get(base_offset)
        if copied is not None and copied.segment is not original.segment:
            self._drop(base_offset)  # the cleaner put another in its place
            copied = None
        source, target = self._opened(base_offset)
        if copied is None:
            copied = self._copied[base_offset] = _Copied(original.segment)
        start = copied.size_bytes
        while copied.size_bytes < min(original.size_bytes, start + bytes_max):
            size = min(
                READ_BYTES, original.size_bytes - copied.size_bytes, start + bytes_max - copied.size_bytes
            )
            data = source.pread(size, copied.size_bytes)
            if len(data) < size:
                raise SourceChangedError
            with _writing():
                _write_all(target, data, copied.size_bytes)
            copied.size_bytes += size
        if original.sealed and copied.size_bytes == original.size_bytes:
            self._finish(copied)
        return copied.size_bytes - start

    def _opened(self, base_offset: int) -> tuple[File, File]:
        if self._at is None or self._at[0] != base_offset:
            self._close()
            name = segment_name(base_offset)
            try:
                source = self._files.open(f"{self._source}/{name}", write=False)
            except FileNotFoundError:
                raise SourceChangedError from None
            try:
                with _writing():
                    target = self._files.open(f"{self.directory}/{name}", create=True)
            except OSError:
                source.close()
                raise
            self._at = base_offset, source, target
        return self._at[1], self._at[2]

    def _close(self) -> None:
        if self._at is not None:
            _, source, target = self._at
            self._at = None
            source.close()
            target.close()

    def _finish(self, copied: _Copied) -> None:
        """Complete the copy of a sealed segment: copy its indexes and its modification time, and sync it."""
        base_offset = copied.segment.base_offset
        self._close()
        self._copy_indexes(base_offset)
        name = segment_name(base_offset)
        try:
            modified_ms = self._files.modified_ms(f"{self._source}/{name}")
        except FileNotFoundError:
            raise SourceChangedError from None
        with _syncing():
            self._sync(base_offset)
        with _writing():
            self._files.set_modified_ms(f"{self.directory}/{name}", modified_ms)
        copied.whole = True

    def _copy_indexes(self, base_offset: int) -> None:
        for suffix in _BESIDE:
            name = segment_name(base_offset, suffix)
            data = self._read_whole(name)
            with _writing():
                self._remove(name)
                if data is not None:
                    self._write_whole(name, data)

    def _sync(self, base_offset: int) -> None:
        for suffix in (Suffix.LOG, *_BESIDE):
            path = f"{self.directory}/{segment_name(base_offset, suffix)}"
            if suffix is Suffix.LOG or self._files.exists(path):
                file = self._files.open(path)
                try:
                    file.fdatasync()
                finally:
                    file.close()

    def _read_whole(self, name: str) -> bytes | None:
        try:
            return self._files.read_bytes(f"{self._source}/{name}")
        except FileNotFoundError:
            return None

    def _write_whole(self, name: str, data: bytes) -> None:
        file = self._files.open(f"{self.directory}/{name}", create=True)
        try:
            _write_all(file, data, 0)
        finally:
            file.close()


def _write_all(file: File, data: bytes, position: int) -> None:
    while data:
        written = file.pwritev([data], position)
        if written <= 0:
            raise OSError(errno.ENOSPC, "nothing more could be written", file.path)
        data, position = data[written:], position + written


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except TargetError:
        raise
    except OSError as error:
        raise TargetError(error.errno, error.strerror, error.filename) from error


@contextmanager
def _syncing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TargetSyncError(error.errno, error.strerror, error.filename) from error
