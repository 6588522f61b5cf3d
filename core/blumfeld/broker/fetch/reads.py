"""Reads for a Fetch request: one partition with its checks, and all partitions under the request's byte limits.

The checks come in the order of Kafka's ``ReplicaManager.readFromLog``, because the first one that fails is the answer.

A fetch that waits for more bytes (:class:`ParkedFetch`) is told what moves, counts, and reads only to answer. Each of
its partitions tells it when the end moves that the reader may read to: the log end for a follower, the high watermark
or the last stable offset for a consumer. It adds up how many bytes there are at most. Once they may be enough, it reads
the partitions that moved, and nothing else. Anything else that happens to a partition has that partition checked anew,
and an error or a divergence ends the wait, as in Kafka's ``DelayedFetch``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from blumfeld.broker.fetch_sessions import FetchPartition, FetchPlan
from blumfeld.broker.ports import Ports
from blumfeld.broker.replicas.partition import Partition
from blumfeld.broker.replicas.watching.written_bytes import WrittenBytes
from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import RequestContext
from blumfeld.spi.parts import release
from blumfeld.spi.storage import LogRead, OffsetOutOfRangeError
from blumfeld.spi.tiering import RemoteRead
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.fetch import FetchResponse

CONSUMER = -1
READ_COMMITTED = 1
UNKNOWN_EPOCH = -1

FRESH = 0
MOVED = 1
CHANGED = 2
"""The age of a :class:`PartitionRead`. FRESH: nothing has happened since. MOVED: an end moved, so more may be there.
CHANGED or above: something else happened, so every check is due again.
"""


class Reader:
    """The consumer or follower that fetches, with the request's fields that hold for all partitions."""

    __slots__ = (
        "bytes_max",
        "bytes_min",
        "context",
        "follower",
        "leader_only",
        "ports",
        "rack",
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
        leader_only: bool = True,
        rack: str = "",
    ) -> None:
        """:param leader_only: it reads from a leader: a follower, or a consumer before Fetch v11 (KIP-392)
        :param rack: the consumer's, if this node looks for a replica there; ``""``: it doesn't
        """
        self.ports = ports
        self.context = context
        self.replica_id = replica_id
        self.follower = replica_id >= 0
        """Whether the fetch comes from a replica and not from a consumer."""
        self.replica_epoch = replica_epoch
        self.read_committed = read_committed
        self.bytes_max = bytes_max
        self.bytes_min = bytes_min if bytes_min < bytes_max else bytes_max
        self.leader_only = leader_only
        self.rack = rack

    def end_of(self, partition: Partition) -> int:
        """Returns the end of what this reader may read: the log end for a follower, else what is committed."""
        if self.follower and partition.leader is not None:
            return partition.log.written_end_offset
        return partition.readable_end(self.read_committed)

    def is_throttled(self, partition: Partition) -> bool:
        """Whether a follower gets no records of a partition that this node leads, because the quota is used up.

        Only a follower outside of the ISR waits, as in Kafka: to throttle one within would take it out of the ISR, and
        would hold up producers with acks=all.
        """
        if partition.leader is None or self.replica_id in partition.leader.isr:
            return False
        quota = partition.throttles.of_leader(partition.partition, partition.config)
        return quota is not None and quota.is_exceeded(self.ports.runtime.monotonic_ms())

    def find(self, fetch_partition: FetchPartition) -> Partition:
        """Returns the partition, if this node leads it, or follows and this reader reads from followers, too.

        :raises BrokerError: the code for the partition's ``errorCode``: UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID,
            TOPIC_AUTHORIZATION_FAILED, and those of ``PartitionManager.leading``
        """
        ports, topic = self.ports, fetch_partition.topic
        hosted = ports.hosted
        if fetch_partition.found_in == hosted.generation:
            partition: Partition = fetch_partition.found
            if not self.follower and not self.context.authorize("Read", "Topic", partition.partition.topic):
                raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return partition
        fetch_partition.found, fetch_partition.found_in = None, -1
        if isinstance(topic, bytes):
            image = ports.cluster.image.topic_by_id(topic)
            if image is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
            name = image.name
        else:
            name = topic
        if not self.follower and not self.context.authorize("Read", "Topic", name):
            raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        followed = None if self.leader_only else hosted.find(name, fetch_partition.partition)
        if followed is not None and followed.following is not None:
            partition = followed
        else:
            partition = hosted.leading(name, fetch_partition.partition)
        if isinstance(topic, bytes) and partition.topic_id != topic:
            raise BrokerError(ErrorCode.INCONSISTENT_TOPIC_ID)
        fetch_partition.found, fetch_partition.found_in = partition, hosted.generation
        return partition


class PartitionRead:
    """The outcome of a fetch from one partition: bytes, a pending cold read, an error or a divergence.

    While the fetch is parked it watches its partition: implements ``EndWatcher``.
    """

    __slots__ = (
        "aborted_found",
        "age",
        "asked",
        "bytes_at_most",
        "bytes_counted",
        "cold",
        "diverging",
        "error",
        "high_watermark",
        "log_start_offset",
        "parked",
        "partition",
        "preferred",
        "read",
        "stable",
        "total_before",
    )

    aborted_found: list[AbortedTransaction]
    """The aborted transactions that overlap the bytes in :attr:`read`. Set for read_committed readers, in the turn in
    which the bytes were found: later their segment may be dropped or compacted, and its index with it, while the answer
    waits for other partitions.
    """
    bytes_at_most: int
    """Bytes that a read would give, or more. Set while the fetch is parked, like the two fields below."""
    bytes_counted: int
    """Bytes that the last read gave, or would have given but for the limits."""
    total_before: int
    """``WrittenBytes`` at the end of those bytes, or less."""

    def __init__(self, fetch_partition: FetchPartition) -> None:
        self.asked = fetch_partition
        self.age = FRESH
        self.parked: ParkedFetch | None = None
        self.partition: Partition | None = None
        self.error = ErrorCode.NONE
        self.read: LogRead | None = None
        self.cold: Completion[LogRead] | None = None
        """The pending read, while the bytes come from a disk or a remote store."""
        self.diverging: tuple[int, int] | None = None
        """(epoch, end offset) of the last point that the reader's log may share with ours (KIP-595)."""
        self.preferred = -1
        """The replica that the consumer should read from instead (KIP-392); -1 for this one."""
        self.high_watermark = -1
        self.stable = -1
        self.log_start_offset = -1

    @property
    def size_bytes(self) -> int:
        """Bytes that were read; 0 while a cold read is pending."""
        return 0 if self.read is None else self.read.size_bytes

    def run(self, reader: Reader, bytes_max: int, minimum_one_batch: bool) -> None:
        """Check the request's fields and read. An error is stored in :attr:`error`, not raised."""
        try:
            partition = self.partition = reader.find(self.asked)
            if reader.rack and self._sends_elsewhere(partition, reader.rack):
                return
            if self._check(partition):
                if reader.follower and partition.leader is not None:
                    code = partition.leader.follower_fetched(
                        reader.replica_id,
                        reader.replica_epoch,
                        self.asked.fetch_offset,
                        self.asked.log_start_offset,
                    )
                    if code:
                        raise BrokerError(code)
                self._read(partition, reader, bytes_max, minimum_one_batch)
        except BrokerError as error:
            self.fail(error.code)

    def run_again(self, reader: Reader, bytes_max: int, minimum_one_batch: bool) -> None:
        """Bring an earlier outcome up to date. Only what :attr:`age` says is looked at.

        The replication isn't told again: a follower acknowledges its offset once for each request.
        """
        age, self.age = self.age, FRESH
        partition = self.partition
        assert partition is not None, "a fetch with an error is not parked"
        if age == FRESH:
            if reader.follower:
                self._tell_ends(partition)  # it isn't woken when only the high watermark moves
            return
        self.read = self.cold = self.diverging = None
        self.error = ErrorCode.NONE
        try:
            if age >= CHANGED or partition.closed is not None:
                partition = self.partition = reader.find(self.asked)
                if not self._check(partition):
                    return
            self._read(partition, reader, bytes_max, minimum_one_batch)
        except BrokerError as error:
            self.fail(error.code)

    def moved(self) -> None:
        """As ``EndWatcher.moved``."""
        self.age |= MOVED
        if self.parked is not None:
            self.parked.moved(self)

    def changed(self) -> None:
        """As ``EndWatcher.changed``."""
        self.age = CHANGED
        if self.parked is not None:
            self.parked.changed(self)

    def fail(self, code: ErrorCode) -> None:
        """Answer this error, with -1 for each offset."""
        self.error = code
        self.high_watermark = self.stable = self.log_start_offset = -1

    def _sends_elsewhere(self, partition: Partition, rack: str) -> bool:
        """Look for a replica in the consumer's rack. Returns whether there is one: the answer names it
        (:attr:`preferred`) and brings no records. The consumer's leader epoch counts first.

        :raises BrokerError: the consumer's leader epoch isn't ours
        """
        if partition.leader is None:
            return False
        fetch_partition = self.asked
        epoch = fetch_partition.current_leader_epoch
        if epoch >= 0 and epoch != partition.leader_epoch:
            raise BrokerError(partition.check_leader_epoch(epoch))
        self.preferred = partition.leader.preferred_read_replica(rack, fetch_partition.fetch_offset)
        if self.preferred < 0:
            return False
        self._tell_ends(partition)
        return True

    def _check(self, partition: Partition) -> bool:
        """Returns whether there is something to read; False if the reader's log diverges.

        :raises BrokerError: the error of this partition
        """
        fetch_partition, log = self.asked, partition.log
        epoch = fetch_partition.current_leader_epoch
        if epoch >= 0 and epoch != partition.leader_epoch:
            raise BrokerError(partition.check_leader_epoch(epoch))
        end = log.written_end_offset
        if fetch_partition.last_fetched_epoch >= 0 and self._diverges(partition, end):
            self._tell_ends(partition)
            return False
        if fetch_partition.fetch_offset < log.log_start_offset or fetch_partition.fetch_offset > end:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return True

    def _read(self, partition: Partition, reader: Reader, bytes_max: int, minimum_one_batch: bool) -> None:
        self.high_watermark, self.stable = partition.readable_ends()
        self.log_start_offset = partition.log.log_start_offset
        offset = self.asked.fetch_offset
        if reader.follower and partition.leader is not None:
            tiered = partition.tiered
            if tiered is not None and offset < tiered.local_log_start_offset:
                # The follower gets the ends, too: it begins at our local start, with our log start (KIP-405).
                self.error = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
                return
            end = offset if reader.is_throttled(partition) else partition.log.written_end_offset
        else:
            end = self.stable if reader.read_committed else self.high_watermark
        if offset < end and (bytes_max > 0 or minimum_one_batch):
            if bytes_max > self.asked.partition_bytes_max:
                bytes_max = self.asked.partition_bytes_max
            outcome = partition.read(offset, bytes_max, end, minimum_one_batch)
            if not isinstance(outcome, LogRead):
                self.cold = outcome
                if reader.read_committed:
                    outcome.when_done(self._came)
            else:
                self.read = outcome
                if reader.read_committed:
                    self._find_aborted(partition, outcome)

    def _came(self, done: Completion[LogRead]) -> None:
        if done is self.cold and done.error is None and self.partition is not None:
            self._find_aborted(self.partition, done.result())

    def _find_aborted(self, partition: Partition, read: LogRead) -> None:
        known = partition.state.aborted.overlapping(self.asked.fetch_offset, read.end_offset)
        if read.aborted:
            # Each once: librdkafka would take the producer's next transaction for the one that is named again.
            known = [*read.aborted, *(entry for entry in known if entry not in read.aborted)]
        self.aborted_found = known

    def _tell_ends(self, partition: Partition) -> None:
        self.high_watermark, self.stable = partition.readable_ends()
        self.log_start_offset = partition.log.log_start_offset

    def _diverges(self, partition: Partition, log_end_offset: int) -> bool:
        fetch_partition = self.asked
        epoch, end_offset = partition.state.epochs.end_offset_for(
            fetch_partition.last_fetched_epoch, log_end_offset
        )
        if epoch == UNKNOWN_EPOCH:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < fetch_partition.last_fetched_epoch or end_offset < fetch_partition.fetch_offset:
            self.diverging = (epoch, end_offset)
            return True
        return False

    def settle(self) -> BaseException | None:
        """Take the result or the error of the cold read, which must be done. Returns a defect that ended the read: the
        caller logs it, and the partition gets UNKNOWN_SERVER_ERROR.
        """
        cold, self.cold = self.cold, None
        if cold is None:
            return None
        error = cold.error
        if error is None:
            self.read = cold.result()
        elif isinstance(error, BrokerError):
            self.fail(error.code)
        elif isinstance(error, OffsetOutOfRangeError):
            self.fail(ErrorCode.OFFSET_OUT_OF_RANGE)
        elif isinstance(error, OSError):
            if self.partition is not None and self.partition.closed is None:
                self.partition.fail_if_bad(error)
            self.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
            return error
        return None

    def aborted(self, reader: Reader) -> list[tuple[int, int]] | None:
        """Returns (producer id, first offset) of each aborted transaction that overlaps the bytes that were read.

        ``None`` for a read_uncommitted reader, and with an error; an empty list if the partition isn't here.
        """
        if self.partition is None:
            return []  # Kafka, too, sends an empty list for a partition that it doesn't find
        if not reader.read_committed or self.error:
            return None
        if self.read is None:
            return []
        return [(entry.producer_id, entry.first_offset) for entry in self.aborted_found]


class FetchAttempt:
    """One read of all partitions of a plan. Afterwards it is used for the answer or released: exactly one of both."""

    __slots__ = ("_left", "decided", "found_bytes", "reads", "size_bytes", "straight", "waits_for_cold")

    def __init__(self, reader: Reader, plan: FetchPlan, *, read: bool = True) -> None:
        """With ``read=False`` the caller must :meth:`add` the plan's partitions itself, in their order."""
        self.reads: list[PartitionRead] = []
        self.size_bytes = 0
        """Bytes of the answer."""
        self.found_bytes = 0
        """The same with the bytes of partitions whose first batch didn't fit. They count for ``bytes_min``, because no
        wait would bring them into this answer. Kafka's ``DelayedFetch`` counts them, too."""
        self.decided = False
        """An error, a divergence, a better replica or bytes of a remote store were found: the answer must not wait for
        ``bytes_min``."""
        self.waits_for_cold = False
        """Whether a read is pending."""
        self.straight = read
        """Whether the answer is encoded at once: one that is encoded in steps takes the general way."""
        self._left = reader.bytes_max
        if read:
            for fetch_partition in plan.partitions:
                self.add(reader, fetch_partition)

    def add(self, reader: Reader, fetch_partition: FetchPartition) -> None:
        """Read the next partition, within the bytes that the partitions before it left over.

        Only the first batch of an answer may exceed the limits (KIP-74). A cold read counts with the most that it may
        bring, because its size is not known yet. A defect costs the whole request: what was read before is given back.
        """
        read = PartitionRead(fetch_partition)
        self.reads.append(read)
        try:
            read.run(reader, self._left, minimum_one_batch=not self.size_bytes)
        except Exception:
            self.release()
            raise
        self._count(read)

    def again(self, reader: Reader) -> None:
        """Bring the outcomes up to date: read where an end moved, check where something else happened."""
        self.size_bytes = self.found_bytes = 0
        self._left = reader.bytes_max
        self.decided = self.waits_for_cold = False
        try:
            for read in self.reads:
                read.run_again(reader, self._left, not self.size_bytes)
                self._count(read)
        except Exception:
            self.release()
            raise

    def refuse(self, code: ErrorCode) -> None:
        """Answer this error for each partition, and nothing else."""
        self.release()
        self.size_bytes = self.found_bytes = 0
        self.decided = True
        for read in self.reads:
            read.diverging = None
            read.fail(code)

    def _count(self, partition_read: PartitionRead) -> None:
        size = bytes_counted = 0
        if partition_read.read is not None:
            size = bytes_counted = partition_read.read.size_bytes
            if not size and self.size_bytes:
                bytes_counted = min(self._left, partition_read.asked.partition_bytes_max)
        elif partition_read.cold is not None:
            self.waits_for_cold = True
            if isinstance(partition_read.cold, RemoteRead):
                self.decided = True  # as in Kafka: to park it would give it up, and ask the store anew
            # At least one byte, whatever the limits are: the first read brings a batch, so later ones needn't.
            size = bytes_counted = max(min(self._left, partition_read.asked.partition_bytes_max), 1)
        partition_read.bytes_counted = bytes_counted
        self.found_bytes += bytes_counted
        self.size_bytes += size
        self._left -= size
        if partition_read.error or partition_read.diverging is not None or partition_read.preferred >= 0:
            self.decided = True

    def enough(self, reader: Reader) -> bool:
        """Whether the request can be answered without waiting for more bytes."""
        return self.decided or self.found_bytes >= reader.bytes_min

    def give_up(self) -> None:
        """The reader has gone: nothing needs to come from a remote store for it any more."""
        for read in self.reads:
            if isinstance(read.cold, RemoteRead):
                read.cold.give_up()

    def release(self) -> None:
        """Give back the file regions of an attempt that is not answered, also of cold reads that finish later.

        :meth:`again` reads them anew.
        """
        for read in self.reads:
            if read.read is not None:
                release(read.read.parts)
                read.read = None
                read.age |= MOVED
            elif read.cold is not None:
                if isinstance(read.cold, RemoteRead):
                    read.cold.give_up()
                read.cold.when_done(_release_late)
                read.cold = None
                read.age |= MOVED


def _release_late(done: Completion[LogRead]) -> None:
    if done.error is None:
        release(done.result().parts)


TakeAnswer: TypeAlias = Callable[[Reader, FetchPlan, FetchAttempt], FetchResponse | Completion[FetchResponse]]
"""Makes the answer from an attempt, after its cold reads are done."""


class ParkedFetch(Completion[FetchResponse]):
    """Waits until ``bytes_min`` bytes may be read, an error comes, or the time is up. Implements ``Expires``.

    It is the completion of its own answer, because one is made for each long poll.
    """

    __slots__ = (
        "_attempt",
        "_bytes_at_most",
        "_ended",
        "_plan",
        "_reader",
        "_rights_generation",
        "_take",
        "_wait_ms",
    )

    def __init__(
        self, take: TakeAnswer, reader: Reader, plan: FetchPlan, attempt: FetchAttempt, wait_ms: int
    ) -> None:
        """:param attempt: what was read in this turn, and was not enough; its bytes are given back"""
        Completion.__init__(self)
        self._take = take
        self._reader = reader
        self._plan = plan
        self._attempt = attempt
        self._wait_ms = wait_ms
        self._ended = False
        self._bytes_at_most = 0
        self._rights_generation = reader.context.rights_generation
        if attempt.size_bytes:
            attempt.release()
        reader.ports.parking.until(self, wait_ms, reader.context.received_ms)
        if self._ended:
            return
        for read in attempt.reads:
            assert read.partition is not None, "a fetch with an error is not parked"
            read.parked = self
            read.partition.watchers.add(read, reader.follower)
        if reader.bytes_min > 1:
            self._count()
        reader.context.when_gone(self.gone)

    def moved(self, partition_read: PartitionRead) -> None:
        """Count a partition's new bytes, and answer if there may be enough of them."""
        reader, partition = self._reader, partition_read.partition
        assert partition is not None, "it is watched"
        if reader.follower and reader.is_throttled(partition):
            return  # a read would give nothing, for each append anew
        if reader.bytes_min > 1:
            end = reader.end_of(partition)
            if end <= partition_read.asked.fetch_offset:
                return
            grown = _counted(partition).at_most(end) - partition_read.total_before
            self._bytes_at_most += partition_read.bytes_counted + grown - partition_read.bytes_at_most
            partition_read.bytes_at_most = partition_read.bytes_counted + grown
            if self._bytes_at_most < reader.bytes_min:
                return
        self._try()

    def changed(self, partition_read: PartitionRead) -> None:
        """Answer if the partition has an error now, or diverges. It may have become another one of the same name."""
        before = partition_read.partition
        partition_read.run_again(self._reader, 0, minimum_one_batch=False)
        partition_read.age = CHANGED  # nothing was read, so the answer must look again
        if partition_read.error or partition_read.diverging is not None:
            self._try()
            return
        partition = partition_read.partition
        if partition is not before and partition is not None and before is not None:
            before.watchers.remove(partition_read, self._reader.follower)
            partition.watchers.add(partition_read, self._reader.follower)
            partition_read.total_before = _counted(partition).at_least(partition.log.log_start_offset)
        self.moved(partition_read)

    def expire(self) -> None:
        """As ``Expires.expire``: answer with the bytes that are there, without an error."""
        self._ended = True
        try:
            self._again()
            self._answer()
        except Exception as error:
            self._defect(error)

    def _again(self) -> None:
        """Bring the attempt up to date. Rights may have changed while the request waited: then each partition of a
        consumer is looked for anew, which asks for them."""
        reader, attempt = self._reader, self._attempt
        generation = reader.context.rights_generation
        if generation != self._rights_generation:
            self._rights_generation = generation
            if reader.follower and not reader.context.authorize("ClusterAction", "Cluster", "kafka-cluster"):
                attempt.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                return
            for read in attempt.reads:
                read.age = CHANGED
        attempt.again(reader)

    def gone(self) -> None:
        """End the wait, because the connection has closed: the time that the client asked for may be long."""
        self._reader.ports.parking.forget(self, self._wait_ms)
        self._leave()
        self.complete(FetchResponse())

    def _try(self) -> None:
        """Read what moved. If it isn't enough after all, wait on with an exact count."""
        attempt, reader = self._attempt, self._reader
        try:
            if reader.context.rights_generation != self._rights_generation:
                self._again()
            else:
                attempt.again(reader)  # without a call in between, because each long poll comes here
            if not attempt.enough(reader):
                attempt.release()
                if reader.bytes_min > 1:
                    self._count()
                return
            reader.ports.parking.completed(self, self._wait_ms)
            self._answer()
        except Exception as error:
            self._defect(error)

    def _count(self) -> None:
        """Begin to count at what the attempt has read."""
        reader = self._reader
        self._bytes_at_most = 0
        for read in self._attempt.reads:
            partition = read.partition
            assert partition is not None, "a fetch with an error is not parked"
            counted_to = max(reader.end_of(partition), read.asked.fetch_offset)
            read.total_before = _counted(partition).at_least(counted_to)
            read.bytes_at_most = read.bytes_counted
            self._bytes_at_most += read.bytes_counted

    def _answer(self) -> None:
        self._leave()
        reader = self._reader
        reader.context.when_gone(None)
        answer = self._take(reader, self._plan, self._attempt)
        if isinstance(answer, Completion):
            answer.when_done(self._take_cold)
        else:
            self.complete(answer)

    def _take_cold(self, done: Completion[FetchResponse]) -> None:
        if done.error is None:
            self.complete(done.result())
        else:
            self.fail(done.error)

    def _leave(self) -> None:
        self._ended = True
        log_end = self._reader.follower
        for read in self._attempt.reads:
            read.parked = None
            if read.partition is not None:
                read.partition.watchers.remove(read, log_end)

    def _defect(self, error: Exception) -> None:
        if not self._ended:
            self._reader.ports.parking.forget(self, self._wait_ms)
        self._leave()
        if not self.done:
            self.fail(error)


def _counted(partition: Partition) -> WrittenBytes:
    return partition.watchers.counted(partition.log.placed_end_offset)
