"""Bytes that are not in the page cache are brought there by a worker, so that no reader waits for a disk on the loop.

A look at both ends of what is to be read costs two system calls, and is saved where a worker read it a moment ago: a
reader that goes on where it was finds the next bytes there, as they are read ahead of it.
"""

from __future__ import annotations

import errno
from collections import deque

from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Runtime
from blumfeld_storage_local.segments.segment import Segment
from blumfeld_storage_local.segments.segment_check import check_of, take_check

AT_ONCE_MAX = 2
"""Workers that read for logs of a directory: half of the runtime's, so that syncs find one."""
AHEAD_BYTES = 4 << 20
"""Read ahead of a reader; the next piece is begun when half of it is left."""
WARM_BYTES_MAX = 16 << 20
"""Of a segment, counted as cached without a look: the newest that were read ahead."""
WARM_MS = 10_000.0
"""For so long; then the kernel may have had a better use for the memory."""
WINDOWS_MAX = 1024
"""Segments of which such bytes are known."""
_NOT_YET = 1 << 62


class ColdBytesError(Exception):
    """To read on would wait for a disk. :meth:`ColdReads.bring` makes it good."""

    def __init__(self, segment: Segment, position: int, size: int) -> None:
        super().__init__(segment, position, size)
        self.segment = segment
        self.position = position
        self.size = size
        """0: it is the indexes that are not here."""


class UncheckedBytesError(ColdBytesError):
    """Nobody has looked yet whether these bytes are batches. :meth:`ColdReads.bring` has a worker look."""


class _Window:
    """What is known to be cached of one segment."""

    __slots__ = ("end", "more_from", "start", "until_ms")

    def __init__(self, start: int, end: int, until_ms: float) -> None:
        self.start = start
        self.end = end
        self.until_ms = until_ms
        self.more_from = start
        """Who reads beyond it starts the next piece."""


class ColdReads:
    """Finds what is cold and brings it, for all logs of a directory."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._windows: dict[Segment, _Window] = {}
        self._running = 0
        self._queue: deque[Completion[None]] = deque()

    def look(self, segment: Segment, position: int, size: int) -> None:
        """Return if these bytes can be read at once.

        :raises ColdBytesError: they can't
        :raises OSError: the file can't be opened
        """
        end = position + size
        window = self._windows.get(segment)
        if window is not None and window.start <= position and end <= window.end:
            if self._runtime.monotonic_ms() < window.until_ms:
                if end > window.more_from:
                    self._read_ahead(segment, window)
                return
            del self._windows[segment]
        if not segment.file().is_cached(position, size):
            raise ColdBytesError(segment, position, size)

    def look_for_indexes(self, segment: Segment) -> None:
        """Return if a look-up by offset opens no file. :raises ColdBytesError: it would"""
        if not segment.has_indexes:
            raise ColdBytesError(segment, 0, 0)

    async def bring(self, cold: ColdBytesError) -> None:
        """Have it read. Whether it is still cached, or there at all, is for who asked to look anew.

        :raises OSError: the disk can't read it, or it is damaged
        """
        segment = cold.segment
        await self._enter()
        try:
            if segment.is_gone:
                return  # compaction, or a cut, came first
            if isinstance(cold, UncheckedBytesError):
                await self._check(segment, cold.position, cold.size)
            elif cold.size == 0:
                await self._read_indexes(segment)
            elif await self._read(segment, cold.position, cold.size):
                end = cold.position + cold.size
                window = _Window(cold.position, end, self._runtime.monotonic_ms() + WARM_MS)
                self._remember(segment, window)
                self._read_ahead(segment, window)
        finally:
            self._leave()

    async def _check(self, segment: Segment, position: int, size: int) -> None:
        cuts, check = segment.cuts, check_of(segment, position, size)
        region = segment.file().region(0, 0)
        try:
            checked = await self._runtime.offload(check)
        except OSError:
            if segment.is_gone:
                return
            raise
        finally:
            region.release()
        if not segment.is_gone and cuts == segment.cuts:
            take_check(segment, position, checked)

    async def _read_indexes(self, segment: Segment) -> None:
        region = segment.file().region(0, 0)
        try:
            read = await self._runtime.offload(segment.read_indexes)
        except OSError:
            if segment.is_gone:
                return
            raise
        finally:
            region.release()
        if not segment.is_gone and not segment.has_indexes:
            segment.take_indexes(read)

    async def _read(self, segment: Segment, position: int, size: int) -> bool:
        """Whether it was read; False: the file was closed meanwhile."""
        file = segment.file()
        region = file.region(0, 0)
        try:
            await self._runtime.offload(file.read_ahead, position, size)
        except OSError as error:
            if error.errno == errno.EBADF:
                return False
            raise
        finally:
            region.release()
        return True

    def _read_ahead(self, segment: Segment, window: _Window) -> None:
        """Begin to read the piece behind the window; nobody waits for it."""
        size = min(AHEAD_BYTES, segment.size_bytes - window.end)
        window.more_from = _NOT_YET
        if size > 0 and not segment.is_gone:
            self._runtime.spawn(self._go_on(segment, window, size), f"read ahead {segment.path()}")

    async def _go_on(self, segment: Segment, window: _Window, size: int) -> None:
        await self._enter()
        try:
            if segment.is_gone or not await self._read(segment, window.end, size):
                return
        except OSError:
            return  # whoever needs these bytes will hear of it
        finally:
            self._leave()
        window.end += size
        window.start = max(window.start, window.end - WARM_BYTES_MAX)
        window.more_from = window.end - AHEAD_BYTES // 2
        window.until_ms = self._runtime.monotonic_ms() + WARM_MS

    def _remember(self, segment: Segment, window: _Window) -> None:
        self._windows.pop(segment, None)
        self._windows[segment] = window
        if len(self._windows) > WINDOWS_MAX:
            del self._windows[next(iter(self._windows))]

    async def _enter(self) -> None:
        if self._running < AT_ONCE_MAX:
            self._running += 1
            return
        turn: Completion[None] = Completion()
        self._queue.append(turn)
        await turn

    def _leave(self) -> None:
        if self._queue:
            self._queue.popleft().complete(None)
        else:
            self._running -= 1
