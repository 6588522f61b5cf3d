"""The state at a leader's local log start, as a follower asks for it after OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405)."""

from __future__ import annotations

from typing import Any

from blumfeld.spi.completion import Completion
from blumfeld.spi.peers import PeerChannel
from blumfeld.spi.replication import FollowerHost
from blumfeld.spi.storage import PartitionLog
from blumfeld.spi.tiering import LogStartState, tiered
from blumfeld.wire.errors import BrokerError, ErrorCode, known_code
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from blumfeld.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

EARLIEST_LOCAL = -4
"""Timestamp of ListOffsets that stands for the local log start."""


def has_all_in_store(log: PartitionLog) -> bool:
    """Whether a log has records, and none of them on the local disk."""
    whole = tiered(log)
    return (
        whole is not None and whole.log_start_offset < whole.local_log_start_offset == whole.placed_end_offset
    )


class TieredStart(Completion[LogStartState]):
    """Asks the leader where its local log starts and which leader epoch wrote the record before; then asks the store.
    Fails with ``OSError`` or ``BrokerError``. All of it may be asked again later.

    :param leader_epoch: the leader is asked in it
    """

    def __init__(
        self, host: FollowerHost, leader_epoch: int, channel: PeerChannel, node_id: int, timeout_ms: float
    ) -> None:
        super().__init__()
        self._host = host
        self._leader_epoch = leader_epoch
        self._channel = channel
        self._node_id = node_id
        self._timeout_ms = timeout_ms
        self._start = self._epoch = -1
        """The leader's local log start, and the leader epoch of the record there."""
        self._ask(self._local_start(), self._found_start)

    def _ask(self, request: Any, answered: Any) -> None:
        def take(done: Completion[Any]) -> None:
            try:
                answered(done.result())
            except (OSError, BrokerError) as error:
                self.fail(error)

        self._channel.send(request, self._timeout_ms).when_done(take)

    def _local_start(self) -> ListOffsetsRequest:
        at = self._host.partition
        partition = ListOffsetsPartition(
            partition_index=at.partition, current_leader_epoch=self._leader_epoch, timestamp=EARLIEST_LOCAL
        )
        topics = [ListOffsetsTopic(name=at.topic, partitions=[partition])]
        return ListOffsetsRequest(replica_id=self._node_id, topics=topics)

    def _found_start(self, answer: ListOffsetsResponse) -> None:
        data = _only(answer.topics)
        self._start, self._epoch = data.offset, data.leader_epoch
        if self._epoch > 0:
            self._ask(self._epoch_before(), self._found_epoch)
        else:
            self._ask_store(self._epoch)

    def _epoch_before(self) -> OffsetForLeaderEpochRequest:
        at = self._host.partition
        partition = OffsetForLeaderPartition(
            partition=at.partition,
            current_leader_epoch=self._leader_epoch,
            leader_epoch=self._epoch - 1,
        )
        topics = [OffsetForLeaderTopic(topic=at.topic, partitions=[partition])]
        return OffsetForLeaderEpochRequest(replica_id=self._node_id, topics=topics)

    def _found_epoch(self, answer: OffsetForLeaderEpochResponse) -> None:
        before: EpochEndOffset = _only(answer.topics)
        # The answer's epoch may be older than the one that was asked for: not every epoch has records.
        reaches = before.end_offset > self._start - 1
        self._ask_store(before.leader_epoch if reaches else self._epoch)

    def _ask_store(self, epoch: int) -> None:
        log = tiered(self._host.log)
        if log is None:  # the topic's configuration comes with the image
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "the log isn't tiered here yet")
        log.state_at(self._start, epoch).when_done(self._came)

    def _came(self, done: Completion[LogStartState]) -> None:
        if done.error is None:
            self.complete(done.result())
        else:
            self.fail(done.error)


def _only(topics: Any) -> Any:
    """Returns the one partition of an answer. :raises BrokerError: its error, or it isn't there"""
    for topic in topics:
        for data in topic.partitions:
            if data.error_code:
                raise BrokerError(known_code(data.error_code))
            return data
    raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the leader's answer has no partition")
