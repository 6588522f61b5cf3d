"""The storage: a directory for each partition, a lock, ``meta.properties``, a checkpoint, and the mark of a clean stop.

meta.properties                 whose directory it is: the kernel reads it before the storage starts
.lock                           held while it runs
checkpoint                      high watermarks and log starts
clean                           the broker epoch of a clean stop; gone while the storage runs
<topic id>-<partition>/         topic, head, records.<generation>, aux.<name>
deleted.… stray.…               on their way out, or set aside for a person
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from acme_storage_flat.file_log import FlatLog
from blumfeld.config.values import TopicConfig
from blumfeld.log.checkpoints import (
    META_PROPERTIES,
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.storage import (
    LACKS,
    InconsistentTopicIdError,
    LogDirInfo,
    LogListener,
    PartitionLog,
    TopicPartition,
)

CHECKPOINT, CLEAN, LOCK, TOPIC = "checkpoint", "clean", ".lock", "topic"
_LOG = re.compile(r"([0-9a-f]{32})-(\d+)")


class FlatStorage:
    """``LastingStorage`` in one directory."""

    compacts = False
    log_class = FlatLog

    def __init__(self, runtime: Runtime, directory: str) -> None:
        self.runtime = runtime
        self.directory_id = bytes(16)
        self._path = directory
        self._files = runtime.files
        self._failure: OSError | None = None
        self._release: Callable[[], None] = _nothing
        self._started = self._was_clean = False
        self._previous_epoch = -1
        self._topic_ids: dict[TopicPartition, bytes] = {}
        self._found: dict[TopicPartition, bytes] = {}
        self._open: dict[TopicPartition, FlatLog] = {}
        self._clean_logs: set[TopicPartition] = set()
        """Logs of which nothing was written since they were known to be whole."""
        self._starts: dict[str, int] = {}
        self._marks: dict[TopicPartition, int] = {}
        self._saving = self._save_again = False
        self._forgotten: set[str] = set()
        """Names of logs that were dropped, and whose start the checkpoint on the disk may still have."""
        self._waits_for_save: list[Completion[None]] = []

    # The directory, for its logs

    def check(self) -> None:
        """Raise what the directory failed with, once it has."""
        if self._failure is not None:
            raise OSError(self._failure.errno or errno.EIO, f"offline: {self._failure.strerror}", self._path)

    def fail(self, error: OSError) -> None:
        """Offline until the next start."""
        if self._failure is None:
            self._failure = OSError(error.errno or errno.EIO, error.strerror or str(error), self._path)

    def _fail_unless_lacking(self, error: OSError) -> None:
        """For work that can be done again: a full disk is no bad one."""
        if error.errno not in LACKS:
            self.fail(error)

    # Life

    def promise(self) -> str:
        """What an ack means on it."""
        return "page cache: survives a kill, not a power cut; flush.messages=1 syncs each write"

    async def start(self, cluster_id: str, node_id: int) -> None:
        """Take the lock first: nothing is read of a directory that another process writes."""
        await self.runtime.offload(self._start, cluster_id, node_id)
        self._started = True

    def _start(self, cluster_id: str, node_id: int) -> None:
        files, path = self._files, self._path
        files.make_dirs(path)
        files.sync_dir(path.rpartition("/")[0] or "/")
        release = files.lock(f"{path}/{LOCK}")
        try:
            self._take(cluster_id, node_id)
            if files.exists(f"{path}/{CLEAN}"):
                self._previous_epoch = int(files.read_bytes(f"{path}/{CLEAN}"))
                self._was_clean = True
                files.unlink(f"{path}/{CLEAN}")
            self._read_checkpoint()
            self._find_logs()
            # The mark is gone for good before anything is written, or a crash would look like a clean stop; and a log
            # that was found has its name for good, whenever the process before died.
            files.sync_dir(path)
        except BaseException:
            release()
            raise
        self._release = release

    def _take(self, cluster_id: str, node_id: int) -> None:
        path = f"{self._path}/{META_PROPERTIES}"
        if self._files.exists(path):
            meta = decode_meta_properties(self._files.read_bytes(path), path)
            if (meta.cluster_id, meta.node_id) != (cluster_id, node_id):
                raise ValueError(
                    f"{self._path}: the directory is of node {meta.node_id} of cluster {meta.cluster_id}, "
                    f"not of node {node_id} of {cluster_id}"
                )
        else:
            meta = MetaProperties(
                cluster_id=cluster_id, node_id=node_id, directory_id=self.runtime.new_uuid()
            )
            self._files.write_atomically(path, encode_meta_properties(meta))
        self.directory_id = meta.directory_id

    def _find_logs(self) -> None:
        for name in self._files.list_dir(self._path):
            path = f"{self._path}/{name}"
            match = _LOG.fullmatch(name)
            if name.startswith("deleted."):
                self._files.remove_tree(path)
            elif match and self._files.exists(f"{path}/{TOPIC}"):
                topic = self._files.read_bytes(f"{path}/{TOPIC}").decode()
                self._found[TopicPartition(topic, int(match[2]))] = bytes.fromhex(match[1])
            elif match:
                self._files.remove_tree(path)  # a crash came before it had its name: it holds nothing
        self._topic_ids = dict(self._found)
        if self._was_clean:
            self._clean_logs = set(self._found)

    async def stop(self, broker_epoch: int) -> None:
        """Close every log, then say that all is whole."""
        if not self._started:
            return
        self._started = False
        try:
            for log in list(self._open.values()):
                if self._failure is None:
                    await log.flush()  # a log that is closed while a sync runs isn't known to be clean
                    log.close()
            if self._failure is None:
                self._files.write_atomically(f"{self._path}/{CHECKPOINT}", self._checkpoint_data())
                if self._topic_ids.keys() <= self._clean_logs:
                    self._files.write_atomically(f"{self._path}/{CLEAN}", b"%d" % broker_epoch)
        finally:
            self._release()

    def log_dirs(self) -> Sequence[LogDirInfo]:
        """The one."""
        total = usable = -1
        if self._failure is None:
            with suppress(OSError):
                total, usable = self._files.space(self._path)
        online = self._failure is None
        return [
            LogDirInfo(
                path=self._path,
                directory_id=self.directory_id,
                online=online,
                total_bytes=total,
                usable_bytes=usable,
            )
        ]

    def partitions(self) -> Sequence[tuple[TopicPartition, bytes]]:
        """What was found at the start."""
        return list(self._found.items())

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
        """Open or create; a log that was not stopped cleanly is read through, by a worker."""
        self.check()
        held = self._topic_ids.get(partition, topic_id)
        if held != topic_id:
            raise InconsistentTopicIdError(
                f"the log of {partition} is of the topic {held.hex()}, not {topic_id.hex()}"
            )
        name = _name(partition, topic_id)
        log = FlatLog(self, f"{self._path}/{name}", config, listener)
        is_new = partition not in self._topic_ids
        clean = is_new or partition in self._clean_logs
        try:
            if is_new and name in self._forgotten:
                # A power cut would give the new log the start of its namesake, and hide records that were flushed.
                await self._saved()
                self.check()
                self._forgotten.discard(name)
            if is_new:
                await self.runtime.offload(self._make_directory, partition.topic, log.path)
            await self.runtime.offload(lambda: log.scan(self._starts.get(name, 0), clean=clean))
        except OSError as error:
            raise OSError(error.errno or errno.EIO, error.strerror or str(error), log.path) from error
        self._topic_ids[partition] = topic_id
        self._clean_logs.discard(partition)
        self._open[partition] = log
        return log.opened()

    def closed(self, log: FlatLog, *, clean: bool) -> None:
        """The next opening of a clean log needs no recovery, if nothing kills the process first."""
        for partition in [place for place, held in self._open.items() if held is log]:
            self._starts[_name(partition, self._topic_ids[partition])] = log.log_start_offset
            if clean:
                self._clean_logs.add(partition)
            del self._open[partition]

    def _make_directory(self, topic: str, path: str) -> None:
        files = self._files
        files.sync_dir(
            self._path
        )  # the name of a log that was deleted is gone for good before it is used again
        files.make_dirs(path)
        files.write_atomically(f"{path}/{TOPIC}", topic.encode())
        files.sync_dir(self._path)

    def _forget(self, partition: TopicPartition) -> str | None:
        """The path of the log, if there is one; it is nobody's from now on."""
        topic_id = self._topic_ids.get(partition)
        if topic_id is None:
            return None
        name = _name(partition, topic_id)
        return f"{self._path}/{name}"

    def delete_log(self, partition: TopicPartition) -> None:
        """Rename it now, remove it later."""
        path = self._forget(partition)
        if path is None:
            return
        if (log := self._open.get(partition)) is not None:
            log.discard()
        self.check()
        gone = f"{self._path}/deleted.{self.runtime.new_uuid().hex()}"
        self._files.rename(path, gone)
        self._drop(partition)
        self.runtime.call_later(60_000, lambda: self._remove_later(gone))

    def _remove_later(self, path: str) -> None:
        async def remove() -> None:
            try:
                await self.runtime.offload(self._files.remove_tree, path)
            except OSError as error:
                self._fail_unless_lacking(error)  # the next start removes it

        if self._started:
            self.runtime.spawn(remove(), "remove a deleted log")

    def set_aside_log(self, partition: TopicPartition) -> None:
        """Keep its files under another name."""
        path = self._forget(partition)
        if path is None:
            return
        if partition in self._open:
            raise ValueError(f"{partition} is open")
        stray = f"{self._path}/stray.{path.rpartition('/')[2]}.{self.runtime.new_uuid().hex()}"
        self._files.rename(path, stray)
        self._files.sync_dir(self._path)
        self._drop(partition)

    def _drop(self, partition: TopicPartition) -> None:
        name = _name(partition, self._topic_ids.pop(partition))
        self._starts.pop(name, None)
        self._forgotten.add(name)
        for known in (self._found, self._open, self._marks):
            known.pop(partition, None)
        self._clean_logs.discard(partition)

    # Checkpoint

    def checkpoint(self, high_watermarks: Iterable[tuple[TopicPartition, int]]) -> None:
        """Take them down now, write them off the loop; one write at a time."""
        self._marks = dict(high_watermarks)
        if self._saving:
            self._save_again = True
            return
        self._saving = True
        self.runtime.spawn(self._save(), "checkpoint")

    def _saved(self) -> Completion[None]:
        """Completes when a checkpoint that was taken down from now on is written; fails with what hinders it."""
        waiting: Completion[None] = Completion()
        self._waits_for_save.append(waiting)
        self.checkpoint(list(self._marks.items()))
        return waiting

    async def _save(self) -> None:
        served: list[Completion[None]] = []
        failure: OSError | None = None
        try:
            again = True
            while again and self._started:
                self._save_again = False
                served += self._waits_for_save
                self._waits_for_save = []
                for log in list(self._open.values()):
                    if log.log_start_offset > log.flushed_end_offset:
                        await log.flush()  # a start beyond the end that a power cut leaves would be a hole
                path = f"{self._path}/{CHECKPOINT}"
                await self.runtime.offload(self._files.write_atomically, path, self._checkpoint_data())
                again = self._save_again
        except OSError as error:
            failure = error
            self._fail_unless_lacking(error)  # else the next checkpoint tries again
        finally:
            self._saving = False
            served, self._waits_for_save = [*served, *self._waits_for_save], []
            for waiting in served:
                if failure is None:
                    waiting.complete(None)
                else:
                    waiting.fail(failure)

    def _checkpoint_data(self) -> bytes:
        for partition, log in self._open.items():
            self._starts[_name(partition, self._topic_ids[partition])] = log.log_start_offset
        starts = (f"start {name} {offset}" for name, offset in self._starts.items())
        marks = (f"mark {place.topic} {place.partition} {offset}" for place, offset in self._marks.items())
        return "\n".join([*starts, *marks, ""]).encode()

    def _read_checkpoint(self) -> None:
        path = f"{self._path}/{CHECKPOINT}"
        for line in self._files.read_bytes(path).decode().splitlines() if self._files.exists(path) else ():
            word, *values = line.split()
            if word == "start":
                self._starts[values[0]] = int(values[1])
            else:
                self._marks[TopicPartition(values[0], int(values[1]))] = int(values[2])

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """As of the last checkpoint."""
        return dict(self._marks)

    def previous_broker_epoch(self) -> int:
        """The broker epoch of the clean stop that the start found, or -1."""
        return self._previous_epoch


def _nothing() -> None:
    """There is no lock to release."""


def _name(partition: TopicPartition, topic_id: bytes) -> str:
    return f"{topic_id.hex()}-{partition.partition}"
