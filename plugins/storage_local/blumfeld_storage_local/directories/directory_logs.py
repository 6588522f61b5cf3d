"""One log directory of a node, from start to stop: whose it is, which logs it holds, what its checkpoints say."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress

from blumfeld.log.checkpoints import LOCK
from blumfeld.spi.storage import TopicPartition
from blumfeld_storage_local.directories.checkpoint_files import Checkpoints
from blumfeld_storage_local.directories.directory import LogDirectory
from blumfeld_storage_local.directories.small_files import (
    claim,
    find_logs,
    leave_clean_shutdown,
    take_clean_shutdown,
)
from blumfeld_storage_local.logs.opened_log import ClosedLog
from blumfeld_storage_local.logs.partition_log import LocalLog
from blumfeld_storage_local.start.survey import LogSurvey, survey_all
from blumfeld_storage_local.sync.durability import can_be_undone

FLUSHED_AT_ONCE = 64
"""Logs at a stop: each keeps a descriptor until it is synced."""


class DirectoryLogs:
    """A log directory with what it holds. Nothing but ``home`` says anything before :meth:`take`."""

    def __init__(self, home: LogDirectory) -> None:
        self.home = home
        self.found: dict[TopicPartition, bytes] = {}
        """Every log that lies here, with its topic id."""
        self.clean: dict[TopicPartition, None] = {}
        """Logs that are known to be closed cleanly, and were not opened since."""
        self.surveys: dict[TopicPartition, LogSurvey] = {}
        """What the start saw of those."""
        self.futures: list[tuple[TopicPartition, str]] = []
        """Copies in the making that were found at start: of which log, and their directories."""
        self.broker_epoch: int | None = None
        """Of the clean-shutdown file that was there; ``None``: there was none."""
        self.all_clean = True
        self._closing: dict[TopicPartition, ClosedLog] = {}
        """Logs that were closed while a sync of them ran."""
        self._checkpoints: Checkpoints | None = None
        self._unlock = _nothing

    @property
    def online(self) -> bool:
        """Whether it works."""
        return self.home.error is None

    @property
    def checkpoints(self) -> Checkpoints:
        """Read when the directory was taken. Raises ``OSError`` before."""
        if self._checkpoints is None:
            self.home.check()
            raise OSError(errno.EBADF, "the storage was not started", self.home.path)
        return self._checkpoints

    def take(self, cluster_id: str, node_id: int) -> None:
        """Make it this node's, look what lies there. Blocks, for a short time.

        :raises OSError: it can't be used; ``BlockingIOError``: another process holds its lock
        :raises ValueError: it belongs to another cluster or node
        """
        home = self.home
        if not home.files.exists(home.path):
            home.files.make_dirs(home.path)
            # A log that is flushed below a name that isn't would be lost with it.
            home.files.sync_dir(_parent(home.path))
        self._unlock = home.files.lock(f"{home.path}/{LOCK}")
        home.directory_id = claim(home.runtime, home.path, cluster_id, node_id)
        self.broker_epoch = take_clean_shutdown(home)
        logs = find_logs(home)
        self.found, self.futures = logs.current, logs.futures
        self._checkpoints = Checkpoints(home)
        if self.broker_epoch is not None:
            self.clean = dict.fromkeys(self.found)
            self.surveys = survey_all(home.files, home.path, self.found)
        if logs.deleted:
            home.remove_later(logs.deleted, 0, trees=True)

    def leave(self) -> None:
        """Give the lock back. May be called twice."""
        unlock, self._unlock = self._unlock, _nothing
        unlock()

    def note_offsets(self, log: ClosedLog) -> None:
        """What the next checkpoint says of it."""
        self.checkpoints.recovery_points[log.partition] = log.recovery_point
        self.checkpoints.log_starts[log.partition] = log.log_start_offset

    def log_closed(self, log: ClosedLog) -> None:
        """It is closed, or discarded."""
        self.note_offsets(log)
        if not log.clean:
            self.all_clean = False
            return
        self.clean[log.partition] = None
        if log.waits_for_last_sync:
            self._closing[log.partition] = log

    async def last_sync(self, partition: TopicPartition) -> None:
        """Wait for the sync that ran when it was closed, and know then up to where the log lasts.

        :raises OSError: it failed, so that the directory is offline
        """
        log = self._closing.get(partition)
        if log is None:
            return
        await log.last_sync()
        if self._closing.pop(partition, None) is log:
            self.home.check()
            self.note_offsets(log)

    async def save(self) -> None:
        """Checkpoints and marks as they are now last, or the directory is offline.

        :raises OSError: it is, or it is full
        """
        try:
            await self.checkpoints.save_soon()
        except OSError as error:
            if not can_be_undone(error):
                self.home.fail(error)
            raise
        self.home.check()

    def forget(self, partition: TopicPartition) -> None:
        """Its log lies here no more."""
        self.found.pop(partition, None)
        self.clean.pop(partition, None)
        self.surveys.pop(partition, None)
        self._closing.pop(partition, None)
        self.checkpoints.forget(partition)

    async def stop(self, logs: Sequence[LocalLog], broker_epoch: int) -> None:
        """Close these logs, checkpoint, and leave the clean-shutdown file if all went well. Raises ``OSError``."""
        home = self.home
        try:
            if self.online:
                await home.new_logs.settle()
        finally:
            home.close()
        try:
            for at in range(0, len(logs), FLUSHED_AT_ONCE):  # off the loop, and then no round runs
                for flushing in [log.flush() for log in logs[at : at + FLUSHED_AT_ONCE] if self.online]:
                    with suppress(OSError):
                        await flushing
            for log in logs:
                try:
                    log.close()
                except OSError as error:
                    home.events.error("log not closed", log=log.directory, error=str(error))
            for partition in list(self._closing):
                await self.last_sync(partition)
            await self.checkpoints.save_all()
            # A log that nobody opened since a crash is not recovered yet: the next start must still do it.
            if self.all_clean and all(partition in self.clean for partition in self.found):
                await home.runtime.offload(leave_clean_shutdown, home, broker_epoch)
        finally:
            self.leave()


def _parent(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0] or ("/" if path[0] == "/" else ".")


def _nothing() -> None:
    return None
