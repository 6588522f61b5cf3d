"""Throttled replication on this node (KIP-73): the quotas of its leaders and of its followers, and the replicas that
they hold for."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.config.throttled_replicas import is_throttled
from blumfeld.config.values import BrokerConfig, TopicConfig
from blumfeld.spi.hooks import Metric
from blumfeld.spi.replication_quota import ReplicationQuota
from blumfeld.spi.storage import TopicPartition

KNOWN_MAX = 20_000
"""Partitions that are remembered as throttled or not."""


class Throttles:
    """Both quotas. The rates follow the broker's configuration; the samples are those of the start, as in Kafka."""

    def __init__(self, config: BrokerConfig, node_id: int) -> None:
        samples = config.int("replication.quota.window.num")
        sample_ms = config.int("replication.quota.window.size.seconds") * 1000
        self._leaders = _Throttle(node_id, ReplicationQuota(samples, sample_ms))
        self._followers = _Throttle(node_id, ReplicationQuota(samples, sample_ms))

    def reconfigure(self, config: BrokerConfig) -> None:
        """Use other rates from the next transfer on."""
        self._leaders.quota.bytes_per_s_max = config.int("leader.replication.throttled.rate")
        self._followers.quota.bytes_per_s_max = config.int("follower.replication.throttled.rate")

    def gauges(self) -> list[Metric]:
        """Returns the metrics: bytes that counted for each quota."""
        leaders, followers = self._leaders.quota, self._followers.quota
        return [
            Metric(
                "blumfeld_throttled_replication_sent_bytes_total",
                "Bytes that went to followers of partitions whose leader is throttled",
                "counter",
                lambda: leaders.counted_bytes,
            ),
            Metric(
                "blumfeld_throttled_replication_fetched_bytes_total",
                "Bytes that this node fetched as a throttled follower",
                "counter",
                lambda: followers.counted_bytes,
            ),
        ]

    def of_leader(self, partition: TopicPartition, config: TopicConfig) -> ReplicationQuota | None:
        """Returns the quota for what this node sends to followers of a partition; ``None`` if it isn't throttled."""
        replicas = config.leader_replication_throttled_replicas
        return self._leaders.of(partition, replicas) if replicas else None

    def of_follower(self, partition: TopicPartition, config: TopicConfig) -> ReplicationQuota | None:
        """Returns the quota for what this node fetches of a partition; ``None`` if it isn't throttled."""
        replicas = config.follower_replication_throttled_replicas
        return self._followers.of(partition, replicas) if replicas else None


class _Throttle:
    """One quota, and the partitions that it holds for."""

    def __init__(self, node_id: int, quota: ReplicationQuota) -> None:
        self.quota = quota
        self._node_id = node_id
        self._known: dict[TopicPartition, tuple[Sequence[str], bool]] = {}
        """Topic's list and outcome. Each fetch of a partition asks, and the list of a large topic is long."""

    def of(self, partition: TopicPartition, replicas: Sequence[str]) -> ReplicationQuota | None:
        known = self._known.get(partition)
        if known is None or known[0] is not replicas:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            known = (replicas, is_throttled(replicas, partition.partition, self._node_id))
            self._known[partition] = known
        return self.quota if known[1] else None
