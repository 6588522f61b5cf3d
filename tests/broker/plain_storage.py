"""Storage in a list, which fails and waits on demand: for what a broker does when its disk does not do its part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from blumfeld.config.values import TopicConfig
from blumfeld.spi.compaction import CompactionRequest, CompactionResult
from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import (
    LogDirInfo,
    LogDirNotFoundError,
    LogListener,
    LogMove,
    LogNotOpenError,
    LogRead,
    LogReadOutcome,
    OffsetOutOfRangeError,
    SegmentInfo,
    StorageWatcher,
    TimestampOffset,
    TopicPartition,
    WriteOutcome,
)
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import records


class PlainAux:
    """``AuxFiles`` in a dict."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def names(self) -> list[str]:
        return sorted(self.files)

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def write(self, name: str, data: bytes) -> None:
        self.files[name] = data

    write_unsynced = write

    def delete(self, name: str) -> None:
        self.files.pop(name, None)


class PlainLog:
    """``PartitionLog`` whose sealed segments are cut by :meth:`roll` only."""

    def __init__(self, directory_id: bytes = b"d" * 16) -> None:
        self.log_start_offset = 0
        self.placed_end_offset = 0
        self.written_end_offset = 0
        self.flushed_end_offset = 0
        self.cleaned_end_offset = 0
        self.directory_id = directory_id
        self.aux = PlainAux()
        self.listener: LogListener | None = None
        self.fail_next_write = False
        self.hold_writes = False
        self.cold: list[Completion[LogRead]] | None = None
        """While a list: reads give completions, kept here."""
        self.closed = False
        self._batches: list[bytes] = []
        self._placed: list[RecordBatch] = []
        self._bases = [0]
        self._held: list[Callable[[], None]] = []

    def place(self, batch: RecordBatch, leader_epoch: int) -> int:
        base_offset = self.placed_end_offset
        batch.assign_offset(base_offset, leader_epoch)
        self.placed_end_offset = batch.next_offset
        self._placed.append(batch)
        return base_offset

    def place_as_is(self, batch: RecordBatch) -> None:
        if batch.base_offset < self.placed_end_offset:
            raise ValueError("below the placed end")
        self.placed_end_offset = batch.next_offset
        self._placed.append(batch)

    def write(self, done: Callable[[WriteOutcome], None]) -> None:
        if self.hold_writes:
            self._held.append(lambda: self._write(done))
        else:
            self._write(done)

    def let_write(self) -> None:
        self.hold_writes = False
        held, self._held = self._held, []
        for one in held:
            one()

    def _write(self, done: Callable[[WriteOutcome], None]) -> None:
        placed, self._placed = self._placed, []
        if self.fail_next_write:
            self.fail_next_write = False
            self.placed_end_offset = self.written_end_offset
            done(WriteOutcome(self.written_end_offset, OSError("no space left")))
            return
        self._batches += [bytes(batch.data) for batch in placed]
        self.written_end_offset = self.placed_end_offset
        done(WriteOutcome(self.written_end_offset))

    def flush(self) -> Completion[int]:
        self.flushed_end_offset = self.written_end_offset
        return Completion.of(self.flushed_end_offset)

    def read(self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool) -> LogReadOutcome:
        if not self.log_start_offset <= offset <= self.written_end_offset:
            raise OffsetOutOfRangeError(offset)
        read = LogRead([], 0, offset)
        for batch in self.batches(offset):
            fits = read.size_bytes + batch.size_bytes <= bytes_max
            if batch.next_offset > end_offset or not (fits or (minimum_one_batch and not read.parts)):
                break
            read.parts.append(bytes(batch.data))
            read.size_bytes += batch.size_bytes
            read.end_offset = batch.next_offset
        if self.cold is None:
            return read
        completion: Completion[LogRead] = Completion()
        self.cold.append(completion)
        return completion

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        for data in list(self._batches):
            batch = RecordBatch(memoryview(bytearray(data)))
            if batch.next_offset > offset:
                yield batch

    def offset_for_time(
        self, timestamp_ms: int
    ) -> TimestampOffset | Completion[TimestampOffset | None] | None:
        for batch in self.batches(self.log_start_offset):
            for record in records(batch):
                if record.timestamp >= timestamp_ms:
                    return TimestampOffset(record.timestamp, record.offset, batch.partition_leader_epoch)
        return None

    def max_timestamp(self) -> TimestampOffset | None:
        best: TimestampOffset | None = None
        for batch in self.batches(self.log_start_offset):
            for record in records(batch):
                if best is None or record.timestamp > best.timestamp_ms:
                    best = TimestampOffset(record.timestamp, record.offset, batch.partition_leader_epoch)
        return best

    def compact(self, request: CompactionRequest) -> Completion[CompactionResult]:
        """Not done here: every record stays."""
        raise NotImplementedError("this storage does not compact")

    def segments(self) -> Sequence[SegmentInfo]:
        ends = [*self._bases[1:], self.written_end_offset]
        return [self._segment(base, end) for base, end in zip(self._bases, ends, strict=True)]

    def _segment(self, base: int, end: int) -> SegmentInfo:
        batches = [b for b in self.batches(base) if b.next_offset <= end]
        return SegmentInfo(
            base_offset=base,
            next_offset=end,
            size_bytes=sum(b.size_bytes for b in batches),
            max_timestamp_ms=max((b.max_timestamp for b in batches), default=-1),
            created_ms=0,
            modified_ms=0,
            sealed=base != self._bases[-1],
            files=(),
        )

    def size_bytes(self) -> int:
        return sum(map(len, self._batches))

    def roll(self) -> None:
        if self._bases[-1] == self.written_end_offset:
            return
        self._bases.append(self.written_end_offset)
        if self.listener is not None:
            self.listener.rolled(self.written_end_offset)

    def truncate_to(self, offset: int) -> None:
        raise AssertionError("nobody truncates a leader's log")

    def truncate_fully(self, start_offset: int) -> None:
        raise AssertionError("nobody truncates a leader's log")

    def advance_log_start(self, offset: int) -> None:
        self.log_start_offset = max(self.log_start_offset, offset)

    def drop_segments(self, end_offset: int) -> int:
        gone = [s for s in self.segments() if s.sealed and s.next_offset <= end_offset]
        if gone:
            self._bases = self._bases[len(gone) :]
            kept = list(self.batches(gone[-1].next_offset))
            self._batches = [bytes(b.data) for b in kept]
            self.log_start_offset = max(self.log_start_offset, gone[-1].next_offset)
        return len(gone)

    def reconfigure(self, config: TopicConfig) -> None:
        return None

    def close(self) -> None:
        self.closed = True


class PlainStorage:
    """``LogStorage`` of :class:`PlainLog`; survives the broker that uses it.

    :param directories: paths; each one's id is the last character of its path, 16 times
    """

    compacts = False
    log_class = PlainLog

    def __init__(self, directories: Sequence[str] = ("/plain/d",)) -> None:
        self.logs: dict[TopicPartition, PlainLog] = {}
        self.deleted: list[TopicPartition] = []
        self.checkpointed: dict[TopicPartition, int] = {}
        self.refuse_to_open: Exception | None = None
        self.open_slowly: Completion[None] | None = None
        self.waiting = 0
        """Logs that are being opened slowly."""
        self.just_opened: Callable[[], None] = lambda: None
        """Called when a log is open and its owner doesn't know yet."""
        self.stopped_at_epoch: int | None = None
        self.watcher: StorageWatcher | None = None
        self._online = dict.fromkeys(directories, True)
        self._moves: dict[TopicPartition, LogMove] = {}

    def watch(self, watcher: StorageWatcher) -> None:
        """Tell ``watcher``."""
        self.watcher = watcher

    def directory_id(self, path: str) -> bytes:
        """The id of a directory."""
        return path[-1].encode() * 16

    def fail_directory(self, path: str) -> None:
        """The directory is offline; the watcher is told."""
        self._online[path] = False
        failed = next(info for info in self.log_dirs() if info.path == path)
        if self.watcher is not None:
            self.watcher.directory_failed(failed, OSError(5, "input/output error"))

    def mend_directory(self, path: str) -> None:
        """A new disk, or the old one again: seen at the next start."""
        self._online[path] = True

    def move_log(self, partition: TopicPartition, directory_id: bytes) -> None:
        """Begin, or give up; :meth:`finish_move` ends it."""
        online = {info.directory_id for info in self.log_dirs() if info.online}
        if directory_id not in online:
            raise LogDirNotFoundError(f"no log directory {directory_id.hex()}")
        log = self.logs.get(partition)
        if log is None:
            raise LogNotOpenError(f"{partition} is not open")
        self._moves.pop(partition, None)
        if directory_id != log.directory_id:
            self._moves[partition] = LogMove(
                partition=partition,
                from_directory_id=log.directory_id,
                to_directory_id=directory_id,
                size_bytes=0,
                copied_end_offset=0,
            )

    def finish_move(self, partition: TopicPartition) -> None:
        """It lies in the other directory now; the watcher is told."""
        move = self._moves.pop(partition)
        self.logs[partition].directory_id = move.to_directory_id
        if self.watcher is not None:
            self.watcher.moved(partition, move.to_directory_id)

    def moves(self) -> Sequence[LogMove]:
        """Those that were begun."""
        return tuple(self._moves.values())

    def promise(self) -> str:
        return "memory"

    async def start(self, cluster_id: str, node_id: int) -> None:
        return None

    def log_dirs(self) -> Sequence[LogDirInfo]:
        return tuple(
            LogDirInfo(
                path=path,
                directory_id=self.directory_id(path),
                online=online,
                total_bytes=1000 if online else -1,
                usable_bytes=400 if online else -1,
            )
            for path, online in self._online.items()
        )

    def partitions(self) -> Sequence[tuple[TopicPartition, bytes]]:
        return ()

    async def open_log(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        listener: LogListener,
        *,
        directory_id: bytes | None = None,
    ) -> PlainLog:
        if self.open_slowly is not None:
            self.waiting += 1
            await self.open_slowly
            self.waiting -= 1
        if self.refuse_to_open is not None:
            raise self.refuse_to_open
        log = self.logs.get(partition)
        if log is None:
            log = self.logs[partition] = PlainLog(directory_id or self._emptiest())
        if not any(info.online for info in self.log_dirs() if info.directory_id == log.directory_id):
            raise OSError(5, "input/output error")
        log.listener = listener
        log.closed = False
        self.just_opened()
        return log

    def _emptiest(self) -> bytes:
        online = [info.directory_id for info in self.log_dirs() if info.online]
        return min(online, key=lambda one: sum(log.directory_id == one for log in self.logs.values()))

    def delete_log(self, partition: TopicPartition) -> None:
        self.logs.pop(partition, None)
        self.deleted.append(partition)

    def set_aside_log(self, partition: TopicPartition) -> None:
        raise AssertionError("none was found at the start")

    def checkpoint(self, high_watermarks: Iterable[tuple[TopicPartition, int]]) -> None:
        self.checkpointed = dict(high_watermarks)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return dict(self.checkpointed)

    def previous_broker_epoch(self) -> int:
        return -1

    async def stop(self, broker_epoch: int) -> None:
        self.stopped_at_epoch = broker_epoch
