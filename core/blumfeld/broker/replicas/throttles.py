"""Throttled replication on this node (KIP-73): the quotas of its leaders and of its followers, and the replicas that
they hold for."""

from __future__ import annotations

from blumfeld.config.throttled_replicas import is_throttled
from blumfeld.config.values import BrokerConfig, TopicConfig
from blumfeld.spi.replication_quota import ReplicationQuota
from blumfeld.spi.storage import TopicPartition


class Throttles:
    """Both quotas. The rates follow the broker's configuration; the samples are those of the start, as in Kafka."""

    def __init__(self, config: BrokerConfig, node_id: int) -> None:
        samples = config.int("replication.quota.window.num")
        sample_ms = config.int("replication.quota.window.size.seconds") * 1000
        self._node_id = node_id
        self._leaders = ReplicationQuota(samples, sample_ms)
        self._followers = ReplicationQuota(samples, sample_ms)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Use other rates from the next transfer on."""
        self._leaders.bytes_per_s_max = config.int("leader.replication.throttled.rate")
        self._followers.bytes_per_s_max = config.int("follower.replication.throttled.rate")

    def of_leader(self, partition: TopicPartition, config: TopicConfig) -> ReplicationQuota | None:
        """Returns the quota for what this node sends to followers of a partition; ``None`` if it isn't throttled."""
        replicas = config.leader_replication_throttled_replicas
        throttled = replicas and is_throttled(replicas, partition.partition, self._node_id)
        return self._leaders if throttled else None

    def of_follower(self, partition: TopicPartition, config: TopicConfig) -> ReplicationQuota | None:
        """Returns the quota for what this node fetches of a partition; ``None`` if it isn't throttled."""
        replicas = config.follower_replication_throttled_replicas
        throttled = replicas and is_throttled(replicas, partition.partition, self._node_id)
        return self._followers if throttled else None
