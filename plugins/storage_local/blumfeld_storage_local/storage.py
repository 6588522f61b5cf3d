"""One log directory of a node, laid out as Kafka's: opened, checkpointed, closed."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from blumfeld.log.checkpoints import LOCK, NO_BROKER_EPOCH, PARTITION_METADATA, encode_partition_metadata
from blumfeld.log.file_names import DirState, marked_partition_dir, partition_dir
from blumfeld.spi.config import TopicConfig
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.storage import (
    LogDirInfo,
    LogListener,
    LogMove,
    PartitionLog,
    StorageWatcher,
    TopicPartition,
)
from blumfeld_storage_local.checkpoint_files import Checkpoints
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.log_state import LogState
from blumfeld_storage_local.opening import tidy
from blumfeld_storage_local.partition_log import LocalLog
from blumfeld_storage_local.recovering import Recovery
from blumfeld_storage_local.segment import Segment
from blumfeld_storage_local.segment_list import SegmentList
from blumfeld_storage_local.small_files import (
    NO_TOPIC_ID,
    claim,
    find_logs,
    leave_clean_shutdown,
    read_topic_id,
    take_clean_shutdown,
)

_ALL = 1 << 62
"""A flushed end beyond every log: all of it is flushed."""


class LocalStorage:
    """``LogStorage`` in one directory.

    :param delete_delay_ms: how long a deleted log's files stay that was not open (``log.segment.delete.delay.ms``)
    """

    compacts = False

    def __init__(
        self, runtime: Runtime, path: str, events: EventLog, *, delete_delay_ms: int = 60_000
    ) -> None:
        self._runtime = runtime
        self._home = LogDirectory(runtime, path, events)
        self._delete_delay_ms = delete_delay_ms
        self._started = False
        self._unlock = _nothing
        self._broker_epoch = NO_BROKER_EPOCH
        self._found: dict[TopicPartition, bytes] = {}
        self._clean: dict[TopicPartition, None] = {}
        """Logs that are known to be closed cleanly, and were not opened since."""
        self._open: dict[TopicPartition, LocalLog] = {}
        self._checkpoints: Checkpoints | None = None
        """Read at start."""
        self._all_clean = True

    def watch(self, watcher: StorageWatcher) -> None:
        """Nothing fails or moves here."""

    def move_log(self, partition: TopicPartition, directory_id: bytes) -> None:
        """There is nowhere else to move to."""
        if directory_id not in {info.directory_id for info in self.log_dirs()}:
            raise LookupError(f"no log directory {directory_id.hex()}")

    def moves(self) -> Sequence[LogMove]:
        """None."""
        return ()

    def promise(self) -> str:
        """What an ack means on it."""
        return "page cache: survives the process; a power cut only once flushed (flush.messages, flush.ms, on roll)"

    async def start(self, cluster_id: str, node_id: int) -> None:
        """Take the directory."""
        home = self._home
        if not home.files.exists(home.path):
            home.files.make_dirs(home.path)
            # A log that is flushed below a name that isn't would be lost with it.
            home.files.sync_dir(
                home.path.rstrip("/").rpartition("/")[0] or ("/" if home.path[0] == "/" else ".")
            )
        self._unlock = home.files.lock(f"{home.path}/{LOCK}")
        try:
            home.directory_id = claim(self._runtime, home.path, cluster_id, node_id)
            broker_epoch = take_clean_shutdown(home)
            self._found, deleted = find_logs(home)
            self._checkpoints = Checkpoints(home)
        except BaseException:
            self._unlock()
            raise
        if broker_epoch is not None:
            self._broker_epoch = broker_epoch
            self._clean = dict.fromkeys(self._found)
        if deleted:
            home.remove_later(deleted, 0, trees=True)
        self._started = True

    def log_dirs(self) -> Sequence[LogDirInfo]:
        """The one directory."""
        home = self._home
        return [LogDirInfo(path=home.path, directory_id=home.directory_id, online=home.error is None)]

    def partitions(self) -> Sequence[tuple[TopicPartition, bytes]]:
        """Every log found at start; the topic id is zero where a crash left none."""
        return list(self._found.items())

    def previous_broker_epoch(self) -> int:
        """The broker epoch in the clean-shutdown file that was found at start, or -1."""
        return self._broker_epoch

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
        """Open, or create, the log of one partition; recover it if the last stop was not clean."""
        home, checkpoints = self._home, self._known
        home.check()
        if partition in self._open:
            raise ValueError(f"the log of {partition} is open")
        directory = f"{home.path}/{partition_dir(partition)}"
        clean = partition in self._clean
        self._clean.pop(partition, None)
        created = await self._runtime.offload(_prepare, home, directory, topic_id)
        if created:
            checkpoints.forget(partition)
            await (
                checkpoints.save_soon()
            )  # what a deleted log of this name left there would cost this one its records
        found = await self._runtime.offload(tidy, home.files, directory)
        bases = found.bases
        segments = [
            Segment(home.files, directory, base, bases[at + 1] if at + 1 < len(bases) else base)
            for at, base in enumerate(bases)
        ]
        recovery = Recovery(home, segments, config, listener)
        start = checkpoints.log_starts.get(partition, 0)
        recovery_point = checkpoints.recovery_points.get(partition, 0)
        recover_from = len(segments) if clean else _first_to_recover(segments, recovery_point)
        for at, segment in enumerate(segments[:recover_from]):
            if segment.base_offset in found.unindexed:
                await recovery.rebuild(at)
        await recovery.recover(recover_from)
        if not segments:
            segments.append(Segment(home.files, directory, start, start))
            segments[0].create()
        flushed = _ALL if created or clean else recovery_point
        listed = SegmentList(home, directory, segments)

        def make() -> LocalLog:
            return LocalLog(
                home,
                partition,
                listed,
                config,
                listener,
                log_start_offset=start,
                flushed_end_offset=flushed,
                names_unsynced=created or not clean,
                truncating=self._truncating,
                closed=self._log_closed,
                cleaned_end_offset=checkpoints.cleaner_offsets.get(partition, 0),
                cleaned=self._log_cleaned,
            )

        try:
            log = make()
        except OSError as error:
            if not clean:
                raise
            home.events.warning("log not as it was closed, recovering", log=directory, error=str(error))
            await recovery.recover(len(segments) - 1)
            log = make()
        if log.log_start_offset > log.written_end_offset:
            log.truncate_fully(log.log_start_offset)
        self._open[partition] = log
        self._found[partition] = topic_id
        return log

    def _log_closed(self, log: LogState) -> None:
        self._open.pop(log.partition, None)
        self._note_offsets(log)
        if log.clean:
            self._clean[log.partition] = None
        else:
            self._all_clean = False

    def _note_offsets(self, log: LogState) -> None:
        self._known.recovery_points[log.partition] = log.recovery_point
        self._known.log_starts[log.partition] = log.log_start_offset

    def _log_cleaned(self, log: LogState) -> None:
        self._known.cleaner_offsets[log.partition] = log.cleaned_end_offset
        self._known.save_soon()

    def _truncating(self, log: LogState, offset: int) -> None:
        """What is written anew from ``offset`` on will not be flushed: say so before it is."""
        recovery_points = self._known.recovery_points
        if recovery_points.get(log.partition, 0) > offset:
            recovery_points[log.partition] = offset
            self._known.save_recovery_points()

    @property
    def _known(self) -> Checkpoints:
        if self._checkpoints is None:
            raise OSError(errno.EBADF, "the storage was not started", self._home.path)
        return self._checkpoints

    def delete_log(self, partition: TopicPartition) -> None:
        """Rename the directory at once, remove it later."""
        home = self._home
        log = self._open.get(partition)
        delay_ms = self._delete_delay_ms if log is None else log.config.file_delete_delay_ms
        if log is not None:
            was_clean = self._all_clean
            log.discard()
            self._all_clean = was_clean
        self._found.pop(partition, None)
        self._clean.pop(partition, None)
        self._known.forget(partition)
        directory = f"{home.path}/{partition_dir(partition)}"
        if home.files.exists(directory):
            home.check()
            marked = marked_partition_dir(partition, DirState.DELETE, self._runtime.new_uuid())
            home.files.rename(directory, f"{home.path}/{marked}")
            home.remove_later([f"{home.path}/{marked}"], delay_ms, trees=True)

    # Checkpoints

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """High watermarks as of the last checkpoint."""
        return dict(self._known.high_watermarks)

    def checkpoint(self, high_watermarks: Sequence[tuple[TopicPartition, int]]) -> None:
        """Recovery points are durable when this returns; log starts and high watermarks soon."""
        self._home.check()
        for log in self._open.values():
            self._note_offsets(log)
        self._known.high_watermarks = dict(high_watermarks)
        self._known.save_soon()

    # Stop

    async def stop(self, broker_epoch: int) -> None:
        """Close every log; if all went well, leave the clean-shutdown file."""
        if not self._started:
            return
        self._started = False
        home = self._home
        home.close()
        try:
            for log in list(self._open.values()):
                try:
                    log.close()
                except OSError as error:
                    home.events.error("log not closed", log=log.directory, error=str(error))
            await self._known.save_all()
            # A log that nobody opened since a crash is not recovered yet: the next start must still do it.
            if self._all_clean and all(partition in self._clean for partition in self._found):
                await self._runtime.offload(leave_clean_shutdown, home, broker_epoch)
        finally:
            self._unlock()


def _nothing() -> None:
    return None


def _prepare(home: LogDirectory, directory: str, topic_id: bytes) -> bool:
    """Make the log's directory, or check that it is this topic's; whether it was made. Blocks."""
    created = not home.files.exists(directory)
    if created:
        home.files.make_dirs(directory)
    held = NO_TOPIC_ID if created else read_topic_id(home, directory)
    if held == NO_TOPIC_ID:
        home.files.write_atomically(f"{directory}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))
    elif held != topic_id:
        raise ValueError(f"{directory} holds the topic with the id {held.hex()}, not {topic_id.hex()}")
    return created


def _first_to_recover(segments: list[Segment], recovery_point: int) -> int:
    """The first segment that may hold what was not flushed; the active one is always walked: its indexes grow."""
    for at, segment in enumerate(segments):
        if at == len(segments) - 1 or segment.next_offset > recovery_point:
            return at
    return 0
