"""A coordinator on an internal topic: its shards follow the leadership of the topic's partitions.

Nothing here knows the coordinator's kind. Groups use it on ``__consumer_offsets``, transactions on
``__transaction_state``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blumfeld.broker.coordination.coordinator_log import PartitionCoordinatorLog
from blumfeld.broker.replicas.hosting.partition_manager import PartitionManager
from blumfeld.broker.replicas.partition import Partition
from blumfeld.coordinator.runtime.coordinator import Coordinator
from blumfeld.coordinator.runtime.shard_contract import Shard
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.compression.codec import Codec


class LedTopic:
    """Elects a shard where this node becomes the leader of a partition of ``topic``, and resigns it afterwards."""

    def __init__(
        self,
        topic: str,
        new_shard: Callable[[int], Shard],
        *,
        runtime: Runtime,
        events: EventLog,
        partitions: PartitionManager,
        image: Callable[[], ClusterImage],
        codec: Codec = Codec.NONE,
        perform: Callable[[int, int, Any], None] | None = None,
    ) -> None:
        """
        :param new_shard: makes the shard of a partition, by its index
        :param codec: compresses the batches that shards write
        :param perform: as of :class:`~blumfeld.coordinator.runtime.coordinator.Coordinator`
        """
        self._topic = topic
        self._runtime = runtime
        self._image = image
        self._codec = codec
        self._epochs: dict[int, int] = {}
        """Partition → the leader epoch in which its shard was built."""
        self.coordinator = Coordinator(runtime, events, new_shard, self._partition_count, perform)
        partitions.opened.append(self._changed)
        partitions.removed.append(self._removed)

    def _partition_count(self) -> int:
        topic = self._image().topics.get(self._topic)
        return 0 if topic is None else len(topic.partitions)

    def _changed(self, partition: Partition) -> None:
        if partition.partition.topic != self._topic:
            return
        index = partition.partition.partition
        if partition.leader is None:
            self._resign(index)
        elif self._epochs.get(index) != partition.leader_epoch:
            self._epochs[index] = partition.leader_epoch
            self.coordinator.elected(index, PartitionCoordinatorLog(partition, self._runtime, self._codec))

    def _removed(self, partition: TopicPartition, topic_id: bytes) -> None:
        if partition.topic == self._topic:
            self._resign(partition.partition)

    def _resign(self, index: int) -> None:
        if self._epochs.pop(index, None) is not None:
            self.coordinator.resigned(index)
