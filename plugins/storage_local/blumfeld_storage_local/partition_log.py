"""The log of one replica in a directory of segments: place, write, flush, read, look up, cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from blumfeld.spi.compaction import CompactionRequest, CompactionResult
from blumfeld.spi.completion import Completion
from blumfeld.spi.config import TopicConfig
from blumfeld.spi.runtime import Timer
from blumfeld.spi.storage import LogListener, TopicPartition, WriteOutcome
from blumfeld.wire.record_batch import RecordBatch
from blumfeld_storage_local.cutting import CuttingHalf
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.flusher import sync
from blumfeld_storage_local.log_state import LogState
from blumfeld_storage_local.reading import ReadingHalf
from blumfeld_storage_local.segment_list import SegmentList
from blumfeld_storage_local.segment_writer import CutBackError

FLUSH_NEVER_MS = 1 << 53
"""A ``flush.ms`` from here on is no interval: Kafka's default is 2**63-1."""

Done = Callable[[WriteOutcome], None]


class LocalLog(ReadingHalf, CuttingHalf):
    """``PartitionLog`` in a directory. Made by ``opening.open_log``, which knows that the segments are sound."""

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
        truncating: Callable[[LogState, int], None],
        closed: Callable[[LogState], None],
        cleaned_end_offset: int,
        cleaned: Callable[[LogState], None],
    ) -> None:
        super().__init__(
            home,
            partition,
            segments,
            config,
            listener,
            log_start_offset=log_start_offset,
            flushed_end_offset=flushed_end_offset,
            names_unsynced=names_unsynced,
            truncating=truncating,
            closed=closed,
            cleaned_end_offset=cleaned_end_offset,
            cleaned=cleaned,
        )
        self._flush_timer: Timer | None = None
        self._waiting: deque[tuple[Done, WriteOutcome]] = deque()

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
