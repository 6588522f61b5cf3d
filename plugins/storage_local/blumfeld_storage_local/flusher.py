"""Group commit: one sync at a time for a log; who asks meanwhile shares the next one."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Protocol

from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import FileRegion
from blumfeld.spi.runtime import File, Runtime
from blumfeld_storage_local.segment import Segment


class Flushed(Protocol):
    """The log that is flushed."""

    directory: str
    written_end_offset: int
    flushed_end_offset: int
    names_unsynced: bool
    """Files were made or renamed in the directory since it was last synced."""

    def unflushed_segments(self) -> list[Segment]:
        """Segments with something written behind the flushed end, oldest first."""
        ...


def sync(
    runtime: Runtime, directory: str, files: Sequence[File], indexes: Sequence[Segment], names: bool
) -> None:
    """Make it all last. Blocks.

    :param indexes: segments whose index files are to be synced
    :param names: sync the directory's names too, and its own
    """
    for file in files:
        file.fdatasync()
    for segment in indexes:
        segment.sync_indexes()
    if names:
        runtime.files.sync_dir(directory)
        runtime.files.sync_dir(directory.rpartition("/")[0] or "/")  # a new log's own name


class Flusher:
    """Flushes one log off the loop.

    :param failed: called once with the error when a sync fails; nothing is ever synced again then
    """

    __slots__ = ("_cap", "_closed", "_error", "_failed", "_log", "_running", "_runtime", "_waiters")

    def __init__(self, runtime: Runtime, log: Flushed, failed: Callable[[OSError], None]) -> None:
        self._runtime = runtime
        self._log = log
        self._failed = failed
        self._running = False
        self._waiters: list[Completion[int]] = []
        self._cap = 0
        self._closed = False
        self._error: OSError | None = None

    def flush(self) -> Completion[int]:
        """Make what is written now last; completes with the flushed end."""
        log = self._log
        if log.flushed_end_offset >= log.written_end_offset and not log.names_unsynced:
            return Completion.of(log.flushed_end_offset)
        waiter: Completion[int] = Completion()
        if self._error is not None:
            waiter.fail(self._error)
            return waiter
        self._waiters.append(waiter)
        if not self._running:
            self._running = True
            self._runtime.spawn(self._run(), f"flush {log.directory}")
        return waiter

    def truncated(self, offset: int) -> None:
        """What is synced now is worth nothing from ``offset`` on."""
        self._cap = min(self._cap, offset)

    def close(self) -> None:
        """The log is closed, and whoever closed it synced what there was: nothing of it is touched any more."""
        self._closed = True

    async def _run(self) -> None:
        while self._waiters:
            waiters, self._waiters = self._waiters, []
            try:
                if not self._closed and not await self._sync():
                    self._waiters = waiters + self._waiters
                    continue
            except OSError as error:
                self._running = False
                self._error = error
                waiters += self._waiters
                self._waiters = []
                self._failed(error)
                for waiter in waiters:
                    waiter.fail(error)
                return
            for waiter in waiters:
                waiter.complete(self._log.flushed_end_offset)
        self._running = False

    async def _sync(self) -> bool:
        """Sync once; False: segments went away meanwhile, and it must be done again."""
        log = self._log
        target = self._cap = log.written_end_offset
        names, log.names_unsynced = log.names_unsynced, False
        segments = log.unflushed_segments()
        indexes = [segment for segment in segments[:-1] if segment.index_unsynced]
        files = [segment.file() for segment in segments]
        held: list[FileRegion] = []  # keeps the descriptors from being closed, and reused, under the worker
        try:
            held += (file.region(0, 0) for file in files)
            await self._runtime.offload(sync, self._runtime, log.directory, files, indexes, names)
        except OSError as error:
            log.names_unsynced = True
            gone = any(not segment.is_open for segment in segments)
            if self._closed or (gone and error.errno in (errno.EBADF, errno.ENOENT)):
                return False
            raise
        finally:
            for region in held:
                region.release()
        for segment in indexes:
            segment.index_unsynced = False
        log.flushed_end_offset = max(log.flushed_end_offset, min(target, self._cap))
        return True
