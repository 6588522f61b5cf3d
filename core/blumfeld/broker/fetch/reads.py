"""Reads for a fetch: checks and bytes of one partition, and a whole request under its limits.

The order of the checks is that of Kafka's ``ReplicaManager.readFromLog``.
"""

from __future__ import annotations

from blumfeld.broker.fetch.sessions import FetchPartition, FetchPlan
from blumfeld.broker.ports import Ports
from blumfeld.broker.replicas.partition import Partition
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import RequestContext
from blumfeld.spi.parts import release
from blumfeld.spi.storage import LogRead
from blumfeld.wire.errors import BrokerError, ErrorCode

CONSUMER = -1
READ_COMMITTED = 1
UNKNOWN_EPOCH = -1


class Reader:
    """Who fetches, and how: the part of a request that holds for all its partitions."""

    __slots__ = (
        "bytes_max",
        "bytes_min",
        "context",
        "follower",
        "ports",
        "read_committed",
        "replica_epoch",
        "replica_id",
    )

    def __init__(
        self,
        ports: Ports,
        context: RequestContext,
        *,
        replica_id: int,
        replica_epoch: int,
        read_committed: bool,
        bytes_min: int,
        bytes_max: int,
    ) -> None:
        self.ports = ports
        self.context = context
        self.replica_id = replica_id
        self.follower = replica_id >= 0
        """Whether a broker replicates by it."""
        self.replica_epoch = replica_epoch
        self.read_committed = read_committed
        self.bytes_max = bytes_max
        self.bytes_min = min(bytes_min, bytes_max)

    def find(self, asked: FetchPartition) -> Partition:
        """The partition, if this node leads it and the reader may read it.

        :raises BrokerError: what stands in its ``errorCode``
        """
        ports, topic = self.ports, asked.topic
        if isinstance(topic, bytes):
            image = ports.cluster.image.topic_by_id(topic)
            if image is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
            name = image.name
        else:
            name = topic
        if not self.follower and not self.context.authorize("Read", "Topic", name):
            raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = ports.hosted.leading(name, asked.partition)
        if isinstance(topic, bytes) and partition.topic_id != topic:
            raise BrokerError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return partition


class PartitionRead:
    """What one partition gave."""

    __slots__ = (
        "asked",
        "cold",
        "diverging",
        "error",
        "high_watermark",
        "log_start_offset",
        "partition",
        "read",
        "stable",
    )

    def __init__(self, asked: FetchPartition) -> None:
        self.asked = asked
        self.partition: Partition | None = None
        self.error = ErrorCode.NONE
        self.read: LogRead | None = None
        self.cold: Completion[LogRead] | None = None
        """Set while the bytes are on their way from somewhere slow."""
        self.diverging: tuple[int, int] | None = None
        """(epoch, end offset) where the reader's history parts from ours."""
        self.high_watermark = -1
        self.stable = -1
        self.log_start_offset = -1

    @property
    def size_bytes(self) -> int:
        """Of what was read so far."""
        return 0 if self.read is None else self.read.size_bytes

    def run(self, reader: Reader, bytes_max: int, minimum_one_batch: bool) -> None:
        """Check and read; an error stays in :attr:`error`."""
        try:
            partition = self.partition = reader.find(self.asked)
            self._run(partition, reader, bytes_max, minimum_one_batch)
        except BrokerError as error:
            self.fail(error.code)

    def fail(self, code: ErrorCode) -> None:
        """Answer this error, and nothing else."""
        self.error = code
        self.high_watermark = self.stable = self.log_start_offset = -1

    def _run(self, partition: Partition, reader: Reader, bytes_max: int, minimum_one_batch: bool) -> None:
        asked, log = self.asked, partition.log
        code = partition.check_leader_epoch(asked.current_leader_epoch)
        if code:
            raise BrokerError(code)
        end = log.written_end_offset
        offset = asked.fetch_offset
        if asked.last_fetched_epoch >= 0 and self._diverges(partition, end):
            self._tell_ends(partition)
            return
        if offset < log.log_start_offset or offset > end:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if reader.follower and partition.leader is not None:
            code = partition.leader.follower_fetched(reader.replica_id, reader.replica_epoch, offset)
            if code:
                raise BrokerError(code)
        self._tell_ends(partition)
        if not reader.follower or partition.leader is None:
            end = self.stable if reader.read_committed else self.high_watermark
        if offset < end and bytes_max > 0:
            outcome = partition.read(
                offset, min(bytes_max, asked.partition_bytes_max), end, minimum_one_batch
            )
            if not isinstance(outcome, LogRead):
                self.cold = outcome
            else:
                self.read = outcome

    def _tell_ends(self, partition: Partition) -> None:
        self.high_watermark, self.stable = partition.readable_ends()
        self.log_start_offset = partition.log.log_start_offset

    def _diverges(self, partition: Partition, log_end_offset: int) -> bool:
        asked = self.asked
        epoch, end_offset = partition.state.epochs.end_offset_for(asked.last_fetched_epoch, log_end_offset)
        if epoch == UNKNOWN_EPOCH:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
            self.diverging = (epoch, end_offset)
            return True
        return False

    def settle(self) -> None:
        """The cold read is done."""
        cold, self.cold = self.cold, None
        if cold is None:
            return
        if isinstance(cold.error, BrokerError):
            self.fail(cold.error.code)
        elif isinstance(cold.error, LookupError):
            self.fail(ErrorCode.OFFSET_OUT_OF_RANGE)
        elif cold.error is not None:
            partition = self.partition
            if isinstance(cold.error, OSError) and partition is not None and partition.closed is None:
                partition.fail(cold.error)
            self.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self.read = cold.result()

    def aborted(self, reader: Reader) -> list[tuple[int, int]] | None:
        """(producer, first offset) of aborted transactions in what was read; ``None`` for read_uncommitted."""
        if self.partition is None:
            return []  # not found: Kafka's answer then
        if not reader.read_committed or self.error:
            return None
        if self.read is None:
            return []
        found = self.partition.state.aborted.overlapping(self.asked.fetch_offset, self.read.end_offset)
        return [(entry.producer_id, entry.first_offset) for entry in found]


class FetchAttempt:
    """One try at all partitions of a plan. It is either taken for the answer or released, once."""

    __slots__ = ("_left", "decided", "reads", "size_bytes")

    def __init__(self, reader: Reader, plan: FetchPlan, *, read: bool = True) -> None:
        """``read=False`` leaves it to the caller to :meth:`add` the plan's partitions, in their order."""
        self.reads: list[PartitionRead] = []
        self.size_bytes = 0
        self.decided = False
        """There is something that can't wait: an error, or histories that part."""
        self._left = reader.bytes_max
        if read:
            for asked in plan.partitions:
                self.add(reader, asked)

    def add(self, reader: Reader, asked: FetchPartition) -> None:
        """Read the next partition, under what the limits leave for it."""
        one = PartitionRead(asked)
        self.reads.append(one)
        one.run(reader, self._left, minimum_one_batch=not self.size_bytes)
        if one.read is not None:
            size = one.read.size_bytes
        else:
            size = 0 if one.cold is None else min(self._left, asked.partition_bytes_max)
        self.size_bytes += size
        self._left -= size
        if one.error or one.diverging is not None:
            self.decided = True

    def enough(self, reader: Reader) -> bool:
        """Whether it can be answered without waiting."""
        return self.decided or self.size_bytes >= reader.bytes_min

    def cold(self) -> list[Completion[LogRead]]:
        """Reads on their way."""
        return [one.cold for one in self.reads if one.cold is not None]

    def release(self) -> None:
        """It is not enough: give back the files that it holds."""
        for one in self.reads:
            if one.read is not None:
                release(one.read.parts)
            elif one.cold is not None:
                one.cold.when_done(_release_late)


def _release_late(done: Completion[LogRead]) -> None:
    if done.error is None:
        release(done.result().parts)
