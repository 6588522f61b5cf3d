"""Stray logs: they lie on this node, but the metadata places no such replica here (KIP-858).

Their topic was deleted or recreated, or the replica moved to another node, while the log directory was offline.
"""

from __future__ import annotations

from collections.abc import Iterable

from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC
from blumfeld.spi.storage import TopicPartition

_NO_TOPIC_ID = bytes(16)


def strays(
    logs: Iterable[tuple[TopicPartition, bytes]], image: ClusterImage, node_id: int
) -> list[TopicPartition]:
    """Returns the logs, out of those found at start, that no topic claims.

    A log without a topic id (a crash came before the id was written) belongs to the topic of its name, if that topic
    has a replica here. Kafka counts such a log as a stray.

    :param logs: (partition, topic id) of each log; 16 zero bytes for an unknown id
    :param image: the image with everything that is committed
    """
    return [
        partition
        for partition, topic_id in logs
        if partition.topic != CLUSTER_METADATA_TOPIC and not _claimed(partition, topic_id, image, node_id)
    ]


def _claimed(partition: TopicPartition, topic_id: bytes, image: ClusterImage, node_id: int) -> bool:
    topic = image.topics.get(partition.topic)
    if topic is None or topic_id not in (topic.topic_id, _NO_TOPIC_ID):
        return False
    replica = topic.partitions.get(partition.partition)
    return replica is not None and node_id in replica.replicas
