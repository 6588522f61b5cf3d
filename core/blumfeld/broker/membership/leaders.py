"""Finds leaders for clients: the broker of each, on the listener through which the client came."""

from __future__ import annotations

from collections.abc import Iterator

from blumfeld.broker.cluster import ClusterView
from blumfeld.metadata.partitions.directories import directory_of, has_online_directory
from blumfeld.spi.cluster import BrokerImage, ClusterImage, Endpoint, PartitionImage
from blumfeld.wire.errors import ErrorCode


def live_brokers(image: ClusterImage) -> Iterator[BrokerImage]:
    """Yields the unfenced brokers, sorted by id."""
    return (b for _, b in sorted(image.brokers.items()) if not b.fenced)


def controller_id(cluster: ClusterView) -> int:
    """Returns the broker to name as the controller; -1 if there is none.

    Where brokers forward, clients may not be able to reach the controller (KRaft): then it is this broker if it is
    live, else any live one.
    """
    if not cluster.metadata.forwards:
        controller = cluster.metadata.controller
        return -1 if controller is None else controller.node_id
    live = [b.broker_id for b in live_brokers(cluster.image)]
    if cluster.node_id in live:
        return cluster.node_id
    return live[0] if live else -1


def leader_for(cluster: ClusterView, partition: PartitionImage, listener: str) -> tuple[ErrorCode, int]:
    """Returns the error and the leader id for a client on this listener, as Kafka's ``MetadataCache`` does."""
    if partition.leader < 0:
        return ErrorCode.LEADER_NOT_AVAILABLE, -1
    leader = cluster.image.brokers.get(partition.leader)
    if leader is None or leader.fenced:
        return ErrorCode.LEADER_NOT_AVAILABLE, -1
    if leader.endpoint(listener) is None:
        return ErrorCode.LISTENER_NOT_FOUND, -1
    return ErrorCode.NONE, partition.leader


def offline_replicas(cluster: ClusterView, partition: PartitionImage, listener: str) -> list[int]:
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


def hinted_leader(
    cluster: ClusterView, partition: PartitionImage, listener: str
) -> tuple[BrokerImage, Endpoint] | None:
    """The leader's broker and endpoint, as an answer with NOT_LEADER_OR_FOLLOWER tells them (KIP-951); ``None`` where
    no live broker on this listener leads.
    """
    code, leader = leader_for(cluster, partition, listener)
    if code:
        return None
    broker = cluster.image.brokers[leader]
    endpoint = broker.endpoint(listener)
    return None if endpoint is None else (broker, endpoint)
