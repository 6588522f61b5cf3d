"""The replication role: makes a partition leader or follower, moves the high watermark, decides on the ISR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.leader_epochs import EpochEnd, EpochEntry
from blumfeld.spi.replication_quota import ReplicationQuota
from blumfeld.spi.storage import PartitionLog, TopicPartition
from blumfeld.wire.errors import ErrorCode


class ReplicaHost(Protocol):
    """The broker's side of one replica that leads."""

    partition: TopicPartition
    topic_id: bytes
    log: PartitionLog
    """The log of the partition. The plug-in may only read it."""
    min_insync_replicas: int
    """Effective: at most the number of replicas."""

    def high_watermark_moved(self) -> None:
        """The leader's high watermark moved: parked requests, coordinators and fetches look again in this turn."""
        ...

    def low_watermark_moved(self) -> None:
        """The leader's low watermark moved: waiting DeleteRecords requests look again in this turn."""
        ...


class FollowerHost(Protocol):
    """The broker's side of one replica that follows, for one leader epoch.

    Once that epoch has ended, each method that changes something raises ``BrokerError`` FENCED_LEADER_EPOCH, so an
    answer that comes too late changes nothing. KAFKA_STORAGE_ERROR: the log failed; the replica is offline, and the
    follower was stopped.
    """

    partition: TopicPartition
    topic_id: bytes
    log: PartitionLog
    """The log of the partition. It may be read here, and changed only by the methods below."""

    @property
    def high_watermark(self) -> int:
        """The high watermark as this replica knows it. The host keeps a follower's, from the leader's answers."""
        ...

    @property
    def latest_epoch(self) -> int:
        """Leader epoch of the last record, placed ones included; -1 if none is known. A fetch names it."""
        ...

    @property
    def quota(self) -> ReplicationQuota | None:
        """The quota of this node's followers, if the topic's configuration throttles this replica now; else ``None``
        (KIP-73). The follower counts there what it fetches, and doesn't fetch while the quota is exceeded and it hasn't
        reached the leader's high watermark.
        """
        ...

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Returns the largest epoch in this log that is not above ``epoch``, and its end offset, by the rule of
        OffsetForLeaderEpoch (KIP-279). (-1, -1) if the log has none, or none as new as ``epoch``.
        """
        ...

    def append_fetched(self, batches: memoryview, high_watermark: int, log_start_offset: int) -> bool:
        """Append what the leader answered to a fetch from the log's placed end. Returns whether anything was placed.

        The batches stay as they are: bytes, offsets and epochs are the leader's. Producer state, leader epochs and the
        transaction index follow. The checks are those of Kafka's ``appendAsFollower``: format and CRC, ascending
        offsets, none below the log's end. A batch that is cut off ends the data. So does a batch of a later leader
        epoch than this host's: the next leader brings it.

        If anything was placed, the end of the turn calls ``FollowerReplica.written`` or ``append_failed``. Until then
        ``batches`` must stay unchanged.

        If the log is empty, the first batch may begin below its start: the leader's log start lies inside that batch.

        :param high_watermark: the leader's. Ours becomes the same once the records are written, but never lies beyond
            our log's end
        :param log_start_offset: the leader's. Ours follows, but not beyond our high watermark
        :raises CorruptBatch: a batch is damaged, or the offsets don't follow the log's end; nothing was placed
        :raises UnsupportedMagic: a batch of an old format; nothing was placed
        """
        ...

    def truncate_to(self, offset: int) -> Completion[None]:
        """Drop all batches with an offset ≥ ``offset``, placed ones too, and all that they left: producers, leader
        epochs, aborted transactions, a higher high watermark. Log and epochs are cut when this returns.

        The completion is done when the producer state is rebuilt, which may take many turns. Until then
        :meth:`append_fetched` must not be called. It fails with ``BrokerError`` if the replica goes offline or leaves.
        """
        ...

    def restart_at(
        self,
        offset: int,
        epochs: Sequence[EpochEntry] = (),
        producers: bytes | None = None,
        log_start_offset: int | None = None,
    ) -> None:
        """Drop the whole log and begin an empty one at ``offset``: what lies below is only in a remote store, or gone.

        A crash in the middle leaves the old log, or an empty one at ``offset`` that may lack epochs and producers.

        :param epochs: the leader epochs of the records below ``offset``, oldest first
        :param producers: the bytes of ``<offset>.snapshot``; ``None`` if no producer is known
        :param log_start_offset: the start of the whole log, if the log is tiered and the store has the records from
            there to ``offset``; ``None``, and of another log: nothing is left of what lies below ``offset``
        :raises CorruptSnapshot: ``producers`` can't be read; nothing has changed
        """
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
        NOT_ENOUGH_REPLICAS_AFTER_APPEND. The code is the same for all offsets up to the high watermark.
        """
        ...

    def follower_fetched(
        self, replica_id: int, broker_epoch: int, fetch_offset: int, log_start_offset: int
    ) -> ErrorCode:
        """A follower fetched from ``fetch_offset``: it has all below, from ``log_start_offset`` on. NONE, or the error
        for its partition.
        """
        ...

    @property
    def low_watermark(self) -> int:
        """The lowest log start of all replicas on live brokers; -1 while one of them is not known. DeleteRecords waits
        until it has reached the new log start.
        """
        ...

    def preferred_read_replica(self, rack: str, fetch_offset: int) -> int:
        """Returns the replica that a consumer in ``rack`` had better fetch from (KIP-392); -1 for this leader.

        :param fetch_offset: the replica must have this offset
        """
        ...

    def update(self, image: PartitionImage) -> None:
        """The controller changed ISR or replicas within the same leader epoch."""
        ...

    def stop(self) -> None:
        """Leadership has gone. No call back afterwards."""
        ...


class FollowerReplica(Protocol):
    """The follower's side of one partition in one leader epoch: fetches from the leader until stopped."""

    def written(self, end_offset: int) -> None:
        """The appended batches are written up to ``end_offset``, and high watermark and log start have moved. Fetch on
        from there. Called in Phase.HIGH_WATERMARK.
        """
        ...

    def append_failed(self, end_offset: int, error: OSError) -> None:
        """The write failed, and the log ends at ``end_offset``, where it ended before. Fetch from there again, after a
        pause: the disk may be full. Called in Phase.WRITE or later.
        """
        ...

    def update(self, image: PartitionImage) -> None:
        """The controller changed ISR or replicas within the same leader epoch."""
        ...

    def stop(self) -> None:
        """Stop fetching: the epoch has ended, or the replica goes offline. No call back afterwards."""
        ...


class Replication(Protocol):
    """Made by ``blumfeld_make_replication``. Made → started → stopped."""

    def promise(self) -> str:
        """The meaning of acks=all with this replication, for ``plan``."""
        ...

    async def start(self) -> None:
        """Begin periodic work (ISR shrink)."""
        ...

    def become_leader(self, host: ReplicaHost, image: PartitionImage, high_watermark: int) -> LeaderReplica:
        """This node leads ``host.partition`` in ``image.leader_epoch``; the checkpointed high watermark is where
        it begins.
        """
        ...

    def become_follower(self, host: FollowerHost, image: PartitionImage) -> FollowerReplica:
        """This node follows ``image.leader`` in ``image.leader_epoch``. ``host`` is not to be called before this
        returns.
        """
        ...

    async def stop(self) -> None:
        """Stop everything. Legal without start."""
        ...


class Replicas(Protocol):
    """This node's replicas, for a consensus whose controller pushes (``ReplicaDriver.PUSHES``), handed to it.

    Each result comes when the replica is as the controller wants it, or can't be. A code of NONE is success;
    STALE_CONTROLLER_EPOCH: an earlier controller's order, nothing has changed; FENCED_LEADER_EPOCH: an older leader
    epoch than the replica's, nothing has changed; KAFKA_STORAGE_ERROR: the log can't be used;
    NOT_LEADER_OR_FOLLOWER: the broker stops, or the log only lacks room, and opens by itself when there is some.
    """

    def apply(
        self, partition: TopicPartition, topic_id: bytes, image: PartitionImage, controller_epoch: int
    ) -> Completion[ErrorCode]:
        """Lead or follow (LeaderAndIsr); done when the log is open. INCONSISTENT_TOPIC_ID: the log is another topic's.

        A replica whose node isn't among ``image.replicas`` is stopped and deleted.

        :raises PluginContractError: the consensus says that its image drives the replicas
        """
        ...

    def stop(
        self, partition: TopicPartition, leader_epoch: int, controller_epoch: int, *, delete: bool
    ) -> Completion[ErrorCode]:
        """Stop leading and following (StopReplica) until :meth:`apply` comes. The log stays, unless ``delete``.
        A replica that isn't here is a success.

        :param leader_epoch: that of the order; a negative one is not compared (the topic is being deleted)
        :raises PluginContractError: the consensus says that its image drives the replicas
        """
        ...
