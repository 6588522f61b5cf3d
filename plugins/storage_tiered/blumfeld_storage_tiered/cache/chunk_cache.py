"""The cache of a node: pieces of remote files as files of their own, the least recently used removed first.

A piece is brought once however many readers want it, and it is brought to its end when they have gone: the next fetch
of the same consumer finds it. The folder is emptied at every start, so that no half-written piece is ever read.

A piece of a store on the disks of this machine isn't copied. The cache remembers that it was checked.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias, TypeVar

from crc32c import crc32c

from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.object_store import ObjectBytes
from blumfeld.spi.parts import Part
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import File, Files, Runtime
from blumfeld_storage_tiered.objects.segments import FilePiece

T = TypeVar("T")

FOLDER = "remote-chunk-cache"
"""The folder's name in the data directory."""

Brought: TypeAlias = ObjectBytes | FilePiece
"""The bytes of a piece, or the place where they lie on this machine."""
Load: TypeAlias = "Callable[[], Awaitable[Brought]]"


class ChunkKey(NamedTuple):
    """Names a piece of a file of a remote segment."""

    segment_id: bytes
    suffix: str
    """Names the file: ``log``, ``index`` and so on."""
    number: int
    """Pieces of a file are numbered from 0 on."""


class Chunk:
    """A piece that is in the cache. It stays readable when it is removed meanwhile: its file is opened at once."""

    __slots__ = ("_crc", "_data", "_file", "_file_start", "size_bytes")

    def __init__(
        self,
        size_bytes: int,
        file: File | None,
        data: ObjectBytes | None,
        crc: int | None = None,
        file_start: int = 0,
    ) -> None:
        self.size_bytes = size_bytes
        self._crc = crc
        self._file = file
        self._file_start = file_start
        """Position in the file where the piece begins."""
        self._data = data
        """The bytes, where the disk had no room for them."""

    async def read(self, runtime: Runtime, start: int, size: int) -> bytes:
        """Return bytes of the piece. A worker reads them if they aren't in the page cache."""
        if self._data is not None:
            return bytes(self._data[start : start + size])
        file = self._file
        assert file is not None, "a chunk has a file or its bytes"
        position = self._file_start + start
        if file.is_cached(position, size):
            return file.pread(size, position)
        return await _in_worker(runtime, file, file.pread, size, position)

    async def read_checked(self, runtime: Runtime) -> bytes:
        """Return the whole piece.

        :raises ValueError: its file has been changed since it was written
        """
        data = await self.read(runtime, 0, self.size_bytes)
        if self._crc is not None and crc32c(data) != self._crc:
            raise ValueError("its checksum isn't that of what was written")
        return data

    async def part(self, runtime: Runtime, start: int, size: int) -> Part:
        """Return a part of an answer, which must be released. Its bytes are in the page cache."""
        if self._data is not None:
            return memoryview(self._data)[start : start + size]
        file = self._file
        assert file is not None, "a chunk has a file or its bytes"
        position = self._file_start + start
        if not file.is_cached(position, size):
            await _in_worker(runtime, file, file.read_ahead, position, size)
        return file.region(position, size)

    def close(self) -> None:
        """Give the descriptor back. Parts that were given stay good until they are released."""
        if self._file is not None:
            self._file.close()


async def _in_worker(runtime: Runtime, file: File, work: Callable[..., T], *args: int) -> T:
    """Read a file in a worker. It stays open until the worker has ended, also if the reader has gone: the system could
    give its descriptor's number to another file meanwhile."""
    region = file.region(0, 0)
    working = asyncio.ensure_future(runtime.offload(work, *args))

    def ended(_: object) -> None:
        region.release()
        if not working.cancelled():
            working.exception()  # nobody may wait for it any more

    working.add_done_callback(ended)
    return await asyncio.shield(working)


class _Entry(NamedTuple):
    place: FilePiece
    crc: int | None
    """The checksum of the cache's own file; ``None`` for a piece in place."""


class ChunkCache:
    """Pieces of remote files in one folder.

    :param bytes_max: bound of all pieces together. A single larger piece is given to its readers and not kept
    """

    def __init__(self, runtime: Runtime, data_dir: str, bytes_max: int, events: EventLog) -> None:
        self._runtime = runtime
        self._folder = f"{data_dir}/{FOLDER}"
        self.bytes_max = bytes_max
        self._events = events
        self._repeated = RepeatedEvents(runtime)
        self._entries: OrderedDict[ChunkKey, _Entry] = OrderedDict()
        """The pieces, the least recently used first."""
        self._loads: dict[ChunkKey, Completion[Brought]] = {}
        """Pieces on their way, for all that wait for them."""
        self._written = 0
        """Number of files that were written: each has a name of its own."""
        self.size_bytes = 0
        """Bytes of the folder."""
        self._in_place_bytes = 0
        """Bytes of the pieces that stay where they are. They count for the bound, so that entries have one, too."""
        self.hits = 0
        self.misses = 0
        self.evictions = 0

    async def start(self) -> None:
        """Empty the folder.

        :raises OSError: it can't be made
        """
        await self._runtime.offload(_make_empty, self._runtime.files, self._folder)

    def has(self, key: ChunkKey) -> bool:
        """Whether the piece is here or on its way."""
        return key in self._entries or key in self._loads

    def is_here(self, key: ChunkKey) -> bool:
        """Whether the piece can be read without a request to the store."""
        return key in self._entries

    async def chunk(self, key: ChunkKey, load: Load) -> Chunk:
        """Return a piece, which the caller closes. If it isn't here, ``load`` brings it, once for all callers.

        :raises Exception: the error of ``load``. Nothing is kept of it: the next call tries again
        :raises OSError: the piece lies on this machine, and can't be opened any more
        """
        chunk = self._opened(key)
        if chunk is not None:
            self.hits += 1
            return chunk
        self.misses += 1
        brought = await self.bring(key, load)
        chunk = self._opened(key)
        if chunk is not None:
            return chunk
        # It was removed again, or there was no room for it.
        if isinstance(brought, FilePiece):
            return self._open(brought)
        return Chunk(len(brought), None, brought)

    def bring(self, key: ChunkKey, load: Load) -> Completion[Brought]:
        """Bring a piece that isn't here: now or with the call that brings it already."""
        coming = self._loads.get(key)
        if coming is None:
            coming = self._loads[key] = Completion()
            self._runtime.spawn(self._bring(key, load, coming), "bring a chunk")
        return coming

    async def _bring(self, key: ChunkKey, load: Load, coming: Completion[Brought]) -> None:
        try:
            brought = await load()
            if isinstance(brought, FilePiece):
                await self._remember(key, brought)
            else:
                await self._keep(key, brought)
        except Exception as error:
            del self._loads[key]
            coming.fail(error)  # nobody may wait for it any more
        else:
            del self._loads[key]
            coming.complete(brought)

    async def _remember(self, key: ChunkKey, piece: FilePiece) -> None:
        self._in_place_bytes += piece.size_bytes
        await self._make_room()
        self._entries[key] = _Entry(piece, None)

    async def _keep(self, key: ChunkKey, data: ObjectBytes) -> None:
        """Write a piece to a file of its own, and remove others until all fit."""
        if len(data) > self.bytes_max:
            return
        self._written += 1
        path = f"{self._folder}/{self._written:016x}"
        self.size_bytes += len(data)
        await self._make_room()
        try:
            crc = await self._runtime.offload(_write, self._runtime.files, path, data)
        except OSError as error:
            self.size_bytes -= len(data)
            self._repeated.say(
                self._events.warning, "remote chunk not cached", "write", path=path, error=str(error)
            )
            return
        self._entries[key] = _Entry(FilePiece(path, 0, len(data), len(data)), crc)

    async def _make_room(self) -> None:
        gone = []
        while self.size_bytes + self._in_place_bytes > self.bytes_max and self._entries:
            _, entry = self._entries.popitem(last=False)
            self.evictions += 1
            gone += self._dropped(entry)
        if gone:
            await self._runtime.offload(_remove, self._runtime.files, gone)

    def _opened(self, key: ChunkKey) -> Chunk | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        try:
            chunk = self._open(*entry)
        except OSError as error:
            # Somebody removed the file or changed it, or no descriptor is left: bring it again.
            if entry.crc is not None:  # the load says so itself where an object is gone
                self._repeated.say(
                    self._events.warning, "cached chunk lost", "open", path=entry.place.path, error=str(error)
                )
            self.forget(key)
            return None
        self._entries.move_to_end(key)
        return chunk

    def _open(self, piece: FilePiece, crc: int | None = None) -> Chunk:
        file = self._runtime.files.open(piece.path, write=False)
        try:
            if (size := file.size()) != piece.file_bytes:
                raise OSError(f"found {size} bytes; written were {piece.file_bytes}")
            if piece.modified_ms not in (None, self._runtime.files.modified_ms(piece.path)):
                raise OSError(f"{piece.path} has been changed since it was checked")
        except OSError:
            file.close()
            raise
        return Chunk(piece.size_bytes, file, None, crc, piece.start)

    def forget(self, key: ChunkKey) -> None:
        """Remove a piece, which may be absent: its bytes are bad."""
        entry = self._entries.pop(key, None)
        if entry is not None and (paths := self._dropped(entry)):
            self._runtime.spawn(self._remove_later(paths), "remove a chunk")

    def _dropped(self, entry: _Entry) -> list[str]:
        """Count an entry no more. Return the file that goes with it."""
        if entry.crc is not None:
            self.size_bytes -= entry.place.size_bytes
            return [entry.place.path]
        self._in_place_bytes -= entry.place.size_bytes
        return []

    def forget_segment(self, segment_id: bytes) -> None:
        """Remove all pieces of a segment that is deleted in the store."""
        for key in [key for key in self._entries if key.segment_id == segment_id]:
            self.forget(key)

    async def _remove_later(self, paths: list[str]) -> None:
        await self._runtime.offload(_remove, self._runtime.files, paths)


def _make_empty(files: Files, folder: str) -> None:
    files.remove_tree(folder)
    files.make_dirs(folder)


def _write(files: Files, path: str, data: ObjectBytes) -> int:
    """Write a file. Returns the checksum of what was to be written."""
    file = files.open(path, create=True)
    try:
        view, position = memoryview(data), 0
        while position < len(data):
            position += file.pwritev([view[position:]], position)
    except OSError:
        files.unlink(path)
        raise
    finally:
        file.close()
    return crc32c(data)


def _remove(files: Files, paths: list[str]) -> None:
    for path in paths:
        try:
            files.unlink(path)
        except OSError:
            continue  # the next start empties the folder
