"""Shared by handlers: leaders and endpoints, internal topics, legal topic names, authorized operations."""

from __future__ import annotations

import re
from collections.abc import Iterator

from blumfeld.broker.ports import Image
from blumfeld.metadata.partitions.directories import directory_of, has_online_directory
from blumfeld.spi.cluster import BrokerImage, ClusterImage, PartitionImage
from blumfeld.spi.context import RequestContext
from blumfeld.wire.errors import ErrorCode

INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
ADMIN_CLIENT_ID = "__admin_client"
"""The only client id that may write to internal topics."""
NO_OPERATIONS = -(2**31)
"""Value of "authorized operations" in an answer if the request didn't ask for them."""
OPERATIONS = {
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "Delete": 6,
    "Alter": 7,
    "Describe": 8,
    "ClusterAction": 9,
    "DescribeConfigs": 10,
    "AlterConfigs": 11,
    "IdempotentWrite": 12,
}
"""Kafka's numbers of the operations (``AclOperation``). An answer's mask has the bit with this number."""
OPERATIONS_OF = {
    "Topic": ("Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs"),
    "Cluster": (
        "Create",
        "Alter",
        "Describe",
        "ClusterAction",
        "DescribeConfigs",
        "AlterConfigs",
        "IdempotentWrite",
    ),
}
CLUSTER_NAME = "kafka-cluster"
TOPICS_AT_ONCE = 16
"""Topics that a large request changes with one command to the controller, because each may have many partitions."""
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_internal(topic: str) -> bool:
    """Whether it is a topic in which Kafka keeps its own state."""
    return topic in INTERNAL_TOPICS


def is_legal_topic(name: str) -> bool:
    """Whether the name is legal: 1 to 249 characters of ``[a-zA-Z0-9._-]``, and neither ``.`` nor ``..``."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


def authorized_operations(context: RequestContext, resource_type: str, name: str) -> int:
    """Returns the mask of the operations that the client may do on a resource (KIP-430)."""
    mask = 0
    for operation in OPERATIONS_OF[resource_type]:
        if context.authorize(operation, resource_type, name):
            mask |= 1 << OPERATIONS[operation]
    return mask


def live_brokers(image: ClusterImage) -> Iterator[BrokerImage]:
    """Yields the unfenced brokers, sorted by id."""
    return (b for _, b in sorted(image.brokers.items()) if not b.fenced)


def controller_id(cluster: Image) -> int:
    """Returns the broker to name as the controller: this one if it is live, else any live one; -1 if there is none.

    In KRaft clients can't reach the controller, and every broker forwards requests to it.
    """
    live = [b.broker_id for b in live_brokers(cluster.image)]
    if cluster.node_id in live:
        return cluster.node_id
    return live[0] if live else -1


def leader_for(cluster: Image, partition: PartitionImage, listener: str) -> tuple[ErrorCode, int]:
    """Returns the error and the leader id for a client on this listener, as Kafka's ``MetadataCache`` does."""
    if partition.leader < 0:
        return ErrorCode.LEADER_NOT_AVAILABLE, -1
    leader = cluster.image.brokers.get(partition.leader)
    if leader is None or leader.fenced:
        return ErrorCode.LEADER_NOT_AVAILABLE, -1
    if leader.endpoint(listener) is None:
        return ErrorCode.LISTENER_NOT_FOUND, -1
    return ErrorCode.NONE, partition.leader


def offline_replicas(cluster: Image, partition: PartitionImage, listener: str) -> list[int]:
    """Returns the replicas whose broker is gone, fenced or not on this listener, or whose log directory is offline."""
    brokers = cluster.image.brokers
    return [
        r
        for r in partition.replicas
        if r not in brokers
        or brokers[r].fenced
        or brokers[r].endpoint(listener) is None
        or not has_online_directory(brokers[r], directory_of(partition, r))
    ]
