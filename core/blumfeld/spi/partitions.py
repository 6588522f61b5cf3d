"""The partitions that a node leads, as its plug-ins may use them: append, read, watch, learn of leadership."""

from __future__ import annotations

from typing import Protocol

import msgspec

from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import LogReadOutcome, TopicPartition
from blumfeld.wire.batches.record_batch import RecordBatch


class PartitionEnds(msgspec.Struct, frozen=True, kw_only=True):
    """The ends of a partition, as of one moment."""

    topic_id: bytes
    leader_epoch: int
    log_start_offset: int
    last_stable_offset: int
    """The end for read_committed readers."""
    high_watermark: int
    """The end for all other readers."""
    log_end_offset: int


class EndWatcher(Protocol):
    """Watches a partition's log end, or the end of what is committed. Called in ``Phase.COMPLETE``; it may not
    raise."""

    def moved(self) -> None:
        """Take note that the end moved: there may be more to read."""
        ...

    def changed(self) -> None:
        """Take note of anything else: the leader, the leader epoch, the log start, the end of this partition here."""
        ...


class LeadershipWatcher(Protocol):
    """Learns which partitions this node leads. It is not told of the node's own stop, and may not
    raise."""

    def leads(self, partition: TopicPartition, topic_id: bytes, leader_epoch: int) -> None:
        """This node leads the partition in a leader epoch that it didn't lead it in before."""
        ...

    def lost(self, partition: TopicPartition) -> None:
        """This node leads the partition no more: another does, its log failed, or its topic was deleted."""
        ...


class LocalPartitions(Protocol):
    """The partitions that this node leads. Every method is called on the loop's thread.

    ``BrokerError``: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, for each of the first
    four.
    """

    def ends(self, partition: TopicPartition) -> PartitionEnds:
        """Returns where the partition begins and ends."""
        ...

    def append(self, partition: TopicPartition, batch: RecordBatch, leader_epoch: int) -> Completion[int]:
        """Append a batch as a producer with acks=all does. Completes with its base offset when it is committed, or
        fails with ``BrokerError``.

        The batch's memory is patched, and must stay unchanged until then.

        :param leader_epoch: the epoch in which the caller believes that this node leads
        :raises BrokerError: the batch was not placed; FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH: another epoch;
            MESSAGE_TOO_LARGE: also if the topic's settings require a look at too many records; NOT_ENOUGH_REPLICAS and
            every other error of Produce
        """
        ...

    def read(
        self, partition: TopicPartition, offset: int, bytes_max: int, *, read_committed: bool
    ) -> LogReadOutcome:
        """Returns bytes of whole batches from the one with ``offset`` on, below the high watermark or the last stable
        offset; at least one batch if there is any. As ``PartitionLog.read``: a completion for cold bytes, parts that
        the caller must release. Empty at the end.

        :raises BrokerError: OFFSET_OUT_OF_RANGE below the log start or above the log end
        """
        ...

    def advance_log_start(self, partition: TopicPartition, offset: int, leader_epoch: int) -> int:
        """Delete all records below ``offset``, as DeleteRecords does; the log start that the partition has now, which
        is higher if it was. Followers come after.

        Provisional: first used by the total retention of storage_tiered.

        :param leader_epoch: as of :meth:`append`
        :raises BrokerError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH; OFFSET_OUT_OF_RANGE: ``offset`` is above the
            high watermark
        """
        ...

    def watch(self, partition: TopicPartition, watcher: EndWatcher, *, log_end: bool) -> None:
        """Tell ``watcher`` when the log end moves (``log_end``), or else when the end of what is committed does; and of
        each other change. The watch ends with :meth:`unwatch`, or silently when the replica leaves this node:
        ``changed`` was called then, and :meth:`ends` raises.

        :raises BrokerError: as :meth:`ends`
        """
        ...

    def unwatch(self, partition: TopicPartition, watcher: EndWatcher, *, log_end: bool) -> None:
        """Take a watcher back. No error if it, or the partition, is not there any more."""
        ...

    def watch_leadership(self, watcher: LeadershipWatcher) -> None:
        """Tell ``watcher`` of each partition that this node leads now, and from now on of every change, in the turn of
        the change.

        Provisional: first used by the share-partition leader.
        """
        ...
