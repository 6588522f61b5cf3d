"""Files on a real disk: implements the file API of :mod:`blumfeld.spi.runtime` with the system calls of the same names.

An edge module: it may open files.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import stat
import sys
from collections.abc import Callable, Sequence
from typing import Any

FILE_MODE = 0o644
DIRECTORY_MODE = 0o755
READ_AHEAD_BYTES = 1 << 20
_MMAP_OPTIONS: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
"""Keeps a map from holding a descriptor of its own, which it doesn't need. Before Python 3.13 it always holds one."""
_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
"""Flag that makes a read fail if it would have to wait for the device (Linux)."""


class RealFileRegion:
    """A range of a :class:`RealFile` for ``sendfile``. It keeps the descriptor open until it is released."""

    __slots__ = ("_fd", "_file", "position", "size_bytes")

    def __init__(self, file: RealFile, fd: int, position: int, size_bytes: int) -> None:
        self._file: RealFile | None = file
        self._fd = fd
        self.position = position
        self.size_bytes = size_bytes

    def fileno(self) -> int:
        """Returns the descriptor. Raises ``OSError`` after the release."""
        if self._file is None:
            raise OSError(errno.EBADF, "the file region was released")
        return self._fd

    def pread(self, offset: int = 0, size: int | None = None) -> bytes:
        """Returns bytes of the region; fewer only if the file ends before the region does."""
        left = max(self.size_bytes - offset, 0)
        wanted = left if size is None else min(size, left)
        return os.pread(self.fileno(), wanted, self.position + offset)

    def release(self) -> None:
        """Give the descriptor back. A second call raises ``RuntimeError``."""
        file, self._file = self._file, None
        if file is None:
            raise RuntimeError("the file region was released before")
        self._fd = -1
        file.region_released()


class RealFile:
    """One open file. Its descriptor is closed when :meth:`close` was called and no region holds it any more.

    Only ``pread``, ``fdatasync`` and ``read_ahead`` may run in a worker thread. Their caller must hold a region
    meanwhile: otherwise :meth:`close` could free the descriptor, and the system could give its number to another file
    while the worker uses it. With a region held they work even after :meth:`close`.
    """

    __slots__ = ("_fd", "_held_fd", "_regions", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        """-1 after :meth:`close`, so that every method fails with EBADF."""
        self._held_fd = fd
        self._regions = 0

    def pread(self, size: int, position: int) -> bytes:
        """Return at most ``size`` bytes, and fewer only at the end of the file."""
        return os.pread(self._held_fd, size, position)

    def pwritev(self, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> int:
        """Write the buffers with one call. Returns the bytes written, perhaps fewer than given."""
        return os.pwritev(self._fd, buffers, position)

    def fdatasync(self) -> None:
        """Sync bytes and size to the device. Blocks."""
        fd = self._held_fd
        if fd < 0:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        os.fdatasync(fd)

    def truncate(self, size: int) -> None:
        """Set the file's size: cut it, or extend it with zeros."""
        os.ftruncate(self._fd, size)

    def reserve(self, size: int) -> None:
        """Reserve space on the device for the first ``size`` bytes. The file's size doesn't change."""
        _fallocate(self._fd, size, self.path)

    def size(self) -> int:
        """Returns the size in bytes."""
        return os.fstat(self._fd).st_size

    def mmap_read(self) -> memoryview:
        """Map the whole file read-only. It stays mapped as long as a view of it lives."""
        if self.size() == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ, **_MMAP_OPTIONS))

    def is_cached(self, position: int, size: int) -> bool:
        """Whether the first and the last of these bytes are in the page cache; ``True`` if the kernel can't say."""
        if size <= 0 or _NOWAIT is None:
            return True
        byte = bytearray(1)
        try:
            os.preadv(self._fd, (byte,), position, _NOWAIT)
            os.preadv(self._fd, (byte,), position + size - 1, _NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
        return True

    def tells_cached(self) -> bool:
        """Whether the file system of this file tells what is in the page cache. Never blocks."""
        if _NOWAIT is None:
            return False
        try:
            os.preadv(self._fd, (bytearray(1),), 0, _NOWAIT)
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return False
        return True

    def read_ahead(self, position: int, size: int) -> None:
        """Bring these bytes into the page cache. Blocks."""
        fd = self._held_fd
        os.posix_fadvise(fd, position, size, os.POSIX_FADV_WILLNEED)
        end = position + size
        while position < end and (data := os.pread(fd, min(READ_AHEAD_BYTES, end - position), position)):
            position += len(data)

    def region(self, position: int, size: int) -> RealFileRegion:
        """Returns a range for an answer. It keeps the descriptor open."""
        fd = self._fd
        if fd < 0:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        self._regions += 1
        return RealFileRegion(self, fd, position, size)

    def region_released(self) -> None:
        """Count a region as released. Only the region calls it."""
        self._regions -= 1
        if self._fd < 0:
            self._close_unless_held()

    def close(self) -> None:
        """Close the file; the descriptor is freed when no region holds it any more. May be called twice."""
        if self._fd >= 0:
            self._fd = -1
            self._close_unless_held()

    def _close_unless_held(self) -> None:
        if self._regions == 0 and self._held_fd >= 0:
            fd, self._held_fd = self._held_fd, -1
            os.close(fd)


_KEEP_SIZE = 1
"""``FALLOC_FL_KEEP_SIZE``. If the size grew, the file would end in zeros after a crash, and recovery would read
them."""


def _fallocate(fd: int, size: int, path: str) -> None:
    """Call fallocate(2) through ctypes: Python only has ``os.posix_fallocate``, which changes the file's size."""
    import ctypes  # imported here: few topics preallocate

    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if call is None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), path)
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    while call(fd, _KEEP_SIZE, 0, size) != 0:
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number), path)


class RealFiles:
    """The file system of this machine."""

    file_class = RealFile
    """The class of the files that :meth:`open` returns."""

    def open(
        self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True
    ) -> RealFile:
        """Open for reading and, unless ``write=False``, writing. Never truncates."""
        flags = os.O_RDWR if write else os.O_RDONLY
        if create:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_CREAT | os.O_EXCL
        return self.file_class(path, os.open(path, flags | os.O_CLOEXEC, FILE_MODE))

    def read_bytes(self, path: str) -> bytes:
        """Read a small file as a whole."""
        with open(path, "rb") as file:
            return file.read()

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace a small file durably. A crash leaves the old content or the new one, never a part.

        The order matters: the new file is synced before it takes the name, and the name afterwards.
        """
        temporary = path + ".tmp"
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            error.filename = path  # the error of a call on a descriptor has no path
            raise
        os.rename(temporary, path)
        self.sync_dir(os.path.dirname(path) or ".")

    def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        """Whether a directory exists."""
        return os.path.isdir(path)

    def list_dir(self, path: str) -> list[str]:
        """Returns the names in a directory, sorted."""
        return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        """Make a directory and its parents. It may exist already."""
        os.makedirs(path, DIRECTORY_MODE, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        """Rename atomically, replacing ``new``."""
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory with everything in it. It may be absent."""
        if os.path.lexists(path):
            shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        """Sync the names in this directory to the device."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def modified_ms(self, path: str) -> int:
        """Returns the time of the last change, in ms since the epoch."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def mode(self, path: str) -> int:
        """Returns the permission bits."""
        return stat.S_IMODE(os.stat(path).st_mode)

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Set the time of the last change, in ms since the epoch."""
        time_ns = time_ms * 1_000_000
        os.utime(path, ns=(time_ns, time_ns))

    def space(self, path: str) -> tuple[int, int]:
        """Returns (total, usable) bytes of the file system that holds ``path``."""
        stats = os.statvfs(path)
        return stats.f_blocks * stats.f_frsize, stats.f_bavail * stats.f_frsize

    def lock(self, path: str) -> Callable[[], None]:
        """Lock a file exclusively, with both kinds of lock that Linux has. Returns the function that releases it.

        ``flock`` keeps out another node in this process. The POSIX lock is the kind that Kafka takes on ``.lock``, so
        that Kafka and a node of ours can't run on the same directory.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise OSError(errno.EWOULDBLOCK, "locked by another process", path) from error
        held = [fd]

        def release() -> None:
            if held:
                os.close(held.pop())

        return release


def absolute_path(path: str) -> str:
    """Returns the absolute path, which stays valid when the working directory changes. Links are not resolved."""
    return os.path.abspath(path)
