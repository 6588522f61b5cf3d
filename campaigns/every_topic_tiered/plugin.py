"""The plug-in ``every_topic_tiered``: ``storage_tiered``, for which every topic that may be tiered is.

Kafka has no default for ``remote.storage.enable``, and a suite makes its own topics. So the storage sees another
configuration than the controller and the clients: tiering is on, and segments are small. DescribeConfigs shows the
topic's own. When the node stops, it writes what was copied and read back (``Tiered``).
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec

from blumfeld.config.values import TopicConfig
from blumfeld.spi.hooks import Composition, hookimpl
from blumfeld.spi.internal_topics import is_internal
from blumfeld.spi.storage import LogListener, LogStorage, PartitionLog, TopicPartition
from blumfeld.spi.tiering import tiered
from blumfeld_storage_tiered.catalog.counts import Counts, TopicCounts
from blumfeld_storage_tiered.options import Options as TieredOptions
from blumfeld_storage_tiered.plugin import Plugin as TieredPlugin

METADATA_TOPIC = "__remote_log_metadata"
RESULT_FILE = "every-topic-tiered.json"


class Tiered(msgspec.Struct, kw_only=True):
    """The work of one node from its start to its stop, deleted topics included."""

    copied_segments: int = 0
    copied_bytes: int = 0
    copy_errors: int = 0
    remote_reads: int = 0
    remote_bytes: int = 0
    """Bytes that readers got from the store or its cache."""
    remote_read_errors: int = 0
    deleted_segments: int = 0
    delete_errors: int = 0
    partitions: int = 0
    """Replicas of tiered partitions."""
    partly_remote: int = 0
    """Those of them whose local part began later than the log, when the topic was deleted or the node stopped."""

    def add(self, other: Tiered) -> None:
        """Add the work of another node."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Options(TieredOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Those of ``storage_tiered``, and the segments' size."""

    segment_bytes: int
    """The segment size of every tiered topic, whatever its configuration says. A larger batch fills a segment alone."""


class Plugin(TieredPlugin):
    """Tiered storage without a topic that isn't tiered."""

    options_class: type[TieredOptions] = Options

    def __init__(self) -> None:
        super().__init__()
        self._storage: EveryTopicTiered | None = None

    @hookimpl
    def blumfeld_make_storage(self, composition: Composition) -> LogStorage:
        """As ``storage_tiered``."""
        inner = super().blumfeld_make_storage(composition)
        options = composition.options
        assert self._made is not None
        assert isinstance(options, Options)
        self._storage = EveryTopicTiered(inner, self._made.counts, options.segment_bytes)
        self._result = Path(composition.data_dir) / RESULT_FILE
        return self._storage

    @hookimpl
    def blumfeld_node_stopping(self, composition: Composition) -> None:
        """Write the result, then work no more."""
        if self._storage is not None:
            self._result.write_bytes(msgspec.json.encode(self._storage.result()))
        super().blumfeld_node_stopping(composition)


class EveryTopicTiered:
    """A storage that tiers, and is told that each topic wants it."""

    def __init__(self, inner: Any, counts: Counts, segment_bytes: int) -> None:
        self._inner = inner
        self._counts = counts
        self._segment_bytes = segment_bytes
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._by_topic: dict[TopicCounts, None] = {}
        """Kept here, for a topic's counters are dropped when it is deleted."""
        self._ended = Tiered()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def open_log(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        listener: LogListener,
        *,
        directory_id: bytes | None = None,
    ) -> PartitionLog:
        """As the inner storage, with tiering on."""
        config = self._tiered(partition.topic, config)
        log = await self._inner.open_log(partition, topic_id, config, listener, directory_id=directory_id)
        return self._seen(partition, log)

    def log_with(self, partition: TopicPartition, log: PartitionLog, config: TopicConfig) -> PartitionLog:
        """As the inner storage, with tiering on."""
        used = self._inner.log_with(partition, log, self._tiered(partition.topic, config))
        return self._seen(partition, used)

    def delete_log(self, partition: TopicPartition) -> None:
        """As the inner storage."""
        log = self._logs.pop(partition, None)
        if log is not None:
            _count(self._ended, log)
        self._inner.delete_log(partition)

    def result(self) -> Tiered:
        """Return the work so far."""
        result = copy.copy(self._ended)
        for log in self._logs.values():
            _count(result, log)
        for counts in self._by_topic:
            result.copied_segments += counts.copies
            result.copied_bytes += counts.copied_bytes
            result.copy_errors += counts.copy_errors
            result.remote_reads += counts.fetches
            result.remote_bytes += counts.fetched_bytes
            result.remote_read_errors += counts.fetch_errors
            result.deleted_segments += counts.deletes
            result.delete_errors += counts.delete_errors
        return result

    def _tiered(self, topic: str, config: TopicConfig) -> TopicConfig:
        if is_internal(topic) or topic == METADATA_TOPIC or config.compacts:
            return config
        changed = copy.copy(config)
        changed.remote_storage_enable = True
        changed.segment_bytes = self._segment_bytes
        return changed

    def _seen(self, partition: TopicPartition, log: PartitionLog) -> PartitionLog:
        if tiered(log) is not None:
            self._logs[partition] = log
            self._by_topic[self._counts.of(partition.topic)] = None
        return log


def _count(result: Tiered, log: PartitionLog) -> None:
    part = tiered(log)
    if part is not None:
        result.partitions += 1
        result.partly_remote += part.local_log_start_offset > part.log_start_offset
