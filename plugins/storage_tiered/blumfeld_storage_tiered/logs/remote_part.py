"""The remote part of one log: its segments as the metadata topic tells, read within a time, with Kafka's errors."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from blumfeld.log.checkpoints import MalformedFile
from blumfeld.log.leader_epochs import FILE_NAME, LeaderEpochCache
from blumfeld.log.segments.index import CorruptIndex
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld.spi.object_store import StoreError
from blumfeld.spi.parts import release
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Runtime, Task
from blumfeld.spi.storage import AuxFiles, LogRead, PartitionLog, TimestampOffset
from blumfeld.spi.tiering import LogStartState, RemoteRead
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_storage_tiered.cache.segment_bytes import RemoteFiles, SegmentBytes
from blumfeld_storage_tiered.catalog.catalog import RemoteLogCatalog, Served
from blumfeld_storage_tiered.catalog.counts import Counts
from blumfeld_storage_tiered.catalog.segment import RemoteSegment, TopicIdPartition
from blumfeld_storage_tiered.logs.remote_reads import RemoteReads
from blumfeld_storage_tiered.objects.names import SegmentFile

T = TypeVar("T")

FAILURES = (StoreError, BrokerError, CorruptIndex, MalformedFile, OSError)
"""The errors that end a read."""


class RemoteReading(Protocol):
    """The parts of a node that all its logs read with."""

    runtime: Runtime
    events: EventLog
    repeated: RepeatedEvents
    source: SegmentBytes
    counts: Counts

    def catalog(self, partition: TopicIdPartition) -> RemoteLogCatalog | None:
        """Return what the store has of a partition; ``None`` as long as that isn't known."""
        ...

    async def ready(self, partition: TopicIdPartition) -> RemoteLogCatalog:
        """Wait until it is known."""
        ...

    @property
    def files(self) -> RemoteFiles:
        """The segments in the store."""
        ...

    def fetch_wait_ms(self) -> int:
        """``remote.fetch.max.wait.ms``, as it is now."""
        ...


class RemotePart:
    """The remote part of one log."""

    def __init__(self, node: RemoteReading, partition: TopicIdPartition, aux: AuxFiles) -> None:
        self.partition = partition
        self._node = node
        self._aux = aux
        self._reads = RemoteReads(node.runtime, node.source, self)
        self._works: dict[Task, None] = {}
        self._epochs_read = b""
        self._entries: Sequence[EpochEntry] = ()

    def entries(self) -> Sequence[EpochEntry]:
        """Return the entries of :meth:`epochs`. They are decoded once: every read asks for them several times.

        :raises MalformedFile: somebody has changed the file
        """
        data = self._aux.read(FILE_NAME) or b""
        if data != self._epochs_read:
            self._epochs_read, self._entries = data, LeaderEpochCache.decode(data, FILE_NAME).entries
        return self._entries

    def epochs(self) -> LeaderEpochCache:
        """Return the leader epochs of the whole log, as far as they have sealed segments."""
        return LeaderEpochCache(self.entries())

    def catalog(self) -> RemoteLogCatalog:
        """Return what the store has.

        :raises BrokerError: it isn't known yet
        """
        catalog = self._node.catalog(self.partition)
        if catalog is None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "the remote log metadata is still being read")
        return catalog

    def copied_end_offset(self, local_start_offset: int) -> int:
        """The offset up to which the store has all from the local start on; -1 as long as that isn't known."""
        catalog = self._node.catalog(self.partition)
        return -1 if catalog is None else catalog.served_end_offset(local_start_offset, self.entries())

    # History

    def find(self, offset: int) -> Served | None:
        """As ``History.find``."""
        return self.catalog().find(offset, self.entries())

    def lineage(self, offset: int) -> Iterator[Served]:
        """As ``History.lineage``."""
        return self.catalog().lineage(self.entries(), offset)

    def next_with_transactions(self, offset: int) -> RemoteSegment | None:
        """As ``History.next_with_transactions``."""
        return self.catalog().next_with_transactions(offset, self.entries())

    # Reads

    def read(self, offset: int, bytes_max: int, minimum_one_batch: bool) -> RemoteRead:
        """Read below the border. What takes longer than ``remote.fetch.max.wait.ms`` gives no parts: the chunk comes
        into the cache all the same, so a later fetch finds it."""
        nothing = LogRead([], 0, offset)

        counts = self._node.counts.of(self.partition.topic)
        counts.fetches += 1

        async def read() -> LogRead:
            try:
                found = await self._reads.read(offset, bytes_max, minimum_one_batch)
                if found is None:
                    raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"no remote segment has offset {offset}")
            except FAILURES:
                counts.fetch_errors += 1
                raise
            counts.fetched_bytes += found.size_bytes
            return found

        def expire() -> None:
            self._node.counts.expired_fetches += 1
            outcome.give_up()

        outcome = _Read(nothing)
        outcome.task = self._start(read, outcome)
        if not outcome.done:
            timer = self._node.runtime.call_later(self._node.fetch_wait_ms(), expire)
            outcome.when_done(lambda _: timer.cancel())
        return outcome

    def offset_for_time(
        self, timestamp_ms: int, start_offset: int, local: PartitionLog
    ) -> Completion[TimestampOffset | None]:
        """Look in the store first, then in the local log."""

        async def look() -> TimestampOffset | None:
            border = local.log_start_offset
            found = await self._reads.first_at(timestamp_ms, start_offset, border)
            return found if found is not None else await _arrived(local.offset_for_time(timestamp_ms))

        return self._looks(look)

    def max_timestamp(self, start_offset: int, local: PartitionLog) -> Completion[TimestampOffset | None]:
        """Look in both; the first of equals counts, which is the store's."""

        async def look() -> TimestampOffset | None:
            here = await _arrived(local.max_timestamp())
            there = await self._reads.highest_timestamp(start_offset, local.log_start_offset)
            if here is None or (there is not None and there.timestamp_ms >= here.timestamp_ms):
                return there
            return here

        return self._looks(look)

    def state_at(self, offset: int, leader_epoch: int) -> Completion[LogStartState]:
        """As ``TieredLog.state_at``."""
        counts = self._node.counts.of(self.partition.topic)
        counts.states += 1

        async def look() -> LogStartState:
            try:
                return await self._state_at(offset, leader_epoch)
            except FAILURES:
                counts.state_errors += 1
                raise

        return self._looks(look)

    async def _state_at(self, offset: int, leader_epoch: int) -> LogStartState:
        segment = self.catalog().lookup(leader_epoch, offset - 1)
        if segment is None:
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"no remote segment of epoch {leader_epoch} ends at {offset}"
            )
        files = self._node.files
        data = await files.read_file(segment, SegmentFile.LEADER_EPOCHS)
        epochs = LeaderEpochCache.decode(data or b"", FILE_NAME)
        producers = await files.read_file(segment, SegmentFile.PRODUCER_SNAPSHOT)
        entries = tuple(EpochEntry(*entry) for entry in epochs.entries)
        return LogStartState(offset=segment.end_offset + 1, epochs=entries, producers=producers)

    def _looks(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Completion[T]:
        outcome: Completion[T] = Completion()
        self._start(work, outcome)
        return outcome

    def _start(self, work: Callable[[], Coroutine[Any, Any, T]], outcome: Completion[T]) -> Task:
        async def run() -> None:
            try:
                if self._node.catalog(self.partition) is None:
                    await self._node.ready(self.partition)
                result = await work()
            except FAILURES as error:
                self._failed(error, outcome)
            else:
                if outcome.done:
                    if isinstance(result, LogRead):
                        release(result.parts)
                else:
                    outcome.complete(result)
            finally:
                self._works.pop(task, None)
                if not outcome.done:
                    outcome.fail(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "the log was closed"))

        task = self._node.runtime.spawn(run(), f"remote {self.partition.topic}-{self.partition.partition}")
        self._works[task] = None
        return task

    def _failed(self, error: Exception, outcome: Completion[Any]) -> None:
        node = self._node
        name = f"{self.partition.topic}-{self.partition.partition}"
        node.repeated.say(node.events.warning, "remote read failed", name, partition=name, error=str(error))
        if not outcome.done:
            known = error if isinstance(error, BrokerError) and error.retriable else None
            outcome.fail(known or BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))

    def leave(self) -> None:
        """End every read: the log is closed, or goes on without its remote part."""
        for task in list(self._works):
            task.cancel()


class _Read(RemoteRead):
    """A read that can be given up."""

    __slots__ = ("_nothing", "task")

    def __init__(self, nothing: LogRead) -> None:
        super().__init__()
        self._nothing = nothing
        self.task: Task | None = None

    def give_up(self) -> None:
        """As ``RemoteRead.give_up``."""
        if not self.done:
            self.complete(self._nothing)
            if self.task is not None:
                self.task.cancel()


async def _arrived(outcome: T | Completion[T]) -> T:
    return await outcome if isinstance(outcome, Completion) else outcome
