"""One hosted replica as its readers see it: its log and state, its part in the cluster, what may be read."""

from __future__ import annotations

from blumfeld.broker.replicas.state import ReplicaState
from blumfeld.config.values import TopicConfig
from blumfeld.spi.replication import FollowerReplica, LeaderReplica
from blumfeld.spi.storage import LogReadOutcome, PartitionLog, TopicPartition
from blumfeld.wire.errors import BrokerError, ErrorCode

_NONE = ErrorCode.NONE


class HostedReplica:
    """The half of a ``Partition`` that only reads; the other half changes it."""

    __slots__ = (
        "closed",
        "config",
        "follower",
        "leader",
        "leader_epoch",
        "log",
        "partition",
        "state",
        "topic_id",
    )

    def __init__(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        log: PartitionLog,
        state: ReplicaState,
        config: TopicConfig,
    ) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.log = log
        self.state = state
        self.config = config
        self.leader: LeaderReplica | None = None
        self.follower: FollowerReplica | None = None
        self.leader_epoch = -1
        self.closed: ErrorCode | None = None
        """Why it can't be used any more: KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION; ``None`` while it can."""

    @property
    def high_watermark(self) -> int:
        """As this replica knows it."""
        if self.leader is not None:
            return self.leader.high_watermark
        return self.follower.high_watermark if self.follower is not None else self.state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Up to where read_committed reads."""
        return self.readable_ends()[1]

    def readable_ends(self) -> tuple[int, int]:
        """Up to where consumers read: (the high watermark, the last stable offset)."""
        high_watermark = self.high_watermark
        unstable = self.state.producers.first_unstable_offset
        if unstable is None or unstable > high_watermark:
            return high_watermark, high_watermark
        return high_watermark, max(unstable, self.log.log_start_offset)

    def readable_end(self, read_committed: bool) -> int:
        """The one or the other."""
        return self.last_stable_offset if read_committed else self.high_watermark

    def read(self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool) -> LogReadOutcome:
        """As ``PartitionLog.read``.

        :raises BrokerError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR
        """
        try:
            return self.log.read(offset, bytes_max, end_offset, minimum_one_batch)
        except LookupError:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE) from None
        except OSError as error:
            self.fail(error)
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR) from error

    def check_leader_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """The epoch that a client has in mind against ours (KIP-320); -1 skips."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return _NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def fail(self, error: OSError) -> None:
        """The log directory is bad: this partition is offline from now on."""
        raise NotImplementedError
