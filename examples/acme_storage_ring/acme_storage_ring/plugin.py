"""What the entry point names: the plug-in, its options, and the storage that it makes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from acme_storage_ring.ring_log import RingLog
from blumfeld.config.values import TopicConfig
from blumfeld.spi.hooks import Composition, hookimpl
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.storage import (
    InconsistentTopicIdError,
    LogDirInfo,
    LogListener,
    LogStorage,
    PartitionLog,
    TopicPartition,
)

INTERNAL_PREFIX = "__"
"""Topics that hold the broker's own state; they never lose their oldest records here."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[storage.options]``."""

    bytes_per_partition_max: Annotated[int, msgspec.Meta(ge=1024)] = 64 << 20


class RingStorage:
    """``LogStorage`` in memory: one :class:`RingLog` for each partition."""

    compacts = False
    log_class = RingLog

    def __init__(self, runtime: Runtime, options: Options) -> None:
        self._runtime = runtime
        self._options = options
        self._directory_id = runtime.new_uuid()
        self._logs: dict[TopicPartition, tuple[bytes, RingLog]] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}

    def promise(self) -> str:
        """What an ack means on it."""
        limit = self._options.bytes_per_partition_max
        return f"memory: the newest {limit} bytes of each partition, gone with the process"

    async def start(self, cluster_id: str, node_id: int) -> None:
        """Nothing to take: memory is ours alone."""

    def log_dirs(self) -> Sequence[LogDirInfo]:
        """One, which stands for the memory."""
        return [LogDirInfo(path="memory ring", directory_id=self._directory_id, online=True)]

    def partitions(self) -> Sequence[tuple[TopicPartition, bytes]]:
        """Nothing is ever found at start."""
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
        """The log as it was closed, or a new one."""
        if partition not in self._logs:
            is_internal = partition.topic.startswith(INTERNAL_PREFIX)
            bytes_max = None if is_internal else self._options.bytes_per_partition_max
            self._logs[partition] = (
                topic_id,
                RingLog(self._runtime, self._directory_id, bytes_max, config, listener),
            )
        held, log = self._logs[partition]
        if held != topic_id:
            raise InconsistentTopicIdError(
                f"the log of {partition} is of the topic {held.hex()}, not {topic_id.hex()}"
            )
        log.reopen(config, listener)
        return log

    def delete_log(self, partition: TopicPartition) -> None:
        """Forget it."""
        self._logs.pop(partition, None)

    def set_aside_log(self, partition: TopicPartition) -> None:
        """None was found at the start."""

    def checkpoint(self, high_watermarks: Iterable[tuple[TopicPartition, int]]) -> None:
        """Remember the high watermarks, as far as memory goes."""
        self._high_watermarks = dict(high_watermarks)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """As of the last checkpoint."""
        return dict(self._high_watermarks)

    def previous_broker_epoch(self) -> int:
        """There never was a broker before."""
        return -1

    async def stop(self, broker_epoch: int) -> None:
        """Nothing to write."""


class Plugin:
    """Named ``storage_ring`` in a manifest."""

    options_class = Options
    roles = ("storage",)
    requires_spi = "1.0"

    @hookimpl
    def blumfeld_make_storage(self, composition: Composition) -> LogStorage:
        """One storage for each node."""
        return RingStorage(composition.runtime, composition.options)
