"""The state of a simulated disk: what is on it, what fails, how much room is left, what the page cache holds."""

from __future__ import annotations

import errno
from collections.abc import Callable

import msgspec

from blumfeld.testing.fakes.inodes import Tree, os_error

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
"""What a file system that is mounted read-only refuses."""
_PAGE_BYTES = 4096


class Fault(msgspec.Struct, kw_only=True):
    """Something that goes wrong on a disk. Injected by :meth:`FakeDisk.inject`."""

    operation: str
    """The method of ``File`` or ``Files`` that fails: ``pwritev``, ``fdatasync``, ``rename``…"""
    nth: int = 1
    """Which of the matching operations from now on is the first to fail."""
    times: int = 1
    """How many fail; -1: all from then on."""
    error_number: int = errno.EIO
    path_part: str = ""
    """Only operations on paths that contain this."""
    short_bytes: int | None = None
    """Of ``pwritev``: it writes this many bytes and says so, as a full disk does, and raises nothing."""


class DiskState:
    """What is on a disk and what is wrong with it."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.operations: dict[str, int] = {}
        """How often each operation was called."""
        self.open_files = 0
        self.open_regions = 0
        self.locks: set[str] = set()
        self.cold: set[str] = set()
        """Parts of paths whose files are not in the page cache, until pages of them are read, read ahead or written."""
        self.cold_reads = 0
        """How many reads waited for the device."""
        self.total_bytes, self.usable_bytes = 1 << 40, 1 << 39
        self.room: int | None = None
        """If set: bytes by which files may still grow; then writes are short, and fail with ENOSPC."""
        self.open_files_max: int | None = None
        """If set: with so many open, ``open`` fails with EMFILE."""
        self.read_only: set[str] = set()
        """Parts of paths that were remounted read-only: every change fails with EROFS."""
        self.watch: Callable[[str, str], None] | None = None
        """Called with (operation, path) before each operation; it may :meth:`crash` or :meth:`kill` there and then."""
        self._faults: list[Fault] = []
        self._warm: set[tuple[str, int]] = set()

    def inject(self, fault: Fault) -> None:
        """Let an operation fail from now on."""
        self._faults.append(fault)

    def heal(self) -> None:
        """No fault any more, room again, and writable."""
        self._faults.clear()
        self.read_only.clear()
        self.room = self.open_files_max = None

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """A bit of a file changes on the device, as of itself."""
        node = self.tree.file(path)
        (byte,) = node.read(1, position)
        node.damage(bytes([byte ^ 1 << bit]), position)

    def damage(self, path: str, data: bytes, position: int = 0) -> None:
        """Bytes of a file are others on the device, as of themselves."""
        self.tree.file(path).damage(data, position)

    def take_room(self, size_bytes: int, growth: int, path: str) -> int:
        """How many of ``size_bytes`` fit, of which the last ``growth`` make a file larger.

        :raises OSError: ENOSPC: none
        """
        if self.room is None or growth <= 0:
            return size_bytes
        missing = max(growth - self.room, 0)
        if missing == size_bytes:
            raise os_error(errno.ENOSPC, path)
        self.room -= growth - missing
        return size_bytes - missing

    def is_cold(self, path: str, position: int, size: int) -> bool:
        """Whether a page of these bytes has to come from the device."""
        if not any(part in path for part in self.cold):
            return False
        return any((path, page) not in self._warm for page in _pages(position, size))

    def warm(self, path: str, position: int, size: int) -> None:
        """These bytes are in the page cache now."""
        if any(part in path for part in self.cold):
            self._warm.update((path, page) for page in _pages(position, size))

    def chill(self, *parts: str) -> None:
        """Files with such paths are not in the page cache; other files are."""
        self.cold = set(parts)
        self._warm.clear()

    def step(self, operation: str, path: str) -> int | None:
        """Count an operation, and fail it if a fault says so; how many bytes to write, if it is a short write."""
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
            if fault.short_bytes is not None:
                return fault.short_bytes
            raise os_error(fault.error_number, path)
        return None


def _pages(position: int, size: int) -> range:
    return range(position // _PAGE_BYTES, -(-(position + max(size, 1)) // _PAGE_BYTES))
