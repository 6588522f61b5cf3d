"""The state of a simulated disk: its contents, its faults, its free space, and its page cache."""

from __future__ import annotations

import errno
from collections.abc import Callable

import msgspec

from blumfeld_kit.fakes.inodes import Tree, os_error

_CHANGES = frozenset(
    {
        "pwritev",
        "fdatasync",
        "truncate",
        "reserve",
        "create",
        "make_dirs",
        "rename",
        "unlink",
        "remove_tree",
        "sync_dir",
    }
    | {"write_atomically", "set_modified_ms", "lock"}
)
"""Operations that a read-only file system refuses."""
_PAGE_BYTES = 4096


class Fault(msgspec.Struct, kw_only=True):
    """A fault of the disk. :meth:`FakeDisk.inject` adds it."""

    operation: str
    """The method of ``File`` or ``Files`` that fails: ``pwritev``, ``fdatasync``, ``rename``…"""
    nth: int = 1
    """The first matching operation that fails, counted from now on."""
    times: int = 1
    """Number of operations that fail; -1 means all from then on."""
    error_number: int = errno.EIO
    path_part: str = ""
    """Text that a path must contain: operations on other paths do not fail."""
    short_bytes: int | None = None
    """``pwritev`` writes only this many bytes and returns that number, as on a full disk, instead of an
    error.
    """


class DiskState:
    """The contents and the faults of a disk."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.operations: dict[str, int] = {}
        """Number of calls of each operation."""
        self.open_files = 0
        self.open_regions = 0
        self.locks: set[str] = set()
        self.cold: set[str] = set()
        """Parts of paths whose files are not in the page cache. A page comes in when it is read, read ahead or
        written.
        """
        self.cold_reads = 0
        """Number of reads that waited for the device."""
        self.total_bytes, self.usable_bytes = 1 << 40, 1 << 39
        self.room: int | None = None
        """If set, the bytes by which files may still grow. Beyond that writes are short or fail with ENOSPC."""
        self.open_files_max: int | None = None
        """If set, ``open`` fails with EMFILE once so many files are open."""
        self.read_only: set[str] = set()
        """Parts of paths that are mounted read-only: every change there fails with EROFS."""
        self.watch: Callable[[str, str], None] | None = None
        """Called with (operation, path) before each operation. It may call :meth:`crash` or :meth:`kill`."""
        self.struck = 0
        """Number of operations that failed or were short because of a fault or a lack of room."""
        self.errors = 0
        """Number of operations that a fault made fail."""
        self._faults: list[Fault] = []
        self._warm: set[tuple[str, int]] = set()

    def inject(self, fault: Fault) -> None:
        """Add a fault."""
        self._faults.append(fault)

    def withdraw(self, fault: Fault) -> None:
        """Remove a fault. Nothing happens if it isn't there any more."""
        self._faults = [other for other in self._faults if other is not fault]

    def heal(self) -> None:
        """Remove every fault, and make the disk roomy and writable again."""
        self._faults.clear()
        self.read_only.clear()
        self.room = self.open_files_max = None

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Flip a bit of a file on the device, without a write."""
        node = self.tree.file(path)
        (byte,) = node.read(1, position)
        node.damage(bytes([byte ^ 1 << bit]), position)

    def damage(self, path: str, data: bytes, position: int = 0) -> None:
        """Change bytes of a file on the device, without a write."""
        self.tree.file(path).damage(data, position)

    def take_room(self, size_bytes: int, growth: int, path: str) -> int:
        """Return how many of ``size_bytes`` fit. The last ``growth`` of them make a file larger.

        :raises OSError: ENOSPC: none fits
        """
        if self.room is None or growth <= 0:
            return size_bytes
        missing = max(growth - self.room, 0)
        self.struck += missing > 0
        if missing == size_bytes:
            raise os_error(errno.ENOSPC, path)
        self.room -= growth - missing
        return size_bytes - missing

    def give_room(self, size_bytes: int) -> None:
        """Take note of a file that is removed."""
        if self.room is not None:
            self.room += size_bytes

    def is_cold(self, path: str, position: int, size: int) -> bool:
        """Return whether a page of these bytes must come from the device."""
        if not any(part in path for part in self.cold):
            return False
        return any((path, page) not in self._warm for page in _pages(position, size))

    def warm(self, path: str, position: int, size: int) -> None:
        """Put these bytes into the page cache."""
        if any(part in path for part in self.cold):
            self._warm.update((path, page) for page in _pages(position, size))

    def chill(self, *parts: str) -> None:
        """Drop files with such paths from the page cache, and load all others."""
        self.cold = set(parts)
        self._warm.clear()

    def step(self, operation: str, path: str) -> int | None:
        """Count an operation, and fail it if a fault says so. Return the number of bytes to write if the write is
        short.
        """
        if self.watch is not None:
            self.watch(operation, path)
        self.operations[operation] = self.operations.get(operation, 0) + 1
        if self.read_only and operation.partition(":")[0] in _CHANGES:
            for part in sorted(self.read_only):
                if part in path:
                    raise os_error(errno.EROFS, path)
        for fault in self._faults:
            if fault.operation != operation or fault.path_part not in path or fault.times == 0:
                continue
            if fault.nth > 1:
                fault.nth -= 1
                continue
            fault.times -= 1
            self.struck += 1
            if fault.short_bytes is not None:
                return fault.short_bytes
            self.errors += 1
            raise os_error(fault.error_number, path)
        return None


def _pages(position: int, size: int) -> range:
    return range(position // _PAGE_BYTES, -(-(position + max(size, 1)) // _PAGE_BYTES))
