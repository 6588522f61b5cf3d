"""The narrow file API in memory, with crashes and faults: the disk of a simulated node.

A :class:`FakeDisk` outlives the processes that use it; each mounts it and gets :class:`FakeFiles`. After
:meth:`FakeDisk.crash` or :meth:`FakeDisk.kill` every handle of that process raises, so that no ``finally`` of a dead
process changes anything.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import cast

from blumfeld.spi.runtime import Random
from blumfeld_kit.fakes.disk import DiskState, Fault
from blumfeld_kit.fakes.inodes import DirectoryNode, FileNode, os_error
from blumfeld_kit.fakes.power import Adversary, Chance, Luck, PowerCut

__all__ = [
    "Adversary",
    "Chance",
    "FakeDisk",
    "FakeFile",
    "FakeFiles",
    "FakeRegion",
    "Fault",
    "Luck",
    "PowerCut",
]


class FakeDisk(DiskState):
    """Files in memory that outlive the process that uses them."""

    def __init__(self) -> None:
        super().__init__()
        self._mounted: FakeFiles | None = None

    def mount(self, now_ms: Callable[[], int]) -> FakeFiles:
        """Return the files for a new process. The handles of the process before are fenced."""
        self._fence()
        self._mounted = FakeFiles(self, now_ms)
        return self._mounted

    def kill(self) -> None:
        """Kill the process (``kill -9``): its handles are fenced and its locks are free. The page cache survives."""
        self._fence()

    def crash(self, cut: Random | PowerCut) -> None:
        """Cut the power: as :meth:`kill`, and unsynced changes are lost unless ``cut``, or chance, keeps them."""
        self._fence()
        self.tree.root.crash(Chance(cast(Random, cut)) if hasattr(cut, "randrange") else cut)

    def _fence(self) -> None:
        if self._mounted is not None:
            self._mounted.dead = True
            self._mounted = None
        self.locks.clear()
        self.open_files = self.open_regions = 0


_WORKERS = ("pread", "fdatasync", "read_ahead")


class FakeRegion:
    """A part of a :class:`FakeFile`, without a descriptor."""

    __slots__ = ("_file", "_files", "_node", "position", "size_bytes")

    def __init__(
        self, file: FakeFile, files: FakeFiles, node: FileNode, position: int, size_bytes: int
    ) -> None:
        file.regions += 1
        self._file = file
        self._files = files
        self._node: FileNode | None = node
        self.position = position
        self.size_bytes = size_bytes
        files.disk.open_regions += 1

    def fileno(self) -> int:
        """Raise ``OSError``: the region lies in memory."""
        raise os_error(errno.ENOTSUP, "a simulated file")

    def pread(self, offset: int = 0, size: int | None = None) -> bytes:
        """Return bytes within the region."""
        if self._node is None:
            raise OSError(errno.EBADF, "the file region was released")
        self._files.check("a file region")
        left = max(self.size_bytes - offset, 0)
        return self._node.read(left if size is None else min(size, left), self.position + offset)

    def release(self) -> None:
        """Release the region. A second call raises ``RuntimeError``."""
        if self._node is None:
            raise RuntimeError("the file region was released before")
        self._node = None
        self._file.regions -= 1
        if not self._files.dead:
            self._files.disk.open_regions -= 1


class FakeFile:
    """One open file of a process."""

    __slots__ = ("_closed", "_files", "_node", "_writable", "path", "regions")

    def __init__(self, files: FakeFiles, path: str, node: FileNode, *, writable: bool) -> None:
        self.path = path
        self._files = files
        self._node = node
        self._writable = writable
        self._closed = False
        self.regions = 0
        """Regions that are not released. While there is one, a worker may go on reading after the close."""
        files.disk.open_files += 1

    def pread(self, size: int, position: int) -> bytes:
        """Read at most ``size`` bytes; fewer at the end of the file."""
        self._step("pread")
        disk = self._files.disk
        if disk.cold and disk.is_cold(self.path, position, size):
            disk.cold_reads += 1
            disk.warm(self.path, position, size)
        return self._node.read(size, position)

    def pwritev(self, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> int:
        """Write the buffers at a position. Return the number of bytes written."""
        if len(buffers) > 1024:
            raise os_error(errno.EINVAL, self.path)
        short = self._step("pwritev")
        if not self._writable:
            raise os_error(errno.EBADF, self.path)
        data = b"".join(buffers)
        if short is not None:
            data = data[:short]
        if data:
            disk = self._files.disk
            data = data[: disk.take_room(len(data), position + len(data) - self._node.size, self.path)]
            disk.warm(self.path, position, len(data))
            self._node.write(data, position)
            self._node.modified_ms = self._files.now_ms()
        return len(data)

    def fdatasync(self) -> None:
        """Sync: a power cut takes nothing that is written by now."""
        self._step("fdatasync")
        self._node.sync()

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with zeros."""
        self._step("truncate")
        self._node.truncate(size)
        self._node.modified_ms = self._files.now_ms()

    def reserve(self, size: int) -> None:
        """Reserve space. The simulation counts space at the write; here it only simulates failures."""
        self._step("reserve")

    def size(self) -> int:
        """Return the size in bytes."""
        self._step("size")
        return self._node.size

    def mmap_read(self) -> memoryview:
        """Return the whole file as it is now."""
        self._step("mmap_read")
        return memoryview(self._node.read(self._node.size, 0))

    def is_cached(self, position: int, size: int) -> bool:
        """Return whether the whole range is in the page cache, going by the disk's :attr:`FakeDisk.cold` paths."""
        self._step("is_cached")
        return not self._files.disk.is_cold(self.path, position, size)

    def tells_cached(self) -> bool:
        """Return whether :meth:`is_cached` knows: here it does."""
        return True

    def read_ahead(self, position: int, size: int) -> None:
        """Put the range into the page cache."""
        self._step("read_ahead")
        self._files.disk.warm(self.path, position, size)

    def region(self, position: int, size: int) -> FakeRegion:
        """Return a region of the file for an answer."""
        self._step("region")
        return FakeRegion(self, self._files, self._node, position, size)

    def close(self) -> None:
        """Close. A second call, or one after a crash, does nothing."""
        if not self._closed:
            self._closed = True
            if not self._files.dead:
                self._files.disk.open_files -= 1

    def _step(self, operation: str) -> int | None:
        if self._closed and not (self.regions and operation in _WORKERS):
            raise os_error(errno.EBADF, self.path)
        return self._files.step(operation, self.path)


class FakeFiles:
    """``Files`` of one process on a :class:`FakeDisk`. Made by :meth:`FakeDisk.mount`."""

    def __init__(self, disk: FakeDisk, now_ms: Callable[[], int]) -> None:
        self.disk = disk
        self.now_ms = now_ms
        self.dead = False

    def check(self, path: str) -> None:
        """Raise if the process is dead."""
        if self.dead:
            raise OSError(errno.EIO, "the process that had this open is dead", path)

    def step(self, operation: str, path: str) -> int | None:
        """Count an operation as :meth:`FakeDisk.step` does. Raise if the process is dead or dies in it."""
        self.check(path)
        short = self.disk.step(operation, path)
        self.check(path)
        return short

    def open(
        self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True
    ) -> FakeFile:
        """Open for reading and, unless ``write=False``, writing. Never truncates."""
        self.step("open", path)
        node = self.disk.tree.find(path)
        if isinstance(node, DirectoryNode):
            raise os_error(errno.EISDIR, path)
        if node is not None and exclusive:
            raise os_error(errno.EEXIST, path)
        if node is None and not (create or exclusive):
            raise os_error(errno.ENOENT, path)
        disk = self.disk
        if disk.open_files_max is not None and disk.open_files >= disk.open_files_max:
            raise os_error(errno.EMFILE, path)
        if write and any(part in path for part in disk.read_only):
            raise os_error(errno.EROFS, path)
        return FakeFile(self, path, node or self._create(path), writable=write)

    def _create(self, path: str) -> FileNode:
        directory, name = self.disk.tree.parent(path)
        node = FileNode()
        node.modified_ms = self.now_ms()
        directory.change({name: node})
        return node

    def read_bytes(self, path: str) -> bytes:
        """Return a small file."""
        self.step("read_bytes", path)
        node = self.disk.tree.file(path)
        return node.read(node.size, 0)

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace a small file by one that is durable before it takes the name.

        These are four operations, and a crash may come before each: ``write_atomically``, then the same with
        ``:fdatasync``, ``:rename`` and ``:sync_dir`` appended.
        """
        self.step("write_atomically", path)
        directory, name = self.disk.tree.parent(path)
        if self.disk.take_room(len(data), len(data), path) < len(data):
            raise os_error(errno.ENOSPC, path)
        node = FileNode()
        node.write(data, 0)
        node.modified_ms = self.now_ms()
        directory.change({f"{name}.tmp": node})
        self.step("write_atomically:fdatasync", path)
        node.sync()
        self.step("write_atomically:rename", path)
        directory.change({f"{name}.tmp": None, name: node})
        self.step("write_atomically:sync_dir", path)
        directory.sync()

    def exists(self, path: str) -> bool:
        """Return whether the file or directory exists."""
        self.step("exists", path)
        return self.disk.tree.find(path) is not None

    def is_dir(self, path: str) -> bool:
        """Return whether the directory exists."""
        self.step("is_dir", path)
        return isinstance(self.disk.tree.find(path), DirectoryNode)

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        self.step("list_dir", path)
        return sorted(self.disk.tree.directory(path).entries)

    def make_dirs(self, path: str) -> None:
        """Make a directory and its parents. It may exist."""
        self.step("make_dirs", path)
        self.disk.tree.make_directories(path)

    def rename(self, old: str, new: str) -> None:
        """Rename. It is atomic within a directory; between two, a crash may leave both names or none."""
        self.step("rename", old)
        node = self.disk.tree.find(old)
        if node is None:
            raise os_error(errno.ENOENT, old)
        (source, source_name), (target, target_name) = self.disk.tree.parent(old), self.disk.tree.parent(new)
        there = target.entries.get(target_name)
        if isinstance(there, DirectoryNode) and there.entries:
            raise os_error(errno.ENOTEMPTY, new)
        if source is target:
            source.change({source_name: None, target_name: node})
        else:
            source.change({source_name: None})
            target.change({target_name: node})

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self.step("unlink", path)
        self.disk.give_room(self.disk.tree.file(path).size)
        directory, name = self.disk.tree.parent(path)
        directory.change({name: None})

    def remove_tree(self, path: str) -> None:
        """Remove a directory with everything in it, one file after the other. It may be absent."""
        self.step("remove_tree", path)
        node = self.disk.tree.find(path)
        if node is None:
            return
        if isinstance(node, DirectoryNode):
            for name in sorted(node.entries):
                self.remove_tree(f"{path}/{name}")
            self.step("remove_tree", path)
        directory, name = self.disk.tree.parent(path)
        directory.change({name: None})

    def sync_dir(self, path: str) -> None:
        """Make the names in this directory durable."""
        self.step("sync_dir", path)
        self.disk.tree.directory(path).sync()

    def modified_ms(self, path: str) -> int:
        """Return the time of the last change."""
        self.step("modified_ms", path)
        return self.disk.tree.file(path).modified_ms

    def mode(self, path: str) -> int:
        """Return the permission bits of every file here: its owner alone may read it."""
        self.step("mode", path)
        self.disk.tree.file(path)
        return 0o600

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Set the time of the last change."""
        self.step("set_modified_ms", path)
        self.disk.tree.file(path).modified_ms = time_ms

    def space(self, path: str) -> tuple[int, int]:
        """Return (total, free) bytes of the disk."""
        self.step("space", path)
        room = self.disk.room
        return self.disk.total_bytes, self.disk.usable_bytes if room is None else room

    def lock(self, path: str) -> Callable[[], None]:
        """Hold a lock file exclusively. The process's death frees it."""
        self.step("lock", path)
        if self.disk.tree.find(path) is None:
            self._create(path)
        if path in self.disk.locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked by another process", path)
        self.disk.locks.add(path)

        def release() -> None:
            if not self.dead:
                self.disk.locks.discard(path)

        return release
