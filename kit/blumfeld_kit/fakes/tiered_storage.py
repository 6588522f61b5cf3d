"""A tiered storage around any other one, whose remote store is a dict. It copies when a test says so.

It shows what the broker may rely on (:mod:`blumfeld.spi.tiering`), and fails or hangs when it is told to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import msgspec

from blumfeld.config.values import TopicConfig
from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS
from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.log.producers.aborted_transactions import decode_aborted
from blumfeld.log.segments.file_names import Suffix, segment_name
from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.storage import (
    LogListener,
    LogRead,
    LogReadOutcome,
    LogStorage,
    OffsetOutOfRangeError,
    PartitionLog,
    SegmentedLog,
    TimestampOffset,
    TopicPartition,
)
from blumfeld.spi.tiering import LogStartState, RemoteRead
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import times
from blumfeld.wire.errors import BrokerError, ErrorCode

T = TypeVar("T")

START_FILE = "remote-log-start-offset"
"""The small file with the start of the whole log."""


class RemoteSegment(msgspec.Struct, frozen=True):
    """A copied segment."""

    base_offset: int
    next_offset: int
    batches: list[bytes]
    aborted: list[AbortedTransaction]
    state: LogStartState
    """The state at its end."""


class RemoteStore:
    """The store of a cluster, and what its clients are to meet. It knows no leader epochs, so that a leader which lacks
    committed records isn't for it."""

    def __init__(self) -> None:
        self.segments: dict[TopicPartition, list[RemoteSegment]] = {}
        self.answers_ms = 5.0
        """Time until an answer comes."""
        self.hangs = False
        """Nothing is answered."""
        self.fails = False
        """Everything is answered with an error."""
        self.asked = 0
        self.given_up = 0
        """Reads whose reader has gone."""


class _Read(RemoteRead):
    """A read of the store."""

    __slots__ = ("_store",)

    def __init__(self, store: RemoteStore) -> None:
        super().__init__()
        self._store = store

    def give_up(self) -> None:
        self._store.given_up += 1
        if not self.done:
            self.complete(LogRead([], 0, 0))


class FakeTieredLog:
    """``TieredLog`` around a segmented log. What isn't said here is the inner log's."""

    def __init__(
        self, storage: FakeTieredStorage, partition: TopicPartition, inner: SegmentedLog, config: TopicConfig
    ) -> None:
        self.inner = inner
        self.config = config
        self._storage, self._store, self._runtime = storage, storage.store, storage.runtime
        self._partition = partition
        kept = inner.aux.read(START_FILE)
        self._start = inner.log_start_offset if kept is None else int(kept)
        self._begin_at(self._start)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def log_start_offset(self) -> int:
        return min(self._start, self.inner.log_start_offset)

    @property
    def local_log_start_offset(self) -> int:
        return self.inner.log_start_offset

    @property
    def remote(self) -> list[RemoteSegment]:
        return self._store.segments.setdefault(self._partition, [])

    @property
    def copied_end_offset(self) -> int:
        return min(self.remote[-1].next_offset, self.inner.written_end_offset) if self.remote else -1

    def copy(self, end_offset: int | None = None) -> None:
        """Copy the sealed segments that end at or below ``end_offset``."""
        for segment in self.inner.segments():
            end = segment.next_offset
            if not segment.sealed or end <= self.copied_end_offset:
                continue
            if end_offset is not None and end > end_offset:
                break
            held = [b for b in self.inner.batches(segment.base_offset) if b.base_offset < end]
            index = self.inner.aux.read(segment_name(segment.base_offset, Suffix.TRANSACTION_INDEX)) or b""
            epochs = LeaderEpochCache.decode(self.inner.aux.read(EPOCHS) or b"", EPOCHS)
            epochs.truncate_from_end(end)
            self.remote.append(
                RemoteSegment(
                    segment.base_offset,
                    end,
                    [bytes(batch.data) for batch in held],
                    list(decode_aborted(index)),
                    LogStartState(
                        offset=end,
                        epochs=tuple(epochs.entries),
                        producers=self.inner.aux.read(segment_name(end, Suffix.PRODUCER_SNAPSHOT)),
                    ),
                )
            )

    def read(self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool) -> LogReadOutcome:
        if offset >= self.local_log_start_offset:
            return self.inner.read(offset, bytes_max, end_offset, minimum_one_batch)
        if offset < self.log_start_offset:
            raise OffsetOutOfRangeError(f"{offset} is below {self.log_start_offset}")
        return self._asks(lambda: self._read(offset, bytes_max, minimum_one_batch), LogRead([], 0, offset))

    def _read(self, offset: int, bytes_max: int, minimum_one_batch: bool) -> LogRead:
        parts: list[Any] = []
        size = 0
        segment = next((s for s in self.remote if s.base_offset <= offset < s.next_offset), None)
        if segment is None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
        end = offset
        for data in segment.batches:
            batch = RecordBatch(memoryview(data))
            if batch.next_offset <= offset:
                continue
            if size + len(data) > bytes_max and (parts or not minimum_one_batch):
                break
            parts.append(data)
            size += len(data)
            end = batch.next_offset
        markers = [
            entry for later in self.remote for entry in later.aborted
        ]  # a later segment may have the marker
        aborted = [entry for entry in markers if entry.last_offset >= offset and entry.first_offset < end]
        return LogRead(parts, size, end, aborted)

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        return self.inner.batches(max(offset, self.local_log_start_offset))

    def offset_for_time(self, timestamp_ms: int) -> TimestampOffset | Completion[Any] | None:
        if not any(batch.max_timestamp >= timestamp_ms for batch in self._remote_batches()):
            return self.inner.offset_for_time(timestamp_ms)
        return self._asks(lambda: self._first_at(timestamp_ms))

    def max_timestamp(self) -> TimestampOffset | Completion[Any] | None:
        remote = max((batch.max_timestamp for batch in self._remote_batches()), default=-1)
        local = max((batch.max_timestamp for batch in self.batches(0)), default=-1)
        return self.inner.max_timestamp() if local > remote else self._asks(lambda: self._first_at(remote))

    def _remote_batches(self) -> Iterator[RecordBatch]:
        for segment in self.remote:
            for data in segment.batches:
                if (batch := RecordBatch(memoryview(data))).next_offset > self.log_start_offset:
                    yield batch

    def _first_at(self, timestamp_ms: int) -> TimestampOffset | None:
        for batch in self._remote_batches():
            for time_ms, offset in times(batch):
                if time_ms >= timestamp_ms and offset >= self.log_start_offset:
                    return TimestampOffset(time_ms, offset, batch.partition_leader_epoch)
        return None

    def state_at(self, offset: int, leader_epoch: int) -> Completion[LogStartState]:
        return self._asks(lambda: self._state_at(offset))

    def _state_at(self, offset: int) -> LogStartState:
        for segment in self.remote:
            if segment.base_offset < offset <= segment.next_offset:
                return segment.state
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)

    def _asks(self, look_up: Callable[[], T], in_vain: T | None = None) -> Completion[T]:
        """Answer a while later; with ``in_vain`` after ``remote.fetch.max.wait.ms`` if the store hangs."""
        store = self._store
        store.asked += 1
        answered: Completion[Any] = _Read(store)

        def answer() -> None:
            if answered.done:
                return
            try:
                if store.fails:
                    raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
                answered.complete(look_up())
            except BrokerError as error:
                answered.fail(error)

        def give_up() -> None:
            if answered.done:
                return
            if in_vain is None:
                answered.fail(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR))
            else:
                answered.complete(in_vain)

        if store.hangs:
            self._runtime.call_later(self._storage.wait_ms, give_up)
        else:
            self._runtime.call_later(store.answers_ms, answer)
        return answered

    def advance_log_start(self, offset: int) -> None:
        if offset > self.local_log_start_offset:
            self.inner.advance_log_start(offset)
        self._begin_at(max(self._start, offset))

    def truncate_to(self, offset: int) -> None:
        self.inner.truncate_to(offset)
        self._begin_at(min(self._start, offset))

    def truncate_fully(self, start_offset: int, log_start_offset: int | None = None) -> None:
        self.inner.truncate_fully(start_offset)
        self._begin_at(start_offset if log_start_offset is None else log_start_offset)

    def _begin_at(self, offset: int) -> None:
        self._start = offset
        if self.inner.aux.read(START_FILE) != str(offset).encode():
            self.inner.aux.write(START_FILE, str(offset).encode())


class FakeTieredStorage:
    """``TieringStorage`` around another storage.

    :param store: the cluster's; several nodes may share it
    """

    def __init__(self, inner: LogStorage, runtime: Runtime, store: RemoteStore | None = None) -> None:
        self.inner = inner
        self.runtime = runtime
        self.store = RemoteStore() if store is None else store
        self.wait_ms = 500.0
        """``remote.fetch.max.wait.ms``."""
        self.refuses: OSError | None = None
        """The next :meth:`log_with` fails with it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def open_log(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        listener: LogListener,
        *,
        directory_id: bytes | None = None,
    ) -> PartitionLog:
        log = await self.inner.open_log(partition, topic_id, config, listener, directory_id=directory_id)
        return self._around(partition, log, config)

    def log_with(self, partition: TopicPartition, log: PartitionLog, config: TopicConfig) -> PartitionLog:
        if self.refuses is not None:
            error, self.refuses = self.refuses, None
            raise error
        around = log if isinstance(log, FakeTieredLog) else None
        inner = log if around is None else around.inner
        inner.reconfigure(config)
        if around is not None and _tiers(config):
            around.config = config
            return log
        if around is not None:
            self.store.segments.pop(partition, None)
        else:
            inner.aux.delete(START_FILE)  # an earlier tiering's
        return self._around(partition, inner, config)

    def _around(self, partition: TopicPartition, log: PartitionLog, config: TopicConfig) -> PartitionLog:
        if not _tiers(config):
            return log
        return cast("PartitionLog", FakeTieredLog(self, partition, cast("SegmentedLog", log), config))


def _tiers(config: TopicConfig) -> bool:
    return config.remote_storage_enable and not config.compacts


def tiered_log(log: PartitionLog) -> FakeTieredLog:
    """The same log, which must be one of this storage's."""
    assert isinstance(log, FakeTieredLog)
    return log


__all__: Sequence[str] = (
    "FakeTieredLog",
    "FakeTieredStorage",
    "RemoteSegment",
    "RemoteStore",
    "tiered_log",
)
