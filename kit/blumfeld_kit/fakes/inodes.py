"""The files and directories of a simulated disk. They remember every change that a power cut could take back.

A crash undoes all unsynced changes, then repeats those that the cut keeps. It decides for each file's bytes, for its
size and for each directory's names separately.
"""

from __future__ import annotations

import errno
import os
from typing import TypeAlias

import msgspec

from blumfeld_kit.fakes.power import SECTOR_BYTES, PowerCut


class _Write(msgspec.Struct, frozen=True):
    """A write: position, length, the bytes before it, and the size before it."""

    position: int
    length: int
    before: bytes
    size_before: int


class _Cut(msgspec.Struct, frozen=True):
    """The file was truncated or extended."""

    tail_before: bytes
    size_before: int


class _Change(msgspec.Struct, frozen=True):
    """A change in the form in which it can be repeated: bytes at a position, or only a size."""

    position: int
    data: bytes
    size_after: int
    cuts: bool


class FileNode:
    """A file, with its bytes as every reader sees them. Zeros behind the last written byte take no memory."""

    __slots__ = ("_data", "_unsynced", "modified_ms", "size")

    def __init__(self) -> None:
        self.size = 0
        self.modified_ms = 0
        self._data = bytearray()
        self._unsynced: list[_Write | _Cut] = []

    def read(self, size: int, position: int) -> bytes:
        """Return at most ``size`` bytes, and fewer only at the end."""
        size = max(0, min(size, self.size - position))
        chunk = bytes(self._data[position : position + size])
        return chunk if len(chunk) == size else chunk.ljust(size, b"\0")

    def write(self, data: bytes, position: int) -> None:
        """Write to the page cache."""
        before = bytes(self._data[position : position + len(data)])
        self._unsynced.append(_Write(position, len(data), before, self.size))
        self._put(data, position)

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with zeros, in the page cache."""
        self._unsynced.append(_Cut(bytes(self._data[size:]), self.size))
        self._resize(size)

    def damage(self, data: bytes, position: int) -> None:
        """Change bytes on the device. No sync and no crash undoes that."""
        self._put(data, position)

    def sync(self) -> None:
        """Make all changes durable."""
        self._unsynced.clear()

    @property
    def is_synced(self) -> bool:
        """Return whether a crash would take nothing."""
        return not self._unsynced

    def crash(self, cut: PowerCut) -> None:
        """Undo the unsynced changes that ``cut`` doesn't keep."""
        if not self._unsynced:
            return
        changes = self._undo_all()
        fate = cut.file(len(changes))
        size = changes[fate.size_after - 1].size_after if fate.size_after else self.size
        for number, change in enumerate(changes):
            if number in fate.kept:
                self._redo(change)
            elif number == fate.torn:
                part = cut.random.randrange(len(change.data) + 1)
                self._put(change.data[:part], change.position)
                size = max(size, change.position + part)
            elif fate.scattered and number < fate.size_after:
                self._scatter(change, cut)
        self._resize(size)

    def _undo_all(self) -> list[_Change]:
        changes: list[_Change] = []
        while self._unsynced:
            change = self._unsynced.pop()
            if isinstance(change, _Write):
                data = self.read(change.length, change.position)
                changes.append(_Change(change.position, data, self.size, False))
                self._data[change.position : change.position + change.length] = change.before
            else:
                changes.append(_Change(0, b"", self.size, True))
                self._data += change.tail_before
            self.size = change.size_before
            del self._data[self.size :]
        changes.reverse()
        return changes

    def _redo(self, change: _Change) -> None:
        if change.cuts:
            self._resize(change.size_after)
        else:
            self._put(change.data, change.position)

    def _scatter(self, change: _Change, cut: PowerCut) -> None:
        start, end = change.position, change.position + len(change.data)
        while start < end:
            stop = min(end, start - start % SECTOR_BYTES + SECTOR_BYTES)
            if cut.random.random() < 0.6:
                self._put(change.data[start - change.position : stop - change.position], start)
            start = stop

    def _put(self, data: bytes, position: int) -> None:
        if not data:
            return
        if len(self._data) < position:
            self._data.extend(bytes(position - len(self._data)))
        self._data[position : position + len(data)] = data
        self.size = max(self.size, position + len(data))

    def _resize(self, size: int) -> None:
        del self._data[size:]
        self.size = size


class _Named(msgspec.Struct, frozen=True):
    """Names of a directory that changed together: for each the node before and after, or ``None``."""

    before: tuple[tuple[str, FileNode | DirectoryNode | None], ...]
    after: tuple[tuple[str, FileNode | DirectoryNode | None], ...]


class DirectoryNode:
    """A directory: names, and the changes of names that a power cut would take back."""

    __slots__ = ("_unsynced", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self._unsynced: list[_Named] = []

    def change(self, names: dict[str, Node | None]) -> None:
        """Bind names, or remove them (``None``), all at once."""
        before = tuple((name, self.entries.get(name)) for name in names)
        self._unsynced.append(_Named(before, tuple(names.items())))
        for name, node in names.items():
            self._bind(name, node)

    def sync(self) -> None:
        """Make the names durable."""
        self._unsynced.clear()

    def crash(self, cut: PowerCut) -> None:
        """Undo the changes of names that ``cut`` doesn't keep, then crash every node below.

        A node that keeps its name crashes on its own: a new file may be there without its bytes.
        """
        if self._unsynced:
            changes, self._unsynced = self._unsynced, []
            for change in reversed(changes):
                for name, node in change.before:
                    self._bind(name, node)
            for number in cut.names(len(changes)):
                for name, node in changes[number].after:
                    self._bind(name, node)
        for name in sorted(self.entries):
            self.entries[name].crash(cut)

    def _bind(self, name: str, node: Node | None) -> None:
        if node is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = node


Node: TypeAlias = FileNode | DirectoryNode


def os_error(number: int, path: str) -> OSError:
    """Return the error that the operating system would raise: the subclass for that number."""
    return OSError(number, os.strerror(number), path)


class Tree:
    """A tree of directories and files, by path."""

    def __init__(self) -> None:
        self.root = DirectoryNode()

    def find(self, path: str) -> Node | None:
        """Return the node at a path, or ``None``."""
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
        """Return the file. :raises OSError: ENOENT, EISDIR"""
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, DirectoryNode):
            raise os_error(errno.EISDIR, path)
        return node

    def directory(self, path: str) -> DirectoryNode:
        """Return the directory. :raises OSError: ENOENT, ENOTDIR"""
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, FileNode):
            raise os_error(errno.ENOTDIR, path)
        return node

    def parent(self, path: str) -> tuple[DirectoryNode, str]:
        """Return the directory that holds, or would hold, this path, and the name in it."""
        *above, name = _names(path)
        return self.directory("/".join(above)), name

    def make_directories(self, path: str) -> None:
        """Make every missing directory of the path."""
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
