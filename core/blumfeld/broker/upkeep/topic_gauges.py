"""Gauges of topics and replicas, as a Kafka operator looks for them. The path of a request only adds to the bytes of
its topic, and only in a node with a metrics endpoint.

A scrape walks the hosted partitions once for each gauge. At most :data:`TOPICS_MAX` topics have a sample of their own,
so that a cluster with many topics doesn't flood what collects the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from blumfeld.broker.cluster import ClusterView
from blumfeld.broker.replicas.hosting.partition_manager import PartitionManager
from blumfeld.broker.replicas.partition import Partition
from blumfeld.spi.hooks import Metric

TOPICS_MAX = 100
"""Topics with a sample of their own: the first by name. The others are summed as :data:`OTHERS`."""
OTHERS = "(others)"
"""No topic can have this name: brackets are not legal in one."""


def topic_gauges(hosted: PartitionManager, cluster: ClusterView, node_id: int) -> list[Metric]:
    """The gauges, and the counters of bytes. They read ``hosted`` and the image at a scrape."""
    return [*_of_topics(hosted), *_of_replicas(hosted, cluster, node_id)]


def _of_topics(hosted: PartitionManager) -> list[Metric]:
    return [
        Metric(
            "blumfeld_topic_bytes_in_total",
            "Bytes of record batches appended to the partitions led here (Kafka's BytesInPerSec)",
            "counter",
            lambda: _bounded({topic: counts.came_in for topic, counts in hosted.topic_bytes.items()}),
            ("topic",),
        ),
        Metric(
            "blumfeld_topic_bytes_out_total",
            "Bytes of record batches given to consumers (Kafka's BytesOutPerSec)",
            "counter",
            lambda: _bounded({topic: counts.went_out for topic, counts in hosted.topic_bytes.items()}),
            ("topic",),
        ),
        Metric(
            "blumfeld_topic_log_end_offset",
            "Sum of the log end offsets of the partitions led here; its rate is the records that come in",
            "gauge",
            lambda: _by_topic(
                hosted, lambda partition: partition.log.written_end_offset if partition.leader else None
            ),
            ("topic",),
        ),
        Metric(
            "blumfeld_topic_log_bytes",
            "Bytes of record batches in the logs hosted here (Kafka's Log Size)",
            "gauge",
            lambda: _by_topic(
                hosted, lambda partition: partition.log.size_bytes() if partition.closed is None else None
            ),
            ("topic",),
        ),
    ]


def _of_replicas(hosted: PartitionManager, cluster: ClusterView, node_id: int) -> list[Metric]:
    return [
        Metric(
            "blumfeld_led_partitions",
            "Partitions that this node leads (Kafka's LeaderCount)",
            "gauge",
            lambda: sum(replica.leader is not None for replica in hosted),
        ),
        Metric(
            "blumfeld_under_replicated_partitions",
            "Partitions led here with fewer replicas in sync than replicas (Kafka's UnderReplicatedPartitions)",
            "gauge",
            lambda: sum(map(_is_under_replicated, hosted)),
        ),
        Metric(
            "blumfeld_under_min_isr_partitions",
            "Partitions led here with too few replicas in sync for acks=all (Kafka's UnderMinIsrPartitionCount)",
            "gauge",
            lambda: sum(_spare_replicas(replica) < 0 for replica in hosted if replica.leader is not None),
        ),
        Metric(
            "blumfeld_at_min_isr_partitions",
            "Partitions led here with exactly min.insync.replicas in sync (Kafka's AtMinIsrPartitionCount)",
            "gauge",
            lambda: sum(_spare_replicas(replica) == 0 for replica in hosted if replica.leader is not None),
        ),
        Metric(
            "blumfeld_reassigning_partitions",
            "Partitions led here whose replicas are being reassigned (Kafka's ReassigningPartitions)",
            "gauge",
            lambda: sum(map(_is_reassigned, hosted)),
        ),
        Metric(
            "blumfeld_preferred_replica_imbalance",
            "Partitions led by another node although this one is their preferred leader (Kafka's "
            "PreferredReplicaImbalanceCount)",
            "gauge",
            lambda: sum(_is_preferred_elsewhere(replica, node_id) for replica in hosted),
        ),
        Metric(
            "blumfeld_offline_partitions",
            "Partitions of the cluster without a leader, as this node's metadata says (Kafka's OfflinePartitionsCount)",
            "gauge",
            lambda: sum(
                partition.leader < 0
                for topic in cluster.image.topics.values()
                for partition in topic.partitions.values()
            ),
        ),
    ]


def _is_under_replicated(partition: Partition) -> bool:
    image = partition.image
    return partition.leader is not None and image is not None and len(image.isr) < len(image.replicas)


def _is_preferred_elsewhere(partition: Partition, node_id: int) -> bool:
    image = partition.image
    return partition.leader is None and image is not None and image.replicas[0] == node_id


def _spare_replicas(partition: Partition) -> int:
    """Returns by how many the replicas in sync exceed ``min.insync.replicas``."""
    assert partition.leader is not None
    return len(partition.leader.isr) - partition.min_insync_replicas


def _is_reassigned(partition: Partition) -> bool:
    image = partition.image
    return (
        partition.leader is not None
        and image is not None
        and bool(image.adding_replicas or image.removing_replicas)
    )


def _by_topic(
    hosted: PartitionManager, value_of: Callable[[Partition], int | None]
) -> Mapping[tuple[str, ...], float]:
    totals: dict[str, float] = {}
    for replica in hosted:
        value = value_of(replica)
        if value is not None:
            topic = replica.partition.topic
            totals[topic] = totals.get(topic, 0) + value
    return _bounded(totals)


def _bounded(values_by_topic: Mapping[str, float]) -> Mapping[tuple[str, ...], float]:
    names = sorted(values_by_topic)
    samples: dict[tuple[str, ...], float] = {(name,): values_by_topic[name] for name in names[:TOPICS_MAX]}
    if len(names) > TOPICS_MAX:
        samples[(OTHERS,)] = sum(values_by_topic[name] for name in names[TOPICS_MAX:])
    return samples
