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
    """The store refused an operation: it is full, read-only or unreachable. Files that were published before are
    untouched, and the operation may be tried again. The error is an ``OSError`` too, with the system's ``errno`` if it
    gave one.
    """


class ArchiveStore(Protocol):
    """Files under their paths relative to the root, with ``/``. A store can be pickled for Spark's workers, and opens
    nothing before its first operation.

    Every operation raises :class:`StoreError` if the disk is full, a file can't be written or the store is
    unreachable. An operation that reads a file raises ``FileNotFoundError`` if there is none.
    """

    root: str
    """The folder or URL as the settings have it."""
    certain: bool
    """True where an operation that raised has had no effect. False for an object store: it may have done the work
    although its answer got lost.
    """

    def create(self, path: str) -> BinaryIO:
        """Returns a new file for writing, which replaces a file of that path. When its ``close()`` returns, the bytes
        and the name survive a crash.
        """
        ...

    def publish(self, staged: str, final: str) -> None:
        """Gives a staged file its final name and replaces a file of that name: a reader sees the whole old file or
        the whole new one. When the call returns, the new name survives a crash.
        """
        ...

    def publish_all(self, moves: Sequence[tuple[str, str]]) -> None:
        """Publishes each (staged, final) in turn, at the cost of one sync for each folder. After a failure some of
        them may be published.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Writes a small file, whole or not at all, and replaces a file of that path."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Writes a small file, whole or not at all, unless there is one; returns whether it did. If several writers
        try at the same time, exactly one gets True.
        """
        ...

    def put_if_same(self, path: str, expected: bytes, data: bytes) -> bool:
        """Replaces a small file that holds ``expected``; returns whether it did. If several writers expect the same
        content at the same time, exactly one gets True.
        """
        ...

    def read(self, path: str) -> bytes:
        """Returns the content of a file."""
        ...

    def exists(self, path: str) -> bool:
        """Returns whether there is a file of this path."""
        ...

    def size(self, path: str) -> int:
        """Returns the size of a file in bytes."""
        ...

    def modified_ms(self, path: str) -> int:
        """Returns when a file was written, ms since the epoch by the store's clock."""
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """Yields the paths of all files below a folder (``""`` is the root), at any depth, sorted. A folder that isn't
        there has no files.
        """
        ...

    def folders(self, prefix: str) -> tuple[str, ...]:
        """Returns the names of the folders directly below a folder, sorted."""
        ...

    def delete(self, path: str) -> None:
        """Removes a file; does nothing if there is none."""
        ...

    def open_input(self, path: str) -> Any:
        """Returns a seekable file for readers like ``pyarrow.parquet``. The caller closes it."""
        ...


@contextmanager
def speaking(root: str, doing: str) -> Iterator[None]:
    """Turns an ``OSError`` into a :class:`StoreError` that names the root and the operation, and says what to do.

    ``FileNotFoundError`` passes: an absent file is an answer, not a failure of the store.
    """
    try:
        yield
    except (StoreError, FileNotFoundError):
        raise
    except OSError as error:
        store_error = StoreError(f"{root}: {doing}: {_reason(root, error)}")
        store_error.errno = error.errno
        raise store_error from error


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
    """Returns the path, or the nearest folder above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
