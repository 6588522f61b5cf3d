"""The simplest storage plug-in: logs in memory, gone with the process. It is an example, and fast tests run on it.

Copy it to begin your own. ``blumfeld_kit.storage_contract`` tests what a storage must do.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from blumfeld.config.values import TopicConfig
from blumfeld.log.segments.file_names import Suffix, segment_name
from blumfeld.log.segments.rules import ActiveSegment, IncomingBatch, RollLimits, should_roll
from blumfeld.spi.compaction import CompactionRequest, CompactionResult
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition, NoOptions, hookimpl
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.storage import (
    AuxFiles,
    InconsistentTopicIdError,
    LogDirInfo,
    LogListener,
    LogRead,
    LogStorage,
    OffsetOutOfRangeError,
    PartitionLog,
    SegmentInfo,
    TimestampOffset,
    TopicPartition,
    WriteOutcome,
)
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import times
from blumfeld_storage_memory.compaction import MemorySource, MemoryTarget, compact_in_memory
from blumfeld_storage_memory.small_files import MemoryAux


class _Segment:
    """A segment: the bytes of its batches in order, and the last offset of each."""

    def __init__(self, base_offset: int, now_ms: int) -> None:
        self.base_offset = self.next_offset = base_offset
        self.batches: list[bytes] = []
        self.lasts: list[int] = []
        self.created_ms = self.modified_ms = now_ms
        self.size_bytes = 0

    def first_at(self, offset: int) -> int:
        """Return the number of the first batch that ends at ``offset`` or behind."""
        return bisect_left(self.lasts, offset)

    def views(self, start: int = 0) -> Iterator[RecordBatch]:
        """Return the batches from number ``start`` on."""
        for data in self.batches[start:]:
            yield RecordBatch(memoryview(data))

    def add(self, batch: RecordBatch, now_ms: int) -> None:
        """Keep a copy: the connection owns the batch's buffer."""
        self.batches.append(bytes(batch.data))
        self.lasts.append(batch.last_offset)
        self.size_bytes += batch.size_bytes
        self.next_offset = batch.next_offset
        self.modified_ms = now_ms

    def cut(self, at: int) -> None:
        """Forget the batches from number ``at`` on."""
        self.size_bytes -= sum(map(len, self.batches[at:]))
        del self.batches[at:], self.lasts[at:]


class MemoryLog:
    """``PartitionLog`` in memory. A placed batch is written at the end of the turn, and a written one counts as
    flushed.
    """

    def __init__(
        self, runtime: Runtime, directory_id: bytes, config: TopicConfig, listener: LogListener
    ) -> None:
        self.aux: AuxFiles = MemoryAux()
        self.config = config
        self.listener = listener
        self.log_start_offset = 0
        self.placed_end_offset = self.written_end_offset = self.flushed_end_offset = 0
        self.cleaned_end_offset = 0
        self.directory_id = directory_id
        self._runtime = runtime
        self._placed: list[RecordBatch] = []
        self._segments = [_Segment(0, runtime.now_ms())]

    def place(self, batch: RecordBatch, leader_epoch: int) -> int:
        """Give the batch the next offsets."""
        base_offset = self.placed_end_offset
        batch.assign_offset(base_offset, leader_epoch)
        self._placed.append(batch)
        self.placed_end_offset = batch.next_offset
        return base_offset

    def place_as_is(self, batch: RecordBatch) -> None:
        """Place a batch that already has its offsets."""
        if batch.base_offset < self.placed_end_offset:
            raise ValueError(f"a batch at {batch.base_offset} can't follow {self.placed_end_offset}")
        self._placed.append(batch)
        self.placed_end_offset = batch.next_offset

    def write(self, done: Callable[[WriteOutcome], None]) -> None:
        """Keep every placed batch."""
        placed, self._placed = self._placed, []
        for batch in placed:
            if self._is_full(batch):
                self._roll(batch.base_offset)
            self._segments[-1].add(batch, self._runtime.now_ms())
        self.written_end_offset = self.flushed_end_offset = self.placed_end_offset
        done(WriteOutcome(self.written_end_offset))

    def _is_full(self, batch: RecordBatch) -> bool:
        segment, config = self._segments[-1], self.config
        if not segment.batches:
            return False
        active = ActiveSegment(
            base_offset=segment.base_offset,
            size_bytes=segment.size_bytes,
            created_ms=segment.created_ms,
            first_timestamp_ms=next(segment.views()).max_timestamp,
        )
        limits = RollLimits(segment_bytes=config.segment_bytes, segment_ms=config.roll_ms)
        incoming = IncomingBatch(batch.size_bytes, batch.last_offset, batch.max_timestamp)
        return should_roll(active, incoming, self._runtime.now_ms(), limits) is not None

    def roll(self) -> None:
        """Seal the active segment now."""
        if self._segments[-1].batches:
            self._roll(self.written_end_offset)

    def _roll(self, base_offset: int) -> None:
        self._segments[-1].next_offset = base_offset
        self._segments.append(_Segment(base_offset, self._runtime.now_ms()))
        self.listener.rolled(base_offset)

    def flush(self) -> Completion[int]:
        """Complete at once: nothing here is more durable than memory."""
        return Completion.of(self.flushed_end_offset)

    def _at(self, offset: int) -> int:
        return max(bisect_right(self._segments, offset, key=lambda s: s.base_offset) - 1, 0)

    def read(self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool) -> LogRead:
        """Return whole batches from the one that contains ``offset`` on."""
        if not self.log_start_offset <= offset <= self.written_end_offset:
            raise OffsetOutOfRangeError(
                f"{offset} is outside of {self.log_start_offset}..{self.written_end_offset}"
            )
        parts: list[bytes | bytearray | memoryview] = []
        size = 0
        for segment in self._segments[self._at(offset) :]:
            for at in range(segment.first_at(offset), segment.first_at(end_offset)):
                data = segment.batches[at]
                if size + len(data) > bytes_max and (parts or not minimum_one_batch):
                    return LogRead([*parts], size, segment.lasts[at])
                parts.append(data)
                size += len(data)
        return LogRead([*parts], size, end_offset if parts else offset)

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        """Return the written batches from the one that contains ``offset`` on."""
        for segment in self._segments[self._at(offset) :]:
            yield from segment.views(segment.first_at(offset))

    def offset_for_time(self, timestamp_ms: int) -> TimestampOffset | None:
        """Return the first record with a timestamp ≥ ``timestamp_ms``."""
        for batch in self.batches(self.log_start_offset):
            if batch.max_timestamp < timestamp_ms:
                continue
            for time_ms, offset in times(batch):
                if time_ms >= timestamp_ms and offset >= self.log_start_offset:
                    return TimestampOffset(time_ms, offset, batch.partition_leader_epoch)
        return None

    def max_timestamp(self) -> TimestampOffset | None:
        """Return the first record with the highest timestamp."""
        highest = max((b.max_timestamp for b in self.batches(self.log_start_offset)), default=-1)
        return self.offset_for_time(highest) if highest >= 0 else None

    def segments(self) -> Sequence[SegmentInfo]:
        """Return all segments, the active one last."""
        return [
            SegmentInfo(
                base_offset=s.base_offset,
                next_offset=s.next_offset,
                size_bytes=s.size_bytes,
                max_timestamp_ms=_highest(s),
                created_ms=s.created_ms,
                modified_ms=s.modified_ms,
                sealed=s is not self._segments[-1],
                files=(),
            )
            for s in self._segments
        ]

    def size_bytes(self) -> int:
        """Return the bytes of all record batches."""
        return sum(segment.size_bytes for segment in self._segments)

    def truncate_to(self, offset: int) -> None:
        """Drop all batches with an offset ≥ ``offset``."""
        self._end_at(self.written_end_offset)
        if offset >= self.written_end_offset:
            return
        if offset <= self._segments[0].base_offset:
            self.truncate_fully(offset)
            return
        del self._segments[self._at(offset - 1) + 1 :]
        segment = self._segments[-1]
        at = segment.first_at(offset)
        for batch in segment.views(at):
            offset = min(offset, batch.base_offset)
            break
        segment.cut(at)
        segment.next_offset = offset
        self._end_at(offset)

    def truncate_fully(self, start_offset: int) -> None:
        """Drop everything."""
        self._segments = [_Segment(start_offset, self._runtime.now_ms())]
        self.log_start_offset = start_offset
        self._end_at(start_offset)

    def _end_at(self, offset: int) -> None:
        self._placed = []
        self.placed_end_offset = self.written_end_offset = self.flushed_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.cleaned_end_offset = min(self.cleaned_end_offset, offset)

    def advance_log_start(self, offset: int) -> None:
        """Let the log start at ``offset``."""
        if offset > self.written_end_offset:
            raise ValueError(f"the log ends at {self.written_end_offset}, and can't start at {offset}")
        self.log_start_offset = max(self.log_start_offset, offset)

    def drop_segments(self, end_offset: int) -> int:
        """Forget sealed segments that end at or below ``end_offset``."""
        count = 0
        while len(self._segments) > 1 and self._segments[0].next_offset <= end_offset:
            del self._segments[0]
            count += 1
        self.log_start_offset = max(self.log_start_offset, self._segments[0].base_offset)
        return count

    def compact(self, request: CompactionRequest) -> Completion[CompactionResult]:
        """Run a cleaner pass at once, with the algorithm that every storage uses."""
        sealed = [s for s in self._segments[:-1] if s.next_offset <= request.end_offset]
        sources = [MemorySource(s.base_offset, s.next_offset, s.modified_ms, s.batches) for s in sealed]
        done: Completion[CompactionResult] = Completion()
        try:
            compacted = compact_in_memory(sources, request)
        except OSError as error:
            done.fail(error)
            return done
        for target in compacted.targets:
            self._replace(target)
        self.cleaned_end_offset = compacted.result.cleaned_end_offset
        done.complete(compacted.result)
        return done

    def _replace(self, target: MemoryTarget) -> None:
        start, count = self._at(target.replaced[0]), len(target.replaced)
        segment = _Segment(target.base_offset, target.modified_ms)
        segment.batches, segment.lasts = target.batches, target.lasts
        segment.size_bytes = sum(map(len, target.batches))
        segment.next_offset = self._segments[start + count - 1].next_offset
        self._segments[start : start + count] = [segment]
        for base_offset in target.replaced:
            self.aux.delete(segment_name(base_offset, Suffix.TRANSACTION_INDEX))
        if target.transaction_index:
            self.aux.write(
                segment_name(target.base_offset, Suffix.TRANSACTION_INDEX), target.transaction_index
            )

    def reconfigure(self, config: TopicConfig) -> None:
        """Take the topic's new configuration."""
        self.config = config

    def close(self) -> None:
        """Do nothing: a log that is opened again is the same."""
        self._end_at(self.written_end_offset)


def _highest(segment: _Segment) -> int:
    highest = max((batch.max_timestamp for batch in segment.views()), default=-1)
    return segment.modified_ms if highest < 0 and segment.batches else highest


class MemoryStorage:
    """``LogStorage`` in memory. A closed log may be opened again. A deleted one is gone."""

    compacts = True
    log_class = MemoryLog

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._directory_id = runtime.new_uuid()
        self._logs: dict[TopicPartition, tuple[bytes, MemoryLog]] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}

    def promise(self) -> str:
        """Say what an ack means on this storage."""
        return "memory: gone with the process"

    async def start(self, cluster_id: str, node_id: int) -> None:
        """Do nothing: there is nothing to lock or to find."""

    def log_dirs(self) -> Sequence[LogDirInfo]:
        """Return one directory that stands for the memory."""
        return [LogDirInfo(path="memory", directory_id=self._directory_id, online=True)]

    def partitions(self) -> Sequence[tuple[TopicPartition, bytes]]:
        """Return nothing: a start finds no logs."""
        return []

    async def open_log(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        listener: LogListener,
        *,
        directory_id: bytes | None = None,
    ) -> PartitionLog:
        """Return the log as it was closed, or a new one."""
        kept = self._logs.get(partition)
        if kept is None:
            kept = self._logs[partition] = (
                topic_id,
                MemoryLog(self._runtime, self._directory_id, config, listener),
            )
        held, log = kept
        if held != topic_id:
            raise InconsistentTopicIdError(
                f"the log of {partition} is of the topic {held.hex()}, not {topic_id.hex()}"
            )
        log.config, log.listener = config, listener
        return log

    def delete_log(self, partition: TopicPartition) -> None:
        """Forget the log."""
        self._logs.pop(partition, None)

    def set_aside_log(self, partition: TopicPartition) -> None:
        """Do nothing: a start finds no logs."""

    def checkpoint(self, high_watermarks: Iterable[tuple[TopicPartition, int]]) -> None:
        """Remember the high watermarks."""
        self._high_watermarks = dict(high_watermarks)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the high watermarks of the last checkpoint."""
        return dict(self._high_watermarks)

    def previous_broker_epoch(self) -> int:
        """Return -1: there was no broker before."""
        return -1

    async def stop(self, broker_epoch: int) -> None:
        """Do nothing: nothing is open."""


class Plugin:
    """Log storage in memory."""

    options_class = NoOptions
    roles = ("storage",)

    @hookimpl
    def blumfeld_make_storage(self, composition: Composition) -> LogStorage:
        """Return a new memory for each node."""
        return MemoryStorage(composition.runtime)
