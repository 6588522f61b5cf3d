"""The storage of a node: a local one, and around the logs of tiered topics what lies in the remote store."""

from __future__ import annotations

from functools import partial
from typing import Any

from blumfeld.config.values import TopicConfig
from blumfeld.spi.storage import LogListener, LogStorage, PartitionLog, TopicPartition, segmented
from blumfeld_storage_tiered.catalog.segment import TopicIdPartition
from blumfeld_storage_tiered.logs.tiered_log import START_FILE, TieredLog
from blumfeld_storage_tiered.tasks.tiering import Tiering


class TieredStorage:
    """``TieringStorage`` around another storage. What it doesn't change is the inner storage's own, so it lasts and has
    several directories if that one does.
    """

    def __init__(self, local: LogStorage, tiering: Tiering) -> None:
        self._local = local
        self._tiering = tiering
        self._topic_ids: dict[TopicPartition, bytes] = {}
        """The topic ids of the logs that were opened."""
        self.compacts = local.compacts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

    def promise(self) -> str:
        """Return the local storage's promise: an ack never waits for the store."""
        return f"{self._local.promise()}; sealed segments of tiered topics are copied to {self._tiering.shown} later"

    async def start(self, cluster_id: str, node_id: int) -> None:
        """Check the store, then start the local storage.

        :raises OSError: the store can't be used, or the disk
        """
        await self._tiering.start(cluster_id)
        await self._local.start(cluster_id, node_id)
        try:
            # Only now is the directory locked: a second process by mistake must leave the cache of the first alone.
            await self._tiering.cache.start()
        except OSError:
            await self._local.stop(-1)
            raise

    async def stop(self, broker_epoch: int) -> None:
        """End the work for tiered logs, then stop the local storage."""
        await self._tiering.stop()
        await self._local.stop(broker_epoch)

    async def open_log(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        listener: LogListener,
        *,
        directory_id: bytes | None = None,
    ) -> PartitionLog:
        """Open the inner log, and put the remote part around it if the topic is tiered."""
        log = await self._local.open_log(partition, topic_id, config, listener, directory_id=directory_id)
        self._topic_ids[partition] = topic_id
        return self._tiered(partition, log, config) if config.remote_storage_enable else log

    def log_with(self, partition: TopicPartition, log: PartitionLog, config: TopicConfig) -> PartitionLog:
        """As ``TieringStorage.log_with``."""
        if not isinstance(log, TieredLog):
            log.reconfigure(config)
            if not config.remote_storage_enable:
                return log
            log.aux.delete(START_FILE)  # an earlier tiering's, whose remote part is gone
            return self._tiered(partition, log, config)
        log.reconfigure(config)
        if config.remote_storage_enable:
            return log
        log.leave()
        self._tiering.disabled(log.remote.partition)
        return log.local

    def delete_log(self, partition: TopicPartition) -> None:
        """Delete the local log. The leader deletes what the store has, when the topic is deleted."""
        self._tiering.closed(partition)
        self._topic_ids.pop(partition, None)
        self._local.delete_log(partition)

    def _tiered(self, partition: TopicPartition, log: PartitionLog, config: TopicConfig) -> PartitionLog:
        local = segmented(log)
        if local is None:
            return log  # it can copy nothing
        named = TopicIdPartition(self._topic_ids[partition], partition.partition, partition.topic)
        remote = self._tiering.remote_part(named, log.aux)
        tiered = TieredLog(local, remote, config, partial(self._tiering.closed, partition))
        self._tiering.opened(partition, tiered)
        return tiered
