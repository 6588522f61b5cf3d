"""The replication role: makes a partition leader or follower, moves the high watermark, decides on the ISR."""

from __future__ import annotations

from typing import Protocol

from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.storage import PartitionLog, TopicPartition
from blumfeld.wire.errors import ErrorCode


class ReplicaHost(Protocol):
    """What the replication is handed of one replica: the broker's partition."""

    partition: TopicPartition
    topic_id: bytes
    log: PartitionLog
    min_insync_replicas: int
    """Effective: at most the number of replicas."""

    def high_watermark_moved(self) -> None:
        """Tell the broker: parked requests, coordinators and fetches look again in this turn."""
        ...


class LeaderReplica(Protocol):
    """The leader's side of one partition in one leader epoch."""

    high_watermark: int
    """Never goes back within an epoch. Everything below it is on every member of the ISR."""
    isr: tuple[int, ...]

    def log_end_moved(self) -> None:
        """The written end moved: recompute the high watermark. Called in Phase.HIGH_WATERMARK, before answers."""
        ...

    def check_append_all(self) -> ErrorCode:
        """May acks=all be tried: NONE, or NOT_ENOUGH_REPLICAS."""
        ...

    def check_committed(self, end_offset: int) -> ErrorCode | None:
        """Is everything below ``end_offset`` committed: ``None`` not yet, NONE, or
        NOT_ENOUGH_REPLICAS_AFTER_APPEND.
        """
        ...

    def follower_fetched(self, replica_id: int, broker_epoch: int, fetch_offset: int) -> ErrorCode:
        """A follower fetched from ``fetch_offset``: it has all below. NONE, or the error for its partition."""
        ...

    def update(self, image: PartitionImage) -> None:
        """The controller changed ISR or replicas within the same leader epoch."""
        ...

    def stop(self) -> None:
        """Leadership has gone. No call back afterwards."""
        ...


class FollowerReplica(Protocol):
    """The follower's side: fetches from the leader until stopped."""

    high_watermark: int

    def stop(self) -> None:
        """Stop fetching. No call back afterwards."""
        ...


class Replication(Protocol):
    """Made by ``blumfeld_make_replication``. Made → started → stopped."""

    def promise(self) -> str:
        """What an ack of all means on it, for ``plan``."""
        ...

    async def start(self) -> None:
        """Begin periodic work (ISR shrink)."""
        ...

    def become_leader(self, host: ReplicaHost, image: PartitionImage, high_watermark: int) -> LeaderReplica:
        """This node leads ``host.partition`` in ``image.leader_epoch``; the checkpointed high watermark is where
        it begins.
        """
        ...

    def become_follower(
        self, host: ReplicaHost, image: PartitionImage, high_watermark: int
    ) -> FollowerReplica:
        """This node follows ``image.leader``."""
        ...

    async def stop(self) -> None:
        """Stop everything. Legal without start."""
        ...


class Replicas(Protocol):
    """Make this node's replicas leader or follower: for a consensus whose controller pushes (ZooKeeper mode),
    handed to it.
    """

    def apply(self, partition: TopicPartition, topic_id: bytes, image: PartitionImage | None) -> ErrorCode:
        """Lead, follow or (``None``) stop the replica. Stale epochs answer FENCED_LEADER_EPOCH and change
        nothing.

        Provisional: first used by a consensus whose controller pushes (ZooKeeper mode).
        """
        ...
