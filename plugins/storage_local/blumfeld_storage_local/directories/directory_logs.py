"""One log directory with its logs, from start to stop: its owner, its logs, its checkpoints."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress

from blumfeld.log.checkpoints import LOCK
from blumfeld.spi.storage import TopicPartition
from blumfeld_storage_local.directories.checkpoint_files import Checkpoints
from blumfeld_storage_local.directories.small_files import (
    claim,
    find_logs,
    forget_clean_shutdown,
    last_clean_epoch,
    leave_clean_shutdown,
    take_clean_shutdown,
)
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.durability import can_be_undone
from blumfeld_storage_local.logs.partition_log import LocalLog
from blumfeld_storage_local.logs.survey import LogSurvey, survey_all

FLUSHED_AT_ONCE = 64
"""Logs that a stop flushes at once: each keeps a descriptor open until it is synced."""


class DirectoryLogs:
    """A log directory and its logs. Before :meth:`take` only ``home`` has a meaning."""

    def __init__(self, home: LogDirectory) -> None:
        self.home = home
        self.found: dict[TopicPartition, bytes] = {}
        """Topic id of every log that lies here."""
        self.clean: dict[TopicPartition, None] = {}
        """Logs that were closed cleanly, and were not opened since."""
        self.surveys: dict[TopicPartition, LogSurvey] = {}
        """The contents of the directories of clean logs, as the start listed them."""
        self.futures: list[tuple[TopicPartition, str]] = []
        """Copies of interrupted moves that the start found: the log, and the path of its copy."""
        self.broker_epoch: int | None = None
        """Broker epoch of the last clean stop, as the start found it; ``None`` if a log of the broker's was opened
        since."""
        self._is_as_left = False
        """Whether ``broker_epoch`` is still true."""
        self._closing: dict[TopicPartition, LocalLog] = {}
        """Logs that were closed while one of their syncs ran."""
        self._checkpoints: Checkpoints | None = None
        self._unlock = _nothing

    @property
    def online(self) -> bool:
        """Whether the directory works."""
        return self.home.error is None

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints, which :meth:`take` reads. Raises ``OSError`` before."""
        if self._checkpoints is None:
            self.home.check()
            raise OSError(errno.EBADF, "the storage was not started", self.home.path)
        return self._checkpoints

    def take(self, cluster_id: str, node_id: int) -> None:
        """Lock the directory, check that it is this node's, and list its logs. Blocks, for a short time.

        :raises OSError: it can't be used; ``BlockingIOError``: another process holds its lock
        :raises ValueError: it belongs to another cluster or node
        """
        home = self.home
        if not home.files.exists(home.path):
            home.files.make_dirs(home.path)
            # A power cut could else take this directory's name, and flushed logs with it.
            home.files.sync_dir(_parent(home.path))
        self._unlock = home.files.lock(f"{home.path}/{LOCK}")
        home.directory_id = claim(home.runtime, home.path, cluster_id, node_id)
        clean = take_clean_shutdown(home)
        self.broker_epoch = last_clean_epoch(home)
        self._is_as_left = self.broker_epoch is not None
        logs = find_logs(home)
        self.found, self.futures = logs.current, logs.futures
        self._checkpoints = Checkpoints(home)
        if clean:
            self.clean = dict.fromkeys(self.found)
            self.surveys = survey_all(home.files, home.path, self.found)
        if logs.deleted:
            home.remove_later(logs.deleted, 0, trees=True)

    def broker_opens_a_log(self) -> None:
        """Forget the last clean stop: from now on a process that ends uncleanly may lose records.

        A process that ends before that has lost nothing, however it ends. So its successor names the same epoch, and
        stays eligible (KIP-966).
        """
        if self._is_as_left:
            self._is_as_left = False
            forget_clean_shutdown(self.home)

    def leave(self) -> None:
        """Give the lock back. May be called twice."""
        unlock, self._unlock = self._unlock, _nothing
        unlock()

    def note_offsets(self, log: LocalLog) -> None:
        """Put the log's offsets into the checkpoints. Nothing is written yet."""
        self.checkpoints.recovery_points[log.partition] = log.recovery_point
        self.checkpoints.log_starts[log.partition] = log.log_start_offset

    def log_closed(self, log: LocalLog) -> None:
        """Take down how a log was closed, or that it was discarded."""
        self.note_offsets(log)
        if not log.clean:
            return
        self.clean[log.partition] = None
        if log.waits_for_last_sync:
            self._closing[log.partition] = log

    async def last_sync(self, partition: TopicPartition) -> None:
        """Wait for the sync that ran when a log was closed, and take down the final recovery point.

        :raises OSError: the sync failed, so that the directory is offline
        """
        log = self._closing.get(partition)
        if log is None:
            return
        await log.last_sync()
        if self._closing.pop(partition, None) is log:
            self.home.check()
            self.note_offsets(log)

    async def save(self) -> None:
        """Save checkpoints and marks as they are now; durable when this returns.

        :raises OSError: the directory is offline, or full
        """
        try:
            await self.checkpoints.save_soon()
        except OSError as error:
            if not can_be_undone(error):
                self.home.fail(error)
            raise
        self.home.check()

    def forget(self, partition: TopicPartition) -> None:
        """Forget a log that does not lie here any more."""
        self.found.pop(partition, None)
        self.clean.pop(partition, None)
        self.surveys.pop(partition, None)
        self._closing.pop(partition, None)
        self.checkpoints.forget(partition)

    async def stop(self, logs: Sequence[LocalLog], broker_epoch: int) -> None:
        """Close these logs, checkpoint, and leave the clean-shutdown file if all went well and there was room for it.

        :raises OSError: the directory is offline, or its disk is bad
        """
        home = self.home
        try:
            if self.online:
                await home.new_logs.settle()
        finally:
            home.close()
        try:
            # In workers. Afterwards no sync runs that a close would have to wait for.
            for at in range(0, len(logs), FLUSHED_AT_ONCE):
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
            await self._leave_marks(broker_epoch)
        finally:
            self.leave()

    async def _leave_marks(self, broker_epoch: int) -> None:
        """Write the last checkpoint, and the clean-shutdown file if all went well. On a full disk neither can be
        written: the next start then recovers the directory, as after a kill."""
        home = self.home
        try:
            await self.checkpoints.save_all()
            # A log that nobody opened since a crash is not recovered yet: the next start must still do it.
            if all(partition in self.clean for partition in self.found):
                left = self.broker_epoch if self._is_as_left and broker_epoch < 0 else None
                await home.runtime.offload(leave_clean_shutdown, home, broker_epoch if left is None else left)
        except OSError as error:
            if not can_be_undone(error):
                raise
            home.events.warning(
                "no room for the last checkpoint: the next start recovers this directory",
                path=home.path,
                error=str(error),
            )


def _parent(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0] or ("/" if path[0] == "/" else ".")


def _nothing() -> None:
    return None
