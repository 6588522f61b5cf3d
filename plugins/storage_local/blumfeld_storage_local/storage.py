"""The storage of a node: its log directories, laid out as Kafka's, and the logs that are open."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from math import inf

from blumfeld.config.values import TopicConfig
from blumfeld.log.checkpoints import NO_BROKER_EPOCH
from blumfeld.log.segments.file_names import DirState, marked_partition_dir, partition_dir
from blumfeld.spi.hooks import EventLog, Metric
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.scheduler import Lane, Work
from blumfeld.spi.storage import (
    LogDirInfo,
    LogDirNotFoundError,
    LogListener,
    LogMove,
    LogNotOpenError,
    PartitionLog,
    StorageWatcher,
    TopicPartition,
)
from blumfeld_storage_local.directories.checkpoint_round import CheckpointRound
from blumfeld_storage_local.directories.directory_logs import DirectoryLogs
from blumfeld_storage_local.directories.directory_start import find_all, previous_broker_epoch, take_all
from blumfeld_storage_local.directories.places import Place, choose
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.durability import FLUSH_NEVER, Durability
from blumfeld_storage_local.logs.partition_log import LocalLog, LogCallbacks
from blumfeld_storage_local.relocation.move_scheduler import MoveScheduler
from blumfeld_storage_local.segments.segment import OPEN_FILES_MAX
from blumfeld_storage_local.start.open_partition import open_partition

_RESERVED_ID = bytes(15)
"""Prefix of ids that name no directory: UNASSIGNED, LOST, MIGRATING (``DirectoryId``, KIP-858)."""


class LocalStorage:
    """``LogStorage`` in one or several directories (JBOD, KIP-112).

    :param paths: paths of the directories. The first must work, because ``__cluster_metadata`` lies there
    :param open_files_max: log files that may be open at once. The least recently used are closed for others
    :param move_bytes_per_second_max: rate of one move (``replica.alter.log.dirs.io.max.bytes.per.second``)
    :param delete_delay_ms: how long the files of a log stay that was deleted while it was not open
        (``log.segment.delete.delay.ms``)
    """

    compacts = True
    log_class = LocalLog

    def __init__(
        self,
        runtime: Runtime,
        paths: str | Sequence[str],
        events: EventLog,
        *,
        delete_delay_ms: int = 60_000,
        durability: Durability = FLUSH_NEVER,
        move_bytes_per_second_max: float = inf,
        open_files_max: int = OPEN_FILES_MAX,
    ) -> None:
        self._runtime = runtime
        paths = [paths] if isinstance(paths, str) else paths
        self._directories = [
            DirectoryLogs(
                LogDirectory(
                    runtime, path, events, self._directory_failed, durability, open_files_max // len(paths)
                )
            )
            for path in paths
        ]
        self._delete_delay_ms = delete_delay_ms
        self._durability = durability
        self._started = False
        self._watcher: StorageWatcher | None = None
        self._where: dict[TopicPartition, DirectoryLogs] = {}
        """The directory of each log."""
        self._deleted: dict[TopicPartition, DirectoryLogs] = {}
        """Directories of logs that were deleted since the start: a power cut may bring their names back."""
        self._open: dict[TopicPartition, LocalLog] = {}
        self._round: tuple[CheckpointRound, Work] | None = None
        """The last checkpoint. It may still be being taken down."""
        self._moves = MoveScheduler(
            runtime,
            len(self._directories),
            move_bytes_per_second_max,
            self._where_is,
            self._moved,
            self._tell_moved,
        )
        self._callbacks = LogCallbacks(self._truncating, self._log_closed, self._log_cleaned)

    def watch(self, watcher: StorageWatcher) -> None:
        """Tell ``watcher`` about directories that fail from now on. Those that the start finds offline are not told."""
        self._watcher = watcher

    def promise(self) -> str:
        """Return what an ack promises."""
        return self._durability.promise()

    def metrics(self) -> list[Metric]:
        """Return what a scrape reads."""
        homes = [directory.home for directory in self._directories]
        return [
            Metric(
                "blumfeld_log_sync_seconds",
                "Syncs of logs to the device, one for all logs that share it (Kafka's LogFlushRateAndTimeMs)",
                "histogram",
                lambda: {(home.path,): home.sync_times for home in homes},
                ("directory",),
            )
        ]

    async def start(self, cluster_id: str, node_id: int) -> None:
        """Take the directories. Those that can't be used are offline; see :func:`starting.take_all`."""
        try:
            take_all(self._directories, cluster_id, node_id)
            logs = await find_all(self._directories)
        except BaseException:
            for directory in self._directories:
                directory.leave()
            raise
        self._where = logs.logs
        self._moves.found(logs.moves)
        self._started = True

    def log_dirs(self) -> Sequence[LogDirInfo]:
        """Return all directories in the configured order. One that could not be taken may have the zero id."""
        return [directory.home.info() for directory in self._directories]

    def partitions(self) -> Sequence[tuple[TopicPartition, bytes]]:
        """Return every log that lies here, with its topic id; zero where a crash left none."""
        return [log for directory in self._directories for log in directory.found.items()]

    def previous_broker_epoch(self) -> int:
        """Return the broker epoch of the last clean stop, or -1 if the broker opened a log since; see KIP-966."""
        epoch = previous_broker_epoch(self._directories)
        return NO_BROKER_EPOCH if epoch is None else epoch

    def _directory_failed(self, home: LogDirectory, error: OSError) -> None:
        if self._watcher is not None:
            self._watcher.directory_failed(home.info(), error)

    # Logs

    async def open_log(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        listener: LogListener,
        *,
        directory_id: bytes | None = None,
    ) -> PartitionLog:
        """Open or create the log of one partition. Recover it if the last stop was not clean."""
        await self._moves.ended(partition)
        known = self._where.get(partition)
        at = self._place(partition, directory_id) if known is None else known
        at.home.check()
        if partition in self._open:
            raise ValueError(f"the log of {partition} is open")
        await self._forget_for_good(partition, at)
        if partition.topic != CLUSTER_METADATA_TOPIC:
            at.broker_opens_a_log()
        held = at.found.get(partition)
        # Before the log is open: others that are opened meanwhile choose their directory by these counts.
        self._where[partition], at.found[partition] = at, topic_id
        try:
            log = await open_partition(at, partition, topic_id, config, listener, self._callbacks)
        except BaseException:
            if held is None:
                del self._where[partition], at.found[partition]
            else:
                at.found[partition] = held
            raise
        self._open[partition] = log
        self._moves.opened(log, at)
        return log

    async def _forget_for_good(self, partition: TopicPartition, at: DirectoryLogs) -> None:
        """Sync the deletion of a log of this name in another directory.

        A power cut could else bring it back beside the log that is made now, and no start could choose.
        """
        before = self._deleted.pop(partition, None)
        if before is None or before is at or not before.online:
            return
        try:
            await self._runtime.offload(before.home.files.sync_dir, before.home.path)
        except OSError as error:
            before.home.fail(error)

    def _where_is(self, partition: TopicPartition) -> DirectoryLogs | None:
        return self._where.get(partition)

    def _place(self, partition: TopicPartition, directory_id: bytes | None) -> DirectoryLogs:
        """Return the directory in which a new log is made."""
        self._check_started()
        online = [directory for directory in self._directories if directory.online]
        places = [Place(d.home.directory_id, d.home.path, len(d.found)) for d in online]
        if directory_id is not None and directory_id.startswith(_RESERVED_ID):
            directory_id = None
        chosen = choose(places, directory_id)
        if chosen is None:
            self._directories[0].home.check()
            raise OSError(errno.EIO, "no log directory is online")
        if directory_id is None or places[chosen].directory_id == directory_id:
            return online[chosen]
        for directory in self._directories:
            # The log may lie in this directory, which is offline: an empty one in its place would lose it.
            if not directory.online and directory.home.directory_id in (directory_id, bytes(16)):
                directory.home.check()
        return online[chosen]

    def _check_started(self) -> None:
        for directory in self._directories:
            if directory.online:
                _ = directory.checkpoints  # raises if the storage was not started

    def _log_closed(self, log: LocalLog) -> None:
        self._open.pop(log.partition, None)
        self._where[log.partition].log_closed(log)
        self._moves.closed(log.partition)

    def _log_cleaned(self, partition: TopicPartition, cleaned_end_offset: int) -> None:
        checkpoints = self._where[partition].checkpoints
        checkpoints.cleaner_offsets[partition] = cleaned_end_offset
        checkpoints.save_in_time()

    def _truncating(self, partition: TopicPartition, offset: int) -> None:
        """Lower the checkpoints before a log is cut at ``offset``: new records behind the cut are not flushed yet.

        A recovery point that stayed above the cut would keep recovery away from them.
        """
        self._moves.truncated(partition, offset)
        checkpoints = self._where[partition].checkpoints
        if checkpoints.recovery_points.get(partition, 0) > offset:
            checkpoints.recovery_points[partition] = offset
            checkpoints.save_recovery_points()
        if checkpoints.cleaner_offsets.get(partition, 0) > offset:
            checkpoints.cleaner_offsets[partition] = offset
            checkpoints.save_cleaner_offsets()

    def delete_log(self, partition: TopicPartition) -> None:
        """Rename the log's directory at once, and remove it later."""
        self._moves.give_up(partition)
        log = self._open.get(partition)
        delay_ms = self._delete_delay_ms if log is None else log.config.file_delete_delay_ms
        known = self._where.get(partition)
        if log is not None and known is not None:
            log.discard()
        self._where.pop(partition, None)
        if self._round is not None:
            self._round[0].forget(partition)
        self._check_started()
        for at in self._directories if known is None else [known]:
            if known is None and not at.online:
                continue
            at.forget(partition)
            if at.home.files.exists(f"{at.home.path}/{partition_dir(partition)}"):
                at.home.check()
                at.home.remove_later([self._mark(at, partition, DirState.DELETE)], delay_ms, trees=True)

    def set_aside_log(self, partition: TopicPartition) -> None:
        """Rename the log's directory at once, and keep it."""
        if partition in self._open:
            raise ValueError(f"the log of {partition} is open")
        at = self._where.get(partition)
        if at is not None:
            at.home.check()
            self._moves.give_up(partition)
            path = self._mark(at, partition, DirState.STRAY)
            del self._where[partition]
            at.forget(partition)
            at.home.events.warning("log that no topic claims set aside", log=str(partition), kept=path)

    def _mark(self, at: DirectoryLogs, partition: TopicPartition, state: DirState) -> str:
        """Rename a log's directory, and return the new path."""
        marked = f"{at.home.path}/{marked_partition_dir(partition, state, self._runtime.new_uuid())}"
        at.home.files.rename(f"{at.home.path}/{partition_dir(partition)}", marked)
        self._deleted[partition] = at
        return marked

    # Moves

    def move_log(self, partition: TopicPartition, directory_id: bytes) -> None:
        """Begin to move an open log, or give up its move; see the contract. ``__cluster_metadata`` stays."""
        target = next((at for at in self._directories if at.home.directory_id == directory_id), None)
        if target is None:
            raise LogDirNotFoundError(f"no log directory {directory_id.hex()}")
        if not target.online:
            raise LogDirNotFoundError(f"the log directory {target.home.path} is offline")
        log = self._open.get(partition)
        if log is None or partition.topic == CLUSTER_METADATA_TOPIC:
            raise LogNotOpenError(f"the log of {partition} is not open, or can't be moved")
        source = self._where[partition]
        if target is source:
            self._moves.give_up(partition)
        else:
            source.home.check()
            self._moves.begin(log, source, target)

    def moves(self) -> Sequence[LogMove]:
        """Return the moves that run, or wait for others to end."""
        return self._moves.infos()

    def _moved(self, log: LocalLog, to: DirectoryLogs) -> None:
        partition = log.partition
        source = self._where[partition]
        to.found[partition] = source.found.pop(partition)
        source.clean.pop(partition, None)
        mark = source.checkpoints.moves[partition]
        source.checkpoints.forget(partition)
        source.checkpoints.moves[partition] = mark  # until the old files are gone
        self._where[partition] = to

    def _tell_moved(self, partition: TopicPartition, directory_id: bytes) -> None:
        if self._watcher is not None:
            self._watcher.moved(partition, directory_id)

    # Checkpoints

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the high watermarks of the last checkpoint."""
        self._check_started()
        marks: dict[TopicPartition, int] = {}
        for directory in self._directories:
            if directory.online:
                marks |= {
                    partition: offset
                    for partition, offset in directory.checkpoints.high_watermarks.items()
                    if self._where.get(partition, directory) is directory
                }
        return marks

    def checkpoint(self, high_watermarks: Iterable[tuple[TopicPartition, int]]) -> None:
        """Write recovery points, log starts and high watermarks.

        The recovery points of few logs are durable when this returns, unless other upkeep has taken this turn's time;
        those of many are some turns later. The other files follow soon. A directory whose checkpoints can't be written
        goes offline, but a full one tries again at the next checkpoint. Raises ``OSError`` if no directory is online.
        """
        online = [directory for directory in self._directories if directory.online]
        if self._round is not None:
            self._round[1].cancel()
        checkpoint = CheckpointRound(online, self._open.values(), high_watermarks, self._lies_in)
        self._round = checkpoint, self._runtime.scheduler.run(Lane.UPKEEP, checkpoint.steps())
        if not any(directory.online for directory in self._directories):
            self._directories[0].home.check()

    def _lies_in(self, partition: TopicPartition) -> tuple[DirectoryLogs, DirectoryLogs | None]:
        return self._where.get(partition, self._directories[0]), self._moves.target(partition)

    # Stop

    async def stop(self, broker_epoch: int) -> None:
        """Close every log, and write the clean-shutdown file in each directory in which all went well.

        One directory that fails does not keep the others from it. Raises ``OSError`` if all fail.
        """
        if not self._started:
            return
        self._started = False
        if self._round is not None:
            self._round[1].finish()
        await self._moves.stop()
        failures: list[OSError] = []
        for directory in self._directories:
            logs = [log for log in self._open.values() if self._where[log.partition] is directory]
            try:
                await directory.stop(logs, broker_epoch)
            except OSError as error:
                home = directory.home
                home.events.error("log directory not closed", path=home.path, error=str(error))
                failures.append(error)
        if len(failures) == len(self._directories):
            raise failures[0]
