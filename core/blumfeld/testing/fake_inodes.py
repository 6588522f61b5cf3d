"""What a simulated disk holds: files and directories that remember what a power cut would take from them.

A change that isn't synced can be undone: it is kept with what undoes it. A crash undoes the newest ones, as many as
chance wants, for each file and each directory on its own.
"""

from __future__ import annotations

import errno
import os
from typing import TypeAlias

import msgspec

from blumfeld.spi.runtime import Random


class _Write(msgspec.Struct, frozen=True):
    """Bytes were written: where, how many, what stood there, and the size before."""

    position: int
    length: int
    before: bytes
    size_before: int


class _Cut(msgspec.Struct, frozen=True):
    """The file was truncated or extended."""

    tail_before: bytes
    size_before: int


class FileNode:
    """A file: its bytes as every reader sees them. Zeros behind the last byte written take no memory."""

    __slots__ = ("_data", "_unsynced", "modified_ms", "size")

    def __init__(self) -> None:
        self.size = 0
        self.modified_ms = 0
        self._data = bytearray()
        self._unsynced: list[_Write | _Cut] = []

    def read(self, size: int, position: int) -> bytes:
        """At most ``size`` bytes; fewer at the end."""
        size = max(0, min(size, self.size - position))
        found = bytes(self._data[position : position + size])
        return found if len(found) == size else found.ljust(size, b"\0")

    def write(self, data: bytes, position: int) -> None:
        """In the page cache."""
        before = bytes(self._data[position : position + len(data)])
        self._unsynced.append(_Write(position, len(data), before, self.size))
        self._put(data, position)

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros; in the page cache."""
        self._unsynced.append(_Cut(bytes(self._data[size:]), self.size))
        del self._data[size:]
        self.size = size

    def sync(self) -> None:
        """Nothing of it can be lost any more."""
        self._unsynced.clear()

    @property
    def is_synced(self) -> bool:
        """Whether a crash would take nothing."""
        return not self._unsynced

    def crash(self, random: Random) -> None:
        """Lose the newest changes that are not synced: how many is chance; the oldest that is lost may be torn, or
        have left zeros.
        """
        kept = random.randrange(len(self._unsynced) + 1)
        torn: tuple[_Write, bytes] | None = None
        while len(self._unsynced) > kept:
            change = self._unsynced.pop()
            if isinstance(change, _Write) and len(self._unsynced) == kept:
                torn = (change, self.read(change.length, change.position))
            self._undo(change)
        self._unsynced.clear()
        if torn is not None and random.random() < 0.5:
            change, data = torn
            here = random.randrange(len(data) + 1)
            rest = b"" if random.random() < 0.7 else bytes(random.randrange(len(data) - here + 1))
            self._put(data[:here] + rest, change.position)

    def _put(self, data: bytes, position: int) -> None:
        if len(self._data) < position:
            self._data.extend(bytes(position - len(self._data)))
        self._data[position : position + len(data)] = data
        self.size = max(self.size, position + len(data))

    def _undo(self, change: _Write | _Cut) -> None:
        if isinstance(change, _Write):
            self._data[change.position : change.position + change.length] = change.before
        else:
            self._data += change.tail_before
        self.size = change.size_before
        del self._data[self.size :]


class _Named(msgspec.Struct, frozen=True):
    """Names in a directory changed together: what each stood for before; ``None`` is nothing."""

    before: tuple[tuple[str, FileNode | DirectoryNode | None], ...]


class DirectoryNode:
    """A directory: names, and which of them a power cut would take back."""

    __slots__ = ("_unsynced", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self._unsynced: list[_Named] = []

    def change(self, names: dict[str, Node | None]) -> None:
        """Bind names, or (``None``) take them away, all at once."""
        self._unsynced.append(_Named(tuple((name, self.entries.get(name)) for name in names)))
        for name, node in names.items():
            self._bind(name, node)

    def sync(self) -> None:
        """Its names last."""
        self._unsynced.clear()

    def crash(self, random: Random) -> None:
        """Take back the newest changes of names, and let everything below crash too."""
        kept = random.randrange(len(self._unsynced) + 1)
        while len(self._unsynced) > kept:
            for name, node in self._unsynced.pop().before:
                self._bind(name, node)
        self._unsynced.clear()
        for name in sorted(self.entries):
            self.entries[name].crash(random)

    def _bind(self, name: str, node: Node | None) -> None:
        if node is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = node


Node: TypeAlias = FileNode | DirectoryNode


def os_error(number: int, path: str) -> OSError:
    """What the operating system would raise: the subclass for that number."""
    return OSError(number, os.strerror(number), path)


class Tree:
    """Paths to nodes."""

    def __init__(self) -> None:
        self.root = DirectoryNode()

    def find(self, path: str) -> Node | None:
        """What stands there."""
        node: Node = self.root
        for name in _names(path):
            if not isinstance(node, DirectoryNode):
                return None
            below = node.entries.get(name)
            if below is None:
                return None
            node = below
        return node

    def file(self, path: str) -> FileNode:
        """The file. :raises OSError: ENOENT, EISDIR"""
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, DirectoryNode):
            raise os_error(errno.EISDIR, path)
        return node

    def directory(self, path: str) -> DirectoryNode:
        """The directory. :raises OSError: ENOENT, ENOTDIR"""
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, FileNode):
            raise os_error(errno.ENOTDIR, path)
        return node

    def parent(self, path: str) -> tuple[DirectoryNode, str]:
        """The directory that holds, or would hold, this path, and the name in it."""
        *above, name = _names(path)
        return self.directory("/".join(above)), name

    def make_directories(self, path: str) -> None:
        """Make what is missing."""
        node = self.root
        for name in _names(path):
            below = node.entries.get(name)
            if below is None:
                below = DirectoryNode()
                node.change({name: below})
            if isinstance(below, FileNode):
                raise os_error(errno.ENOTDIR, path)
            node = below


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]
