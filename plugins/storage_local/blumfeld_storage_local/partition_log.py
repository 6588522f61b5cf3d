"""The log of one replica in a directory of segments: place, write, flush, read, look up, cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from blumfeld.log.segment_index import TimestampPosition
from blumfeld.spi.compaction import CompactionRequest, CompactionResult
from blumfeld.spi.completion import Completion
from blumfeld.spi.config import TopicConfig
from blumfeld.spi.runtime import Timer
from blumfeld.spi.storage import (
    AuxFiles,
    LogListener,
    LogRead,
    SegmentInfo,
    TimestampOffset,
    TopicPartition,
    WriteOutcome,
)
from blumfeld.wire.record_batch import RecordBatch
from blumfeld_storage_local.aux_files import AuxDirectory
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.flusher import Flusher, sync
from blumfeld_storage_local.segment import Segment
from blumfeld_storage_local.segment_list import SegmentList
from blumfeld_storage_local.segment_writer import CutBackError, SegmentWriter
from blumfeld_storage_local.time_lookup import first_at_or_after, first_highest

FLUSH_NEVER_MS = 1 << 53
"""A ``flush.ms`` from here on is no interval: Kafka's default is 2**63-1."""

Done = Callable[[WriteOutcome], None]


class LocalLog:
    """``PartitionLog`` in a directory. Made by ``opening.open_log``, which knows that the segments are sound."""

    aux: AuxFiles

    def __init__(
        self,
        home: LogDirectory,
        partition: TopicPartition,
        segments: SegmentList,
        config: TopicConfig,
        listener: LogListener,
        *,
        log_start_offset: int,
        flushed_end_offset: int,
        names_unsynced: bool,
        truncating: Callable[[LocalLog, int], None],
        closed: Callable[[LocalLog], None],
    ) -> None:
        self.partition = partition
        self.directory = segments.directory
        self.aux = AuxDirectory(home.files, segments.directory)
        self.config = config
        self.names_unsynced = names_unsynced
        self.is_open = True
        self.cleaned_end_offset = 0
        self.directory_id = home.directory_id
        self.clean = False
        """Closed, and every index file is complete."""
        self._home = home
        self._runtime = home.runtime
        self._segments = segments
        self._listener = listener
        self._truncating = truncating
        self._closed = closed
        self._placed: list[RecordBatch] = []
        self._flusher = Flusher(home.runtime, self, home.fail)
        self._flush_timer: Timer | None = None
        self._waiting: deque[tuple[Done, WriteOutcome]] = deque()
        self._writer = self._open_writer()
        end_offset = self._writer.segment.next_offset
        self.log_start_offset = max(log_start_offset, segments.first_offset)
        self.placed_end_offset = self.written_end_offset = end_offset
        self.flushed_end_offset = min(flushed_end_offset, end_offset)

    def _open_writer(self) -> SegmentWriter:
        return SegmentWriter(self._segments.active, self.config, self._jitter_ms(), self._runtime.now_ms())

    def _jitter_ms(self) -> int:
        jitter_ms = self.config.segment_jitter_ms
        return self._runtime.random.randrange(jitter_ms) if jitter_ms > 0 else 0

    def _check(self) -> None:
        self._home.check()
        if not self.is_open:
            raise OSError(9, "the log is closed", self.directory)

    # Append

    def place(self, batch: RecordBatch, leader_epoch: int) -> int:
        """Give the batch the next offsets; see the contract."""
        if self._home.error is not None or not self.is_open:
            self._check()
        base_offset = self.placed_end_offset
        batch.assign_offset(base_offset, leader_epoch)
        self._placed.append(batch)
        self.placed_end_offset = base_offset + batch.last_offset_delta + 1
        return base_offset

    def place_as_is(self, batch: RecordBatch) -> None:
        """Place a batch that has its offsets already."""
        self._check()
        if batch.base_offset < self.placed_end_offset:
            raise ValueError(f"a batch at {batch.base_offset} can't follow {self.placed_end_offset}")
        self._placed.append(batch)
        self.placed_end_offset = batch.next_offset

    def write(self, done: Done) -> None:
        """Write what is placed. With ``flush.messages`` reached, ``done`` waits for the sync, as Kafka's ack does."""
        placed = self._placed
        error: OSError | None = None
        if placed:
            self._placed = []
            try:
                if self._home.error is not None or not self.is_open:
                    self._check()
                self._append(placed)
            except OSError as failed:
                error = failed
                if isinstance(failed, CutBackError):
                    self._home.fail(failed)
                self.placed_end_offset = self.written_end_offset
        outcome = WriteOutcome(self.written_end_offset, error)
        if self._waiting or self.written_end_offset - self.flushed_end_offset >= self.config.flush_messages:
            self._flush_before(done, outcome)
            return
        if self.config.flush_ms < FLUSH_NEVER_MS and self._flush_timer is None:
            self._flush_timer = self._runtime.call_later(self.config.flush_ms, self._flush_due)
        done(outcome)

    def _append(self, placed: list[RecordBatch]) -> None:
        """Write batches in as few gather writes as rolls allow; the written end follows each."""
        writer, now_ms = self._writer, self._runtime.now_ms
        if (size_bytes := writer.fits(placed)) >= 0:
            self._write_run(placed, size_bytes)
            return
        start = pending_bytes = 0
        for at, batch in enumerate(placed):
            if writer.must_roll(batch, pending_bytes, now_ms):
                self._write_run(placed[start:at], pending_bytes)
                self._roll(batch.base_offset)
                writer, start, pending_bytes = self._writer, at, 0
                writer.must_roll(batch, 0, now_ms)  # it is the first of the new segment
            pending_bytes += batch.size_bytes
        self._write_run(placed[start:] if start else placed, pending_bytes)

    def _write_run(self, batches: list[RecordBatch], size_bytes: int) -> None:
        if batches:
            self._writer.append(batches, size_bytes)
            self.written_end_offset = self._writer.segment.next_offset

    def roll(self) -> None:
        """Seal the active segment now."""
        self._check()
        if self._segments.active.size:
            self._roll(self.written_end_offset)

    def _roll(self, base_offset: int) -> None:
        sealed = self._segments.active
        if sealed.size:
            self._writer.seal()
        self._segments.add(base_offset)
        if sealed.size:
            sealed.sealed(base_offset, self._writer.highest)
        self.names_unsynced = True
        self._writer = self._open_writer()
        self._listener.rolled(base_offset)
        self._flusher.flush()

    # Flush

    def flush(self) -> Completion[int]:
        """Make what is written now last."""
        self._check()
        return self._flusher.flush()

    def unflushed_segments(self) -> list[Segment]:
        """For the flusher."""
        first = self._segments.index_of(self.recovery_point)
        return [self._segments[at] for at in range(first, len(self._segments))]

    @property
    def recovery_point(self) -> int:
        """Everything below it lasts: records, and the indexes of sealed segments, which nobody would check again."""
        return self._segments.lasting(self.flushed_end_offset)

    def _flush_before(self, done: Done, outcome: WriteOutcome) -> None:
        self._waiting.append((done, outcome))
        self._flusher.flush().when_done(self._flushed)

    def _flushed(self, flush: Completion[int]) -> None:
        done, outcome = self._waiting.popleft()
        if isinstance(flush.error, OSError):
            outcome = WriteOutcome(min(self.flushed_end_offset, outcome.written_end_offset), flush.error)
        done(outcome)

    def _flush_due(self) -> None:
        self._flush_timer = None
        if self.is_open and self._home.error is None:
            self._flusher.flush()

    # Read

    def read(self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool) -> LogRead:
        """Bytes from the batch that contains ``offset``; see the contract."""
        if offset < self.log_start_offset or offset > self.written_end_offset:
            raise LookupError(
                f"offset {offset} is outside of {self.log_start_offset}..{self.written_end_offset}"
            )
        if self._home.error is not None or not self.is_open:
            self._check()
        if offset >= end_offset:
            return LogRead([], 0, offset)
        segments = self._segments
        at = segments.index_of(offset)
        segment = segments[at]
        position, first_bytes = segment.locate(offset)
        while first_bytes == 0 and at + 1 < len(segments):  # compaction took the end of that segment
            at += 1
            segment = segments[at]
            position, first_bytes = segment.locate(offset)
        if end_offset >= segment.next_offset:
            end_offset, limit = segment.next_offset, segment.size_bytes
        else:
            limit, _ = segment.locate(end_offset)
        size = limit - position
        if size > bytes_max:
            size = bytes_max if first_bytes <= bytes_max or not minimum_one_batch else first_bytes
        if size <= 0:
            return LogRead([], 0, offset)
        return LogRead([segment.part(position, size)], size, end_offset)

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        """Written batches from the one that contains ``offset`` on."""
        self._check()
        end_offset = self.written_end_offset
        while offset < end_offset:
            self._check()
            segment = self._segments[self._segments.index_of(offset)]
            for batch in segment.batches(offset):
                if batch.base_offset >= end_offset:
                    return
                yield batch
                offset = batch.next_offset
            if segment.next_offset < offset:
                return  # it was cut meanwhile
            offset = max(offset, segment.next_offset)

    def offset_for_time(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record with a timestamp ≥ ``timestamp_ms``."""
        self._check()
        return first_at_or_after(self._timed(), timestamp_ms, self.log_start_offset)

    def max_timestamp(self) -> TimestampOffset | None:
        """The first record with the highest timestamp."""
        self._check()
        return first_highest(self._timed(), self.log_start_offset)

    def _timed(self) -> list[tuple[Segment, TimestampPosition]]:
        """Each segment with its highest timestamp."""
        active = self._segments.active
        return [(s, self._writer.highest if s is active else s.highest) for s in self._segments]

    def segments(self) -> Sequence[SegmentInfo]:
        """All segments, the active one last."""
        self._check()
        return [
            segment.info(highest.timestamp_ms, sealed=segment is not self._segments.active)
            for segment, highest in self._timed()
        ]

    def size_bytes(self) -> int:
        """Bytes of record batches."""
        self._check()
        return sum(segment.size_bytes for segment in self._segments)

    # Cut

    def truncate_to(self, offset: int) -> None:
        """Drop all batches with an offset ≥ ``offset``."""
        self._check()
        self._unplace()
        if offset >= self.written_end_offset:
            return
        if offset <= self._segments.first_offset:
            self.truncate_fully(offset)
            return
        self._truncating(self, offset)
        at = self._segments.index_of(offset)
        if self._segments[at].base_offset == offset:
            at -= 1
        if self._segments.drop_behind(at + 1, self.config.file_delete_delay_ms):
            # or a crash could keep them behind the cut that follows: a hole where all was flushed
            self._home.files.sync_dir(self.directory)
        segment = self._segments.active
        position, size = segment.locate(offset)
        if size:
            offset = min(offset, next(segment.batches(offset)).base_offset)
        segment.offsets.truncate_to(offset)
        segment.times.truncate_to(offset)
        segment.file().truncate(position)
        # or the power could bring back what was cut, in front of a newer segment that begins where it ends
        segment.file().fdatasync()
        segment.size = position
        segment.save_indexes()
        self._ends_at(offset)

    def truncate_fully(self, start_offset: int) -> None:
        """Drop everything; the log starts at ``start_offset``."""
        self._check()
        self._unplace()
        self._truncating(self, start_offset)
        self._segments.drop_behind(0, self.config.file_delete_delay_ms)
        self._segments.add(start_offset)
        self.log_start_offset = start_offset
        self._ends_at(start_offset)

    def _unplace(self) -> None:
        self._placed = []
        self.placed_end_offset = self.written_end_offset

    def _ends_at(self, offset: int) -> None:
        self._writer = self._open_writer()
        self._segments.active.next_offset = offset
        self.names_unsynced = True
        self.placed_end_offset = self.written_end_offset = offset
        self.flushed_end_offset = min(self.flushed_end_offset, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self._flusher.truncated(offset)

    def advance_log_start(self, offset: int) -> None:
        """The log starts at ``offset`` now."""
        self._check()
        if offset > self.written_end_offset:
            raise ValueError(f"the log ends at {self.written_end_offset}, and can't start at {offset}")
        self.log_start_offset = max(self.log_start_offset, offset)

    def drop_segments(self, end_offset: int) -> int:
        """Delete sealed segments that end at or below ``end_offset``."""
        self._check()
        count = self._segments.drop_oldest(end_offset, self.config.file_delete_delay_ms)
        if count:
            self.log_start_offset = max(self.log_start_offset, self._segments.first_offset)
            self.names_unsynced = True
        return count

    # Life

    def compact(self, request: CompactionRequest) -> Completion[CompactionResult]:
        """Not done here: every record stays."""
        raise NotImplementedError("this storage does not compact")

    def reconfigure(self, config: TopicConfig) -> None:
        """The topic's configuration changed."""
        self.config = config
        self._writer.configure(config)
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None

    def close(self) -> None:
        """Flush and close."""
        if not self.is_open:
            return
        self._end()
        try:
            self._home.check()
            self._writer.seal()
            self._sync_all()
            self.clean = True
        except OSError as error:
            self._home.fail(error)
            raise
        finally:
            self._segments.close()
            self._closed(self)

    def _sync_all(self) -> None:
        dirty = self.flushed_end_offset < self.written_end_offset or self.names_unsynced
        files = [segment.file() for segment in self.unflushed_segments()] if dirty else []
        indexes = [segment for segment in self._segments if segment.index_unsynced]
        if files or indexes:
            sync(self._runtime, self.directory, files, indexes, True)
        for segment in indexes:
            segment.index_unsynced = False
        self.flushed_end_offset = self.written_end_offset

    def discard(self) -> None:
        """Close without keeping anything: its directory goes."""
        if self.is_open:
            self._end()
            self._segments.close()
            self._closed(self)

    def _end(self) -> None:
        self._unplace()
        self.is_open = False
        self._flusher.close()
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
