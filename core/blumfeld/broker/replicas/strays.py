"""Logs that lie on this node and that no topic of it claims: deleted, made anew, or moved to other nodes while their
log directory was offline (KIP-858).
"""

from __future__ import annotations

from collections.abc import Iterable

from blumfeld.metadata.topics.names import CLUSTER_METADATA_TOPIC
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.storage import TopicPartition

_NO_TOPIC_ID = bytes(16)


def strays(
    found: Iterable[tuple[TopicPartition, bytes]], image: ClusterImage, node_id: int
) -> list[TopicPartition]:
    """Which of the logs that were found at start no topic claims.

    A log whose topic id is not known (a crash came before it was written) belongs to the topic of its name, if this
    node is to have a replica; Kafka counts it as a stray.

    :param image: all that is committed
    """
    return [
        partition
        for partition, topic_id in found
        if partition.topic != CLUSTER_METADATA_TOPIC and not _claimed(partition, topic_id, image, node_id)
    ]


def _claimed(partition: TopicPartition, topic_id: bytes, image: ClusterImage, node_id: int) -> bool:
    topic = image.topics.get(partition.topic)
    if topic is None or topic_id not in (topic.topic_id, _NO_TOPIC_ID):
        return False
    replica = topic.partitions.get(partition.partition)
    return replica is not None and node_id in replica.replicas
