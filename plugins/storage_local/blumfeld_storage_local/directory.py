"""One log directory: whether it works, what its logs share, and the removal of files that are not needed any more."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count

from blumfeld.spi.histogram import Histogram
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Files, Runtime, Timer
from blumfeld.spi.storage import LogDirInfo
from blumfeld_storage_local.durability import FLUSH_NEVER, Durability, can_be_undone
from blumfeld_storage_local.segments.cold_reads import ColdReads
from blumfeld_storage_local.segments.segment import OPEN_FILES_MAX, OpenFiles
from blumfeld_storage_local.sync.new_logs import NewLogs
from blumfeld_storage_local.sync.sync_rounds import SyncRounds
from blumfeld_storage_local.worker_slots import WorkerSlots

SYNC_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
SPACE_KEPT_MS = 1000
"""The time for which the size of the file system counts as known."""


_CANNOT_RESERVE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV)
"""Errors of file systems that can't reserve space."""


class LogDirectory:
    """A log directory, as all its logs share it.

    After a failed sync, or a failed cut after a failed write, it is not known what is on the disk. The directory goes
    offline then, and every method of every log in it raises.

    :param failed: called once, in the turn after a failure
    """

    def __init__(
        self,
        runtime: Runtime,
        path: str,
        events: EventLog,
        failed: Callable[[LogDirectory, OSError], None] | None = None,
        durability: Durability = FLUSH_NEVER,
        open_files_max: int = OPEN_FILES_MAX,
    ) -> None:
        self.runtime = runtime
        self.files: Files = runtime.files
        self.path = path
        self.directory_id = bytes(16)
        self.events = events
        self.error: OSError | None = None
        """The error that took the directory offline; ``None`` while it works."""
        self.durability = durability
        self.sync_times = Histogram(SYNC_BOUNDS_S)
        """Durations of sync rounds, from the request to the last device's answer."""
        self.syncs = SyncRounds(runtime, self.fail, self.sync_times)
        """Sync rounds that all logs share, where the durability mode says so (``Durability.shares_rounds``)."""
        self.open_files = OpenFiles(runtime, self.fail, open_files_max)
        """Budget of descriptors and maps for all its logs."""
        self.cold_reads = ColdReads(runtime)
        self.time_searches = WorkerSlots(1)
        """One at a time: to search a batch of some kB may take seconds, and each search slows the loop down."""
        self.draft_numbers = count(1)
        """Numbers for unfinished files. A log that is made anew, or opened again, gives no number twice: a worker may
        still hold a file of the one before."""
        self.new_logs = NewLogs(runtime, path, self.fail)
        """Logs whose topic id is written and not yet synced."""
        self._tell_failed = failed
        self._not_reserved: set[int | None] = set()
        """Errors of reserving space that were logged."""
        self._space = (-1, -1)
        self._space_until_ms = 0.0
        self._removals: dict[int, Timer] = {}
        self._removal_ids = 0

    def fail(self, error: OSError) -> None:
        """Take the directory offline. The owner is told in another turn."""
        if self.error is None:
            self.stay_offline(error)
            tell = self._tell_failed
            if tell is not None:
                self.runtime.call_later(0, lambda: tell(self, error))

    def not_reserved(self, error: OSError) -> None:
        """Log, once for each kind of error, that a log goes on without the space that ``preallocate`` asked for."""
        if error.errno not in _CANNOT_RESERVE and not can_be_undone(error):
            self.fail(error)
        elif error.errno not in self._not_reserved:
            self._not_reserved.add(error.errno)
            self.events.warning("no space reserved for a segment", log=error.filename, error=error.strerror)

    def stay_offline(self, error: OSError) -> None:
        """Be offline from the start on, because the directory could not be taken."""
        self.error = error
        self.events.error("log directory offline", path=self.path, error=str(error))

    def info(self) -> LogDirInfo:
        """Return the state for DescribeLogDirs. The file system is asked for its size once a second at most."""
        now_ms = self.runtime.monotonic_ms()
        if self.error is None and now_ms >= self._space_until_ms:
            self._space_until_ms = now_ms + SPACE_KEPT_MS
            try:
                self._space = self.files.space(self.path)
            except OSError:
                self._space = (-1, -1)
        online = self.error is None
        total_bytes, usable_bytes = self._space if online else (-1, -1)
        return LogDirInfo(
            path=self.path,
            directory_id=self.directory_id,
            online=online,
            total_bytes=total_bytes,
            usable_bytes=usable_bytes,
        )

    def rounds(self) -> SyncRounds:
        """Return the sync rounds for one log: the shared ones, or rounds of its own."""
        if self.durability.shares_rounds:
            return self.syncs
        return SyncRounds(self.runtime, self.fail, self.sync_times)

    def check(self) -> None:
        """Raise ``OSError`` if the directory is offline."""
        if self.error is not None:
            raise OSError(self.error.errno, f"log directory offline: {self.error}", self.path)

    def remove_later(self, paths: Sequence[str], delay_ms: int, *, trees: bool = False) -> None:
        """Remove files, or directories, in ``delay_ms``. After a stop, the next start removes what is left."""
        self._removal_ids += 1
        removal_id = self._removal_ids

        def due() -> None:
            del self._removals[removal_id]
            self.runtime.spawn(self._remove(paths, trees), f"remove {paths[0]}")

        self._removals[removal_id] = self.runtime.call_later(delay_ms, due)

    async def _remove(self, paths: Sequence[str], trees: bool) -> None:
        remove: Callable[[str], None] = self.files.remove_tree if trees else self.files.unlink
        for path in paths:
            try:
                with suppress(FileNotFoundError):
                    await self.runtime.offload(remove, path)
            except OSError as error:
                self.events.warning("not removed", path=path, error=str(error))

    def close(self) -> None:
        """Cancel all removals, and all syncs that wait for a timer."""
        self.syncs.stop()
        self.new_logs.stop()
        for timer in self._removals.values():
            timer.cancel()
        self._removals.clear()
