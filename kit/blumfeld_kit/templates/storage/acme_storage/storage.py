"""The logs of a node, in memory until you write them down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from blumfeld.config.values import TopicConfig
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.storage import (
    InconsistentTopicIdError,
    LogDirInfo,
    LogListener,
    PartitionLog,
    TopicPartition,
)

from .log import AcmeStorageLog


class AcmeStorage:
    """``LastingStorage``. All its files belong into ``directory``; it uses them through ``runtime.files``."""

    compacts = False
    log_class = AcmeStorageLog

    def __init__(self, runtime: Runtime, directory: str) -> None:
        self._runtime = runtime
        self._directory = directory
        self._directory_id = runtime.new_uuid()
        self._logs: dict[TopicPartition, tuple[bytes, AcmeStorageLog]] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}

    def promise(self) -> str:
        """Say what an ack means. It stands in ``blumfeld plan``."""
        return "memory: gone with the process"

    async def start(self, cluster_id: str, node_id: int) -> None:
        """WRITE HERE: the lock, meta.properties, the last checkpoint, the logs that there are."""

    def log_dirs(self) -> Sequence[LogDirInfo]:
        """Return the one directory."""
        return [LogDirInfo(path=self._directory, directory_id=self._directory_id, online=True)]

    def partitions(self) -> Sequence[tuple[TopicPartition, bytes]]:
        """WRITE HERE: every log that the start found, with its topic id."""
        return []

    async def open_log(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        listener: LogListener,
        *,
        directory_id: bytes | None = None,
    ) -> PartitionLog:
        """Return the log as it was closed, or a new one. WRITE HERE: or the one that lies in the directory.

        It is recovered unless the last stop was clean: ``listener.recovered`` is told of each batch then.
        """
        if partition not in self._logs:
            self._logs[partition] = topic_id, AcmeStorageLog(self._directory_id)
        held_id, log = self._logs[partition]
        if held_id != topic_id:
            raise InconsistentTopicIdError(
                f"{partition} is of the topic {held_id.hex()}, not {topic_id.hex()}"
            )
        return log

    def delete_log(self, partition: TopicPartition) -> None:
        """Forget the log. WRITE HERE: and its files."""
        self._logs.pop(partition, None)

    def set_aside_log(self, partition: TopicPartition) -> None:
        """WRITE HERE: rename the files of a log that the start found and no topic has. An open one: ``ValueError``."""

    def checkpoint(self, high_watermarks: Iterable[tuple[TopicPartition, int]]) -> None:
        """Remember the high watermarks. WRITE HERE: in a file."""
        self._high_watermarks = dict(high_watermarks)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Return those of the last checkpoint."""
        return dict(self._high_watermarks)

    def previous_broker_epoch(self) -> int:
        """Return -1: the last stop wasn't clean. WRITE HERE: the number of :meth:`stop`, once, if it was."""
        return -1

    async def stop(self, broker_epoch: int) -> None:
        """WRITE HERE: close every log, checkpoint, keep ``broker_epoch``, let the lock go. Legal without start."""
