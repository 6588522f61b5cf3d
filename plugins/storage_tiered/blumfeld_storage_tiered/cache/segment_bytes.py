"""The bytes of remote segments, read through the cache: pieces of logs, and small index files whole.

Requests to the store are bounded in number, and paced by a rate. A reader that goes through a segment has the next
pieces brought before it asks for them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, cast

from blumfeld.log.producers.aborted_transactions import AbortedTransactions
from blumfeld.log.segments.index import OffsetIndex, TimeIndex
from blumfeld.spi.parts import Part, release
from blumfeld.spi.runtime import Runtime
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_storage_tiered.cache.chunk_cache import Brought, Chunk, ChunkCache, ChunkKey
from blumfeld_storage_tiered.catalog.segment import RemoteSegment
from blumfeld_storage_tiered.objects.names import SegmentFile

T = TypeVar("T")

CHUNK_BYTES = 4 << 20
"""Bytes of a piece of a log: large enough that a gigabyte costs 256 requests."""
READ_AHEAD_MAX = 8
"""Pieces that are brought ahead of a reader that goes through a segment."""
CACHE_SHARES = 8
"""A reader has at most this part of the cache for pieces ahead of it."""
READERS_KNOWN_MAX = 1024
"""Readers whose next piece is remembered."""
INDEXES_BYTES_MAX = 32 << 20
"""Memory for the indexes of the segments that were read last."""


class RemoteFiles(Protocol):
    """The files of remote segments. Every method may raise ``StoreError``, for bytes that have changed in the store,
    too."""

    async def read_range(self, segment: RemoteSegment, start: int, size: int) -> Brought:
        """Return bytes of a segment's log, checked, or the file of this machine that they lie in."""
        ...

    async def read_file(self, segment: RemoteSegment, kind: SegmentFile) -> bytes | None:
        """Return another file of the segment, whole and checked; ``None`` if it has none of this kind."""
        ...


class SegmentBytes:
    """Reads remote segments for all logs of a node.

    :param pace: waits until so many bytes may be read (``remote.log.manager.fetch.max.bytes.per.second``)
    :param requests_max: requests to the store at once (``remote.log.reader.threads``)
    :param waiting_max: requests that may wait (``remote.log.reader.max.pending.tasks``)
    """

    def __init__(
        self,
        runtime: Runtime,
        files: RemoteFiles,
        cache: ChunkCache,
        pace: Callable[[int], Awaitable[None]],
        *,
        requests_max: int = 10,
        waiting_max: int = 100,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._runtime = runtime
        self._files = files
        self._cache = cache
        self._pace = pace
        self._slots = asyncio.Semaphore(requests_max)
        self._pending = 0
        self._requests_max = requests_max
        self._pending_max = requests_max + waiting_max
        self._chunk_bytes = chunk_bytes
        # A few readers at once must find their pieces before the cache drops them for others'.
        self._ahead_max = max(1, min(READ_AHEAD_MAX, cache.bytes_max // chunk_bytes // CACHE_SHARES))
        self._windows: OrderedDict[tuple[bytes, int], int] = OrderedDict()
        """(segment, piece) that a reader will want next → pieces to bring ahead of it then."""
        self._indexes: OrderedDict[ChunkKey, tuple[object, int]] = OrderedDict()
        """Indexes in memory with their sizes, the least recently used first."""
        self._index_bytes = 0

    @property
    def waiting(self) -> int:
        """Requests that wait for others to end."""
        return max(0, self._pending - self._requests_max)

    # Logs

    async def read(self, segment: RemoteSegment, position: int, size: int) -> bytes:
        """Return bytes of the segment's log; fewer only at its end."""
        end = min(position + size, segment.size_bytes)
        pieces = []
        while position < end:
            number, start = divmod(position, self._chunk_bytes)
            chunk = await self._chunk(segment, number)
            try:
                piece = await chunk.read(self._runtime, start, min(end - position, chunk.size_bytes - start))
            finally:
                chunk.close()
            if not piece:
                break
            pieces.append(piece)
            position += len(piece)
        return b"".join(pieces)

    async def read_some(self, segment: RemoteSegment, position: int, at_least: int, at_most: int) -> bytes:
        """Return bytes of the segment's log, no more than one request to the store brings where that is enough."""
        in_chunk = self._chunk_bytes - position % self._chunk_bytes
        return await self.read(segment, position, max(min(at_most, in_chunk), at_least))

    async def parts(self, segment: RemoteSegment, position: int, at_least: int, at_most: int) -> list[Part]:
        """Return parts with the bytes from ``position`` on, which the caller releases.

        There are ``at_least`` bytes. More come as far as they are in the cache, or in the piece with the last of those.
        """
        parts: list[Part] = []
        end = min(position + at_most, segment.size_bytes)
        needed = position + at_least
        try:
            while position < end:
                number, start = divmod(position, self._chunk_bytes)
                if position >= needed and not self._cache.is_here(_key(segment, SegmentFile.LOG, number)):
                    break
                self._read_ahead(segment, number)
                chunk = await self._chunk(segment, number)
                try:
                    size = min(end - position, chunk.size_bytes - start)
                    parts.append(await chunk.part(self._runtime, start, size))
                finally:
                    chunk.close()
                position += size
        except BaseException:
            release(parts)
            raise
        return parts

    def pieces_beyond(self, segment: RemoteSegment, position: int) -> int:
        """Return the pieces that a reader at ``position`` is ahead of the segment's end: it wants them of the next."""
        number = position // self._chunk_bytes
        return max(
            0, number + self._windows.get((segment.segment_id, number + 1), 0) - self._last_of(segment)
        )

    def prepare(self, segment: RemoteSegment, pieces: int) -> None:
        """Bring the first pieces of a segment, and its index: a reader comes to it soon, and goes on as fast."""
        self._expect(segment.segment_id, 0, pieces)
        for number in range(min(pieces, self._last_of(segment) + 1)):
            self._bring(segment, number)
        key = _key(segment, SegmentFile.OFFSET_INDEX)
        if not self._cache.has(key) and key not in self._indexes:
            self._cache.bring(key, lambda: self._load_file(segment, SegmentFile.OFFSET_INDEX))

    async def _chunk(self, segment: RemoteSegment, number: int) -> Chunk:
        return await self._cache.chunk(
            _key(segment, SegmentFile.LOG, number), lambda: self._load(segment, number)
        )

    def _bring(self, segment: RemoteSegment, number: int) -> None:
        key = _key(segment, SegmentFile.LOG, number)
        if not self._cache.has(key):
            self._cache.bring(key, lambda: self._load(segment, number))

    def _read_ahead(self, segment: RemoteSegment, number: int) -> None:
        """Bring the pieces behind this one: more of them the longer a reader goes on."""
        segment_id = segment.segment_id
        window = self._windows.pop((segment_id, number), 0)
        if (segment_id, number + 1) not in self._windows:
            window = min(max(window * 2, 1), self._ahead_max)
            self._expect(segment_id, number + 1, window)
            for ahead in range(number + 1, min(number + window, self._last_of(segment)) + 1):
                self._bring(segment, ahead)

    def _expect(self, segment_id: bytes, number: int, window: int) -> None:
        """Remember what a reader that comes to a piece will have brought ahead of it."""
        self._windows[segment_id, number] = window
        if len(self._windows) > READERS_KNOWN_MAX:
            self._windows.popitem(last=False)

    def _last_of(self, segment: RemoteSegment) -> int:
        return (segment.size_bytes - 1) // self._chunk_bytes

    async def _load(self, segment: RemoteSegment, number: int) -> Brought:
        start = number * self._chunk_bytes
        size = min(self._chunk_bytes, segment.size_bytes - start)
        return await self._request(size, lambda: self._files.read_range(segment, start, size))

    async def _load_file(self, segment: RemoteSegment, kind: SegmentFile) -> Brought:
        async def ask() -> Brought:
            return await self._files.read_file(segment, kind) or b""

        return await self._request(0, ask)

    async def _request(self, size: int, ask: Callable[[], Awaitable[Brought]]) -> Brought:
        if self._pending >= self._pending_max:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "too many reads of remote segments wait")
        self._pending += 1
        try:
            async with self._slots:
                await self._pace(size)
                return await ask()
        finally:
            self._pending -= 1

    # Indexes

    async def offset_index(self, segment: RemoteSegment) -> OffsetIndex:
        """Return the segment's offset index."""
        return await self._index(
            segment, SegmentFile.OFFSET_INDEX, lambda data: OffsetIndex(segment.start_offset, data)
        )

    async def time_index(self, segment: RemoteSegment) -> TimeIndex:
        """Return the segment's time index."""
        return await self._index(
            segment, SegmentFile.TIME_INDEX, lambda data: TimeIndex(segment.start_offset, data)
        )

    async def aborted(self, segment: RemoteSegment) -> AbortedTransactions:
        """Return the transactions whose abort marker lies in the segment."""
        if segment.txn_index_empty:
            return AbortedTransactions()
        return await self._index(segment, SegmentFile.TRANSACTION_INDEX, AbortedTransactions.decode)

    async def _index(self, segment: RemoteSegment, kind: SegmentFile, decode: Callable[[bytes], T]) -> T:
        key = _key(segment, kind)
        known = self._indexes.get(key)
        if known is not None:
            self._indexes.move_to_end(key)
            return cast("T", known[0])
        chunk = await self._cache.chunk(key, lambda: self._load_file(segment, kind))
        try:
            data = await chunk.read_checked(self._runtime)
            index = decode(data)
        except ValueError as error:
            self.forget(segment)  # the store's bytes were checked: those of the cache have changed since
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"a cached index has changed: {error}") from None
        finally:
            chunk.close()
        before = self._indexes.pop(key, None)
        if before is not None:
            self._index_bytes -= before[1]
        self._indexes[key] = index, len(data)
        self._index_bytes += len(data)
        while self._index_bytes > INDEXES_BYTES_MAX and len(self._indexes) > 1:
            self._index_bytes -= self._indexes.popitem(last=False)[1][1]
        return index

    def forget(self, segment: RemoteSegment) -> None:
        """Forget a segment that is deleted in the store, or whose bytes are bad."""
        for key in [key for key in self._indexes if key.segment_id == segment.segment_id]:
            self._index_bytes -= self._indexes.pop(key)[1]
        self._cache.forget_segment(segment.segment_id)


def _key(segment: RemoteSegment, kind: SegmentFile, number: int = 0) -> ChunkKey:
    return ChunkKey(segment.segment_id, kind.value, number)
