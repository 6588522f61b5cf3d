"""One log directory of a node, laid out as Kafka's: opened, checkpointed, closed."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.log.checkpoints import LOCK, NO_BROKER_EPOCH, PARTITION_METADATA, encode_partition_metadata
from blumfeld.log.file_names import DirState, marked_partition_dir, partition_dir
from blumfeld.spi.completion import Completion
from blumfeld.spi.config import TopicConfig
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.storage import LogDirInfo, LogListener, PartitionLog, TopicPartition
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.opening import Recovery, tidy
from blumfeld_storage_local.partition_log import LocalLog
from blumfeld_storage_local.segment import Segment
from blumfeld_storage_local.segment_list import SegmentList
from blumfeld_storage_local.small_files import (
    CHECKPOINTS,
    NO_TOPIC_ID,
    Offsets,
    claim,
    encode_sorted,
    find_logs,
    leave_clean_shutdown,
    read_offsets,
    read_topic_id,
    take_clean_shutdown,
)

_ALL = 1 << 62
"""A flushed end beyond every log: all of it is flushed."""


class LocalStorage:
    """``LogStorage`` in one directory.

    :param delete_delay_ms: how long a deleted log's files stay that was not open (``log.segment.delete.delay.ms``)
    """

    def __init__(
        self, runtime: Runtime, path: str, events: EventLog, *, delete_delay_ms: int = 60_000
    ) -> None:
        self._runtime = runtime
        self._home = LogDirectory(runtime, path, events)
        self._delete_delay_ms = delete_delay_ms
        self._started = False
        self._unlock = _nothing
        self._directory_id = bytes(16)
        self._broker_epoch = NO_BROKER_EPOCH
        self._found: dict[TopicPartition, bytes] = {}
        self._clean: dict[TopicPartition, None] = {}
        """Logs that are known to be closed cleanly, and were not opened since."""
        self._open: dict[TopicPartition, LocalLog] = {}
        self._recovery_points: Offsets = {}
        self._log_starts: Offsets = {}
        self._high_watermarks: Offsets = {}
        self._written: dict[str, bytes] = {}
        """What each checkpoint file holds."""
        self._checkpoint: Completion[None] | None = None
        self._all_clean = True

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
            self._directory_id = claim(self._runtime, home.path, cluster_id, node_id)
            broker_epoch = take_clean_shutdown(home)
            self._found, deleted = find_logs(home)
            self._recovery_points, self._log_starts, self._high_watermarks = (
                read_offsets(home, name) for name in CHECKPOINTS
            )
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
        return [LogDirInfo(path=home.path, directory_id=self._directory_id, online=home.error is None)]

    def partitions(self) -> Sequence[tuple[TopicPartition, bytes]]:
        """Every log found at start; the topic id is zero where a crash left none."""
        return list(self._found.items())

    def previous_broker_epoch(self) -> int:
        """The broker epoch in the clean-shutdown file that was found at start, or -1."""
        return self._broker_epoch

    # Logs

    async def open_log(
        self, partition: TopicPartition, topic_id: bytes, config: TopicConfig, listener: LogListener
    ) -> PartitionLog:
        """Open, or create, the log of one partition; recover it if the last stop was not clean."""
        home = self._home
        home.check()
        if partition in self._open:
            raise ValueError(f"the log of {partition} is open")
        directory = f"{home.path}/{partition_dir(partition)}"
        clean = partition in self._clean
        self._clean.pop(partition, None)
        created = await self._runtime.offload(_prepare, home, directory, topic_id)
        found = await self._runtime.offload(tidy, home.files, directory)
        bases = found.bases
        segments = [
            Segment(home.files, directory, base, bases[at + 1] if at + 1 < len(bases) else base)
            for at, base in enumerate(bases)
        ]
        recovery = Recovery(home, segments, config, listener)
        start = self._log_starts.get(partition, 0)
        recovery_point = self._recovery_points.get(partition, 0)
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
                closed=self._log_closed,
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

    def _log_closed(self, log: LocalLog) -> None:
        self._open.pop(log.partition, None)
        self._note_offsets(log)
        if log.clean:
            self._clean[log.partition] = None
        else:
            self._all_clean = False

    def _note_offsets(self, log: LocalLog) -> None:
        self._recovery_points[log.partition] = log.flushed_end_offset
        self._log_starts[log.partition] = log.log_start_offset

    def delete_log(self, partition: TopicPartition) -> None:
        """Rename the directory at once, remove it later."""
        home = self._home
        log = self._open.get(partition)
        delay_ms = self._delete_delay_ms if log is None else log.config.file_delete_delay_ms
        if log is not None:
            was_clean = self._all_clean
            log.discard()
            self._all_clean = was_clean
        for known in (
            self._found,
            self._clean,
            self._recovery_points,
            self._log_starts,
            self._high_watermarks,
        ):
            known.pop(partition, None)
        directory = f"{home.path}/{partition_dir(partition)}"
        if home.files.exists(directory):
            home.check()
            marked = marked_partition_dir(partition, DirState.DELETE, self._runtime.new_uuid())
            home.files.rename(directory, f"{home.path}/{marked}")
            home.remove_later([f"{home.path}/{marked}"], delay_ms, trees=True)

    # Checkpoints

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """High watermarks as of the last checkpoint."""
        return dict(self._high_watermarks)

    def checkpoint(self, high_watermarks: Sequence[tuple[TopicPartition, int]]) -> None:
        """Note recovery points, log starts and high watermarks; they are written off the loop, soon."""
        self._home.check()
        self._high_watermarks = dict(high_watermarks)
        if self._checkpoint is None:
            self._checkpoint = Completion()
            self._runtime.spawn(self._write_checkpoints(self._checkpoint), "checkpoint")

    async def _write_checkpoints(self, ended: Completion[None]) -> None:
        try:
            while changed := self._changed_checkpoints():
                await self._runtime.offload(_write_files, self._home, changed)
                self._written.update(changed)
        except OSError as error:
            self._home.fail(error)
        finally:
            self._checkpoint = None
            ended.complete(None)

    def _changed_checkpoints(self) -> dict[str, bytes]:
        for log in self._open.values():
            self._note_offsets(log)
        offsets = (self._recovery_points, self._log_starts, self._high_watermarks)
        files = {name: encode_sorted(of) for name, of in zip(CHECKPOINTS, offsets, strict=True)}
        return {name: data for name, data in files.items() if self._written.get(name) != data}

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
            if self._checkpoint is not None:
                await self._checkpoint
            home.check()
            await self._runtime.offload(_write_files, home, self._changed_checkpoints())
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
    if created:
        home.files.sync_dir(home.path)
    return created


def _first_to_recover(segments: list[Segment], recovery_point: int) -> int:
    """The first segment that may hold what was not flushed; the active one is always walked: its indexes grow."""
    for at, segment in enumerate(segments):
        if at == len(segments) - 1 or segment.next_offset > recovery_point:
            return at
    return 0


def _write_files(home: LogDirectory, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        home.files.write_atomically(f"{home.path}/{name}", data)
