"""Bring bytes into the page cache by a worker, so that no read waits for a disk on the loop.

To find out whether bytes are cached costs two system calls, one for each end. They are saved for bytes that a worker
has just read: these are read ahead of a consumer, so one that goes on where it was finds the next bytes there.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

from blumfeld.spi.runtime import Runtime
from blumfeld_storage_local.segments.segment import Segment
from blumfeld_storage_local.segments.segment_check import check_of, take_check
from blumfeld_storage_local.worker_slots import WorkerSlots

AT_ONCE_MAX = 2
"""Workers that may read for one directory: half of the runtime's, so that syncs find one too."""
AHEAD_BYTES = 4 << 20
"""Bytes to read ahead. When a consumer has half of them left, the next piece is begun."""
WARM_BYTES_MAX = 16 << 20
"""Bytes of a segment that count as cached without a look: the newest that were read ahead."""
WARM_MS = 10_000.0
"""The time for which they count so. Later the kernel may have dropped them."""
WINDOWS_MAX = 1024
"""Segments for which such bytes are remembered."""
_NOT_YET = 1 << 62

T = TypeVar("T")


class ColdBytesError(Exception):
    """To read these bytes would wait for a disk. :meth:`ColdReads.bring` has a worker read them."""

    def __init__(self, segment: Segment, position: int, size: int) -> None:
        super().__init__(segment, position, size)
        self.segment = segment
        self.position = position
        self.size = size
        """0 if the indexes are missing, not the bytes."""


class UncheckedBytesError(ColdBytesError):
    """It was not checked yet that these bytes are batches. :meth:`ColdReads.bring` has a worker check them."""


class _Window:
    """The bytes of one segment that count as cached."""

    __slots__ = ("end", "more_from", "start", "until_ms")

    def __init__(self, start: int, end: int, until_ms: float) -> None:
        self.start = start
        self.end = end
        self.until_ms = until_ms
        self.more_from = start
        """Position behind which a read starts the next piece."""


class ColdReads:
    """Finds cold bytes and brings them, for all logs of a directory."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._windows: dict[Segment, _Window] = {}
        self._slots = WorkerSlots(AT_ONCE_MAX)

    def look(self, segment: Segment, position: int, size: int) -> None:
        """Return if these bytes can be read at once.

        :raises ColdBytesError: they are not cached
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
        """Return if a look-up by offset opens no file.

        :raises ColdBytesError: the indexes are not in memory
        """
        if not segment.has_indexes:
            raise ColdBytesError(segment, 0, 0)

    async def bring(self, cold: ColdBytesError) -> None:
        """Have a worker read or check the bytes. The caller looks again: by then they may be cut, or cold once more.

        :raises OSError: the disk can't read them, or they are damaged
        """
        segment = cold.segment
        async with self._slots:
            if segment.is_gone:
                return  # a cleaner pass or a truncation came first
            if isinstance(cold, UncheckedBytesError):
                await self._check(segment, cold.position, cold.size)
            elif cold.size == 0:
                await self._read_indexes(segment)
            elif await self._read(segment, cold.position, cold.size):
                end = cold.position + cold.size
                window = _Window(cold.position, end, self._runtime.monotonic_ms() + WARM_MS)
                self._remember(segment, window)
                self._read_ahead(segment, window)

    async def _check(self, segment: Segment, position: int, size: int) -> None:
        cuts = segment.cuts
        checked = await self._in_worker(segment, check_of(segment, position, size))
        if checked is not None and cuts == segment.cuts:
            take_check(segment, position, checked)

    async def _read_indexes(self, segment: Segment) -> None:
        read = await self._in_worker(segment, segment.read_indexes)
        if read is not None and not segment.has_indexes:
            segment.take_indexes(read)

    async def _in_worker(self, segment: Segment, work: Callable[[], T]) -> T | None:
        """Do this in a worker, which keeps the file open. Returns ``None`` if the segment was dropped meanwhile."""
        region = segment.file().region(0, 0)
        try:
            result = await self._runtime.offload(work)
        except OSError:
            if segment.is_gone:
                return None
            raise
        finally:
            region.release()
        return None if segment.is_gone else result

    async def _read(self, segment: Segment, position: int, size: int) -> bool:
        """Read, and return True; or return False if the file was closed meanwhile."""
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
        """Begin to read the piece behind the window. No read waits for it."""
        size = min(AHEAD_BYTES, segment.size_bytes - window.end)
        window.more_from = _NOT_YET
        if size > 0 and not segment.is_gone:
            self._runtime.spawn(self._go_on(segment, window, size), f"read ahead {segment.path()}")

    async def _go_on(self, segment: Segment, window: _Window, size: int) -> None:
        async with self._slots:
            try:
                if segment.is_gone or not await self._read(segment, window.end, size):
                    return
            except OSError:
                return  # a read that needs these bytes meets the same error
        window.end += size
        window.start = max(window.start, window.end - WARM_BYTES_MAX)
        window.more_from = window.end - AHEAD_BYTES // 2
        window.until_ms = self._runtime.monotonic_ms() + WARM_MS

    def _remember(self, segment: Segment, window: _Window) -> None:
        self._windows.pop(segment, None)
        self._windows[segment] = window
        if len(self._windows) > WINDOWS_MAX:
            del self._windows[next(iter(self._windows))]
