"""The few operations that an archive needs of the place where it lies: a folder, or an object store."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from blumfeld_sink_spark.errors import ArchiveError


class StoreError(ArchiveError, OSError):
    """The store refused: full, read-only, away. What was published before is untouched; the same thing may be
    done again. It is an ``OSError`` too, with its ``errno`` where there was one.
    """


class ArchiveStore(Protocol):
    """Files by their path relative to the root, with ``/``. Instances pickle, and open nothing until they are asked.

    All operations raise :class:`StoreError` where the disk is full, a file can't be written or the store is away,
    and ``FileNotFoundError`` where a file that is to be read isn't there.
    """

    root: str
    """As it was given."""
    certain: bool
    """Whether an operation that raised has not happened. An object store that doesn't answer may have done it."""

    def create(self, path: str) -> BinaryIO:
        """A new file for writing, in place of one that is there. When its ``close()`` returns, the bytes and the
        name survive a crash.
        """
        ...

    def publish(self, staged: str, final: str) -> None:
        """Gives a file its final name, in place of one that is there: a reader sees the old or the new, whole.
        When it returns that survives a crash.
        """
        ...

    def publish_all(self, moves: Sequence[tuple[str, str]]) -> None:
        """``publish`` of each (staged, final) in turn, at the cost of one sync for each folder. After a failure
        some may have happened.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """A small file, whole or not at all, in place of one that is there."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """A small file, whole or not at all, if none is there; says whether it was put. Of several that try at the
        same time exactly one is told yes.
        """
        ...

    def put_if_same(self, path: str, expected: bytes, data: bytes) -> bool:
        """A small file in place of one that holds ``expected``; says whether it was put. Of several that expect the
        same at the same time exactly one is told yes.
        """
        ...

    def read(self, path: str) -> bytes:
        """All of a file."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        ...

    def size(self, path: str) -> int:
        """Of a file, in bytes."""
        ...

    def modified_ms(self, path: str) -> int:
        """When a file was written, ms since the epoch, by the store's clock."""
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """All files below a folder (``""`` is the root), at any depth, sorted. None if there is no such folder."""
        ...

    def folders(self, prefix: str) -> tuple[str, ...]:
        """Names of the folders right below a folder, sorted."""
        ...

    def delete(self, path: str) -> None:
        """Away with a file, if it is there."""
        ...

    def open_input(self, path: str) -> Any:
        """A file for ``pyarrow.parquet`` and its like: seekable; close it."""
        ...


@contextmanager
def speaking(root: str, doing: str) -> Iterator[None]:
    """Turns an ``OSError`` into a :class:`StoreError` that says where, what and what to do.

    A file that isn't there stays ``FileNotFoundError``: that is an answer, not a failure.
    """
    try:
        yield
    except (StoreError, FileNotFoundError):
        raise
    except OSError as error:
        found = StoreError(f"{root}: {doing}: {_reason(root, error)}")
        found.errno = error.errno
        raise found from error


def _reason(root: str, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"no space left ({_free(root)}). Nothing that was committed is touched; make room and run again"
        )
    if error.errno == errno.EROFS:
        return "the file system is read-only. Mount it for writing and run again"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"not allowed ({error.strerror}). Give this user the folder and run again"
    return f"{error.strerror or error}"


def _free(root: str) -> str:
    try:
        return f"{shutil.disk_usage(_nearest(Path(root))).free >> 20} MiB free on its disk"
    except OSError:
        return "free space unknown"


def _nearest(path: Path) -> Path:
    """The path, or the nearest above it that is there."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
