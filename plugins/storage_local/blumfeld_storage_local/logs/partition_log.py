"""The log of one replica in a directory of segments: place, write, flush, read, look up, cut."""

from __future__ import annotations

import errno
from collections import deque

from blumfeld.config.values import TopicConfig
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Timer
from blumfeld.spi.storage import WriteOutcome
from blumfeld.wire.record_batch import RecordBatch
from blumfeld_storage_local.compaction.compacting_half import CompactingHalf
from blumfeld_storage_local.logs.cutting import CuttingHalf
from blumfeld_storage_local.logs.flusher import sync
from blumfeld_storage_local.logs.log_state import Done, OpenedLog, Outcome
from blumfeld_storage_local.logs.reading import ReadingHalf
from blumfeld_storage_local.logs.timing import TimingHalf
from blumfeld_storage_local.relocation.relocating import MovingHalf
from blumfeld_storage_local.segments.segment_writer import CutBackError
from blumfeld_storage_local.sync.durability import can_be_undone

FLUSH_NEVER_MS = 1 << 53
"""A ``flush.ms`` from here on is no interval: Kafka's default is 2**63-1."""

_NEVER = 1 << 62


class LocalLog(ReadingHalf, TimingHalf, CuttingHalf, CompactingHalf, MovingHalf):
    """``PartitionLog`` in a directory. Made by ``start.log_opening``, which knows that the segments are sound."""

    def __init__(self, opened: OpenedLog) -> None:
        super().__init__(opened)
        self._flush_timer: Timer | None = None
        self._write_error: OSError | None = None
        """A write has failed whose outcome waits for the outcomes before it: until then nothing is written."""
        self._set_flushing()

    def _set_flushing(self) -> None:
        """What the path of a write asks, in as few looks as it can."""
        config, durability = self.config, self._home.durability
        self._synced_only = durability.acks_after_sync
        flushes = config.flush_messages < _NEVER or config.flush_ms < FLUSH_NEVER_MS
        self._flushes = flushes or durability.mode != "never"

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
        """Write what is placed. Where an ack means the device, ``done`` waits for the sync that covers it."""
        if self._held is not None:
            self._held.append(done)
            return
        placed = self._placed
        error: OSError | None = None
        if placed:
            self._placed = []
            try:
                if self._home.error is not None or not self.is_open:
                    self._check()
                if self._write_error is not None:
                    raise self._write_error
                if len(placed) > 1 or not self._writer.append_one(placed[0]):
                    self._append(placed)
                elif not self._synced_only:
                    self.written_end_offset = self.placed_end_offset
            except OSError as failed:
                error = failed
                self._write_failed(failed)
        if self._flushes or self._waiting:
            self._flush_and_tell(done, error)
        else:
            done(WriteOutcome(self.written_end_offset, error))

    def _write_failed(self, error: OSError) -> None:
        if self.is_open and self._as_closed and (isinstance(error, CutBackError) or not can_be_undone(error)):
            self._home.fail(error)
        self.placed_end_offset = self.appended_end_offset

    def _append(self, placed: list[RecordBatch]) -> None:
        """Write batches in as few gather writes as rolls allow; the written end follows each."""
        writer = self._writer
        if (size_bytes := writer.fits(placed)) >= 0:
            writer.append(placed, size_bytes)
            if not self._synced_only:
                self.written_end_offset = writer.segment.next_offset
            return
        now_ms = self._runtime.now_ms
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
            if not self._synced_only:
                self.written_end_offset = self._writer.segment.next_offset

    def roll(self) -> None:
        """Seal the active segment now."""
        self._check()
        if self._segments.active.size_bytes:
            self._roll(self.appended_end_offset)

    def _roll(self, base_offset: int) -> None:
        sealed, writer = self._segments.active, self._writer
        if sealed.size:
            writer.seal()
        try:
            self._segments.add(base_offset)
        finally:
            if self._segments.active is not sealed:  # also where taking an empty one away failed
                if sealed.size:
                    sealed.sealed(base_offset, writer.highest)
                self.names_unsynced = True
                self._writer = self._open_writer()
        self._listener.rolled(base_offset)
        self._flusher.flush()

    # Flush

    def flush(self) -> Completion[int]:
        """Make what is written now last."""
        self._check()
        return self._flusher.flush()

    def _flush_and_tell(self, done: Done, error: OSError | None) -> None:
        """The outcome of a write where something is to be flushed: now, after a sync, or before one that is due."""
        end_offset = self.appended_end_offset
        unflushed = end_offset - self.flushed_end_offset
        if self._waiting or (
            unflushed > 0 and (self._synced_only or unflushed >= self.config.flush_messages)
        ):
            self._waiting.append(Outcome(done, end_offset, error))
            if error is not None:
                self._write_error = error
            self._flusher.request()
            return
        if unflushed > 0:
            self._flush_later()
        done(WriteOutcome(self.written_end_offset, error))

    def _flush_later(self) -> None:
        if self._home.durability.mode == "interval":
            self._home.syncs.join_within(self._flusher, self._home.durability.interval_ms)
        if self.config.flush_ms < FLUSH_NEVER_MS and self._flush_timer is None:
            self._flush_timer = self._runtime.call_later(self.config.flush_ms, self._flush_due)

    def _flush_due(self) -> None:
        self._flush_timer = None
        if self.is_open and self._home.error is None:
            self._flusher.request()

    def flush_ended(self, error: OSError | None) -> None:
        """For the flusher: the flushed end moved, or never will again."""
        if self._synced_only:
            self.written_end_offset = max(self.written_end_offset, self.flushed_end_offset)
        waiting = self._waiting
        while waiting and (error is not None or waiting[0].end_offset <= self.flushed_end_offset):
            self._tell(waiting.popleft(), error)
        if waiting:
            self._flusher.request()

    def _tell(self, outcome: Outcome, error: OSError | None) -> None:
        end_offset, error = outcome.end_offset, error or outcome.error
        if error is not None:  # whoever hears of it takes all that was placed meanwhile for lost
            self._write_error = None
            self._placed = []
            self.placed_end_offset = self.appended_end_offset
            end_offset = min(end_offset, self.flushed_end_offset)
        outcome.done(WriteOutcome(end_offset, error))

    # Life

    def reconfigure(self, config: TopicConfig) -> None:
        """The topic's configuration changed."""
        self.config = config
        if self._is_awake:
            self._writer.configure(config)
        self._set_flushing()
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None

    def close(self) -> None:
        """Flush and close. A directory that is offline is not synced: that would not say what is on the device."""
        if not self.is_open:
            return
        self._end()
        failed: OSError | None = None
        try:
            self._leave_compaction()
            self._home.check()
            if self._is_awake:
                self._writer.seal()
            self._sync_all()
            self.clean = self._as_closed
        except OSError as error:
            failed = error
            self._home.fail(error)
            raise
        finally:
            self._segments.close()
            self._callbacks.closed(self)
            self._tell_the_rest(failed)

    def _sync_all(self) -> None:
        end_offset = self.appended_end_offset
        dirty = self.flushed_end_offset < end_offset or self.names_unsynced or self._flusher.is_syncing
        files = [segment.file() for segment in self.unflushed_segments()] if dirty else []
        indexes = [segment for segment in self._segments if segment.index_unsynced]
        if files or indexes:
            topic_id = self.topic_id_unsynced
            sync(self._home.files, self.directory, files, indexes, names=True, topic_id=topic_id)
        if not self._flusher.is_syncing:
            self._all_synced()

    def discard(self) -> None:
        """Close without keeping anything: its directory goes."""
        if self.is_open:
            self._end()
            self._leave_compaction(finish=False)
            self._segments.close()
            self._callbacks.closed(self)
            self._tell_the_rest(OSError(errno.ECANCELED, "the log was deleted", self.directory))

    def _tell_the_rest(self, error: OSError | None) -> None:
        """Nobody flushes for them any more."""
        waiting, self._waiting = self._waiting, deque()
        for outcome in waiting:
            if error is None and outcome.end_offset > self.flushed_end_offset:
                error = OSError(
                    errno.ECANCELED, "the log was closed before the sync had ended", self.directory
                )
            self._tell(outcome, error)

    def _end(self) -> None:
        self._unplace()
        self.is_open = False
        self._flusher.close()
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
