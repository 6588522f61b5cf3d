"""The log of one replica: its ends, the append path, its life, and the parts that do everything else.

Each part is an object with a state of its own, and says in a Protocol beside it what it asks of the log. So a storage
that wraps this one can put another reader, truncation or cleaner in the place of ours.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence

from blumfeld.config.values import TopicConfig
from blumfeld.log.segments.index import RELATIVE_OFFSET_MAX
from blumfeld.spi.compaction import CompactionRequest, CompactionResult
from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import AuxFiles, LogReadOutcome, SegmentInfo, WriteOutcome
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld_storage_local.compaction.cleaner_passes import CleanerPasses
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.durability import can_be_undone
from blumfeld_storage_local.logs.active_writer import ActiveWriter
from blumfeld_storage_local.logs.aux_files import AuxDirectory
from blumfeld_storage_local.logs.log_cutover import LogCutOver
from blumfeld_storage_local.logs.log_flushing import Done, LogFlushing
from blumfeld_storage_local.logs.log_reader import LogReader
from blumfeld_storage_local.logs.opened_log import OpenedLog
from blumfeld_storage_local.logs.timestamp_queries import Found, TimestampQueries
from blumfeld_storage_local.logs.truncation import Truncation
from blumfeld_storage_local.segments.cold_reads import ColdBytesError
from blumfeld_storage_local.segments.segment import Segment
from blumfeld_storage_local.segments.segment_writer import CutBackError


class LocalLog:
    """``SegmentedLog`` in a directory. Made by ``start.open_partition``, which knows that the segments are sound."""

    aux: AuxFiles

    def __init__(self, opened: OpenedLog) -> None:
        """:raises OSError: the end of a log that is not at rest can't be read, or is not sound"""
        home, segments = opened.home, opened.segments
        self.home = home
        """The log directory that the log lies in now. A move changes it."""
        self.partition = opened.partition
        self.directory = segments.directory
        self.directory_id = home.directory_id
        self.config = opened.config
        self.is_open = True
        self.clean = False
        """Closed, and every index file is complete."""
        self.names_unsynced = opened.names_unsynced
        self.topic_id_unsynced = opened.topic_id_unsynced
        self.truncations = 0
        """How often the log was truncated."""
        self._segments = segments
        self._listener = opened.listener
        self._callbacks = opened.callbacks
        self._placed: list[RecordBatch] = []

        self._active = active = ActiveWriter(self, segments)
        # After the writer was made, for it finds out where the segment really ends.
        end_offset = segments.active.next_offset
        self.log_start_offset = max(opened.log_start_offset, segments.first_offset)
        self.placed_end_offset = self.written_end_offset = end_offset
        self.flushed_end_offset = min(opened.flushed_end_offset, end_offset)
        self.cleaned_end_offset = min(opened.cleaned_end_offset, end_offset)

        self.aux = aux = AuxDirectory(home.files, segments.directory)
        self._flushing = LogFlushing(self, segments)
        self.reader = LogReader(self, segments, active)
        self.times = TimestampQueries(self, segments, active)
        self.cleaner = CleanerPasses(self, segments)
        self.truncation = Truncation(self, segments, self.cleaner)
        self.cut_over = LogCutOver(self, segments, active, self._flushing, self.cleaner, aux)

    # Append

    def place(self, batch: RecordBatch, leader_epoch: int) -> int:
        """Give the batch the next offsets; see the contract."""
        # One call for each batch of a Produce request: the two looks here save a call of check().
        if self.home.error is not None or not self.is_open:
            self.check()
        base_offset = self.placed_end_offset
        batch.assign_offset(base_offset, leader_epoch)
        self._placed.append(batch)
        self.placed_end_offset = base_offset + batch.last_offset_delta + 1
        return base_offset

    def place_as_is(self, batch: RecordBatch) -> None:
        """Place a batch that has its offsets already."""
        self.check()
        if batch.base_offset < self.placed_end_offset:
            raise ValueError(f"a batch at {batch.base_offset} can't follow {self.placed_end_offset}")
        self._placed.append(batch)
        self.placed_end_offset = batch.next_offset

    def write(self, done: Done) -> None:
        """Write what is placed. Where an ack means the device, ``done`` waits for the sync that covers it."""
        held = self.cut_over.held
        if held is not None:
            held.append(done)
            return
        placed, flushing = self._placed, self._flushing
        error: OSError | None = None
        if placed:
            self._placed = []
            try:
                if self.home.error is not None or not self.is_open:
                    self.check()
                if flushing.write_error is not None:
                    raise flushing.write_error
                writer = self._active.writer
                if writer is None:
                    writer = self._active.wake()
                if not (writer.append_one(placed[0]) if len(placed) == 1 else writer.append_few(placed)):
                    self._append(placed)
                elif not flushing.after_sync:
                    self.written_end_offset = self.placed_end_offset
            except OSError as failed:
                error = failed
                self._write_failed(failed)
        if flushing.asked or flushing.waiting:
            flushing.tell(done, error)
        else:
            done(WriteOutcome(self.written_end_offset, error))

    def _write_failed(self, error: OSError) -> None:
        # A log at rest that isn't as it was closed says nothing about the disk: only its own next start is due.
        if (
            self.is_open
            and self._active.as_closed
            and (isinstance(error, CutBackError) or not can_be_undone(error))
        ):
            self.home.fail(error)
        self.placed_end_offset = self.appended_end_offset

    def _append(self, placed: list[RecordBatch]) -> None:
        """Write batches in as few gather writes as rolls allow; the written end follows each."""
        writer = self._active.wake()
        now_ms = self.home.runtime.now_ms
        start = pending_bytes = 0
        for at, batch in enumerate(placed):
            if writer.must_roll(batch, pending_bytes, now_ms):
                self._write_run(placed[start:at])
                self._roll(self._base_of(batch))
                writer, start, pending_bytes = self._active.wake(), at, 0
                writer.must_roll(batch, 0, now_ms)  # it is the first of the new segment
            pending_bytes += batch.size_bytes
        self._write_run(placed[start:] if start else placed)

    def _base_of(self, first: RecordBatch) -> int:
        """Return the base offset of the segment that begins with this batch: the end of the segment before it.

        A follower's batch may lie behind a gap that compaction left at the leader. Recovery takes a gap between two
        segments for lost records, and would cut the log there. A larger gap than an index can bridge stays one.
        """
        end_offset = self.appended_end_offset
        return end_offset if first.last_offset - end_offset <= RELATIVE_OFFSET_MAX else first.base_offset

    def _write_run(self, batches: list[RecordBatch]) -> None:
        if batches:
            writer = self._active.wake()
            writer.append(batches)
            if not self._flushing.after_sync:
                self.written_end_offset = writer.segment.next_offset

    def roll(self) -> None:
        """Seal the active segment now."""
        self.check()
        if self._segments.active.size_bytes:
            self._roll(self.appended_end_offset)

    def _roll(self, base_offset: int) -> None:
        sealed, writer = self._segments.active, self._active.wake()
        if sealed.size:
            writer.seal()
        try:
            self._segments.add(base_offset)
        finally:
            # Adding may raise after the new segment is the active one, when the empty one before it can't be removed.
            if self._segments.active is not sealed:
                if sealed.size:
                    sealed.sealed(base_offset, writer.highest)
                self.names_unsynced = True
                self._active.reopen()
        self._listener.rolled(base_offset)
        self._flushing.flush()

    # Read

    def read(self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool) -> LogReadOutcome:
        """Bytes from the batch that contains ``offset``; see the contract. Cold ones come by a completion."""
        try:
            return self.reader.read(offset, bytes_max, end_offset, minimum_one_batch, True)
        except ColdBytesError as cold:
            return self.reader.read_later(cold, offset, bytes_max, end_offset, minimum_one_batch)

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        """Written batches from the one that contains ``offset`` on."""
        return self.reader.batches(offset)

    def segments(self) -> Sequence[SegmentInfo]:
        """All segments, the active one last."""
        return self.reader.segments()

    def size_bytes(self) -> int:
        """Bytes of record batches."""
        return self.reader.size_bytes()

    def offset_for_time(self, timestamp_ms: int) -> Found | Completion[Found]:
        """The first record with a timestamp ≥ ``timestamp_ms``; at once only where there is none."""
        return self.times.offset_for_time(timestamp_ms)

    def max_timestamp(self) -> Found | Completion[Found]:
        """The first record with the highest timestamp; at once only where no record has one."""
        return self.times.max_timestamp()

    # Take away

    def truncate_to(self, offset: int) -> None:
        """Drop all batches with an offset ≥ ``offset``."""
        self.truncation.truncate_to(offset)

    def truncate_fully(self, start_offset: int) -> None:
        """Drop everything; the log starts at ``start_offset``."""
        self.truncation.truncate_fully(start_offset)

    def advance_log_start(self, offset: int) -> None:
        """Let the log start at ``offset``."""
        self.truncation.advance_log_start(offset)

    def drop_segments(self, end_offset: int) -> int:
        """Delete sealed segments that end at or below ``end_offset``."""
        return self.truncation.drop_segments(end_offset)

    def compact(self, request: CompactionRequest) -> Completion[CompactionResult]:
        """Do one cleaner pass; see the contract. Raises ``ValueError`` while one runs."""
        return self.cleaner.compact(request)

    # Flush

    def flush(self) -> Completion[int]:
        """Make what is written now last."""
        self.check()
        return self._flushing.flush()

    @property
    def appended_end_offset(self) -> int:
        """Everything below it is in the page cache: the written end, unless "written" waits for a sync."""
        return self._segments.active.next_offset

    @property
    def recovery_point(self) -> int:
        """Everything below it lasts: records, and the indexes of sealed segments, which nobody would check again."""
        return self._segments.lasting(self.flushed_end_offset)

    @property
    def waits_for_last_sync(self) -> bool:
        """Closed, while a sync of it ran that has not ended yet."""
        return self._flushing.waits_for_last_sync

    async def last_sync(self) -> None:
        """Wait for the sync that ran at the close."""
        await self._flushing.last_sync(clean=self.clean)

    # For the parts

    def check(self) -> None:
        """Raise ``OSError`` if the log is closed or its directory offline."""
        self.home.check()
        if not self.is_open:
            raise OSError(errno.EBADF, "the log is closed", self.directory)

    def unflushed_segments(self) -> list[Segment]:
        """Segments that a sync must cover, oldest first."""
        first = self._segments.index_of(self.recovery_point)
        return [self._segments[at] for at in range(first, len(self._segments))]

    def flush_ended(self, error: OSError | None) -> None:
        """The flushed end moved, or with an error it never will again."""
        self._flushing.ended(error)

    def unplace(self) -> None:
        """Forget what is placed and not written."""
        self._placed = []
        self.placed_end_offset = self.appended_end_offset

    def truncating(self, offset: int) -> None:
        """Tell the storage that no record from ``offset`` on can be promised any more."""
        self._callbacks.truncating(self.partition, offset)

    def ends_at(self, offset: int) -> None:
        """Move every end down to ``offset``, and write on there. Raises ``OSError``."""
        self.truncations += 1
        self._active.reopen()
        self._segments.active.next_offset = offset
        self.names_unsynced = True
        self.placed_end_offset = offset
        self.written_end_offset = min(self.written_end_offset, offset)
        self.flushed_end_offset = min(self.flushed_end_offset, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self._flushing.truncated(offset)
        if self.cleaned_end_offset > offset:
            self.cleaned_to(offset)

    def cleaned_to(self, end_offset: int) -> None:
        """The log is clean up to ``end_offset``: the storage keeps that over restarts."""
        self.cleaned_end_offset = end_offset
        self._callbacks.cleaned(self.partition, end_offset)

    def lies_in(self, home: LogDirectory, directory: str) -> None:
        """Go on in a flushed copy in another directory."""
        self.home, self.directory, self.directory_id = home, directory, home.directory_id
        self._flushing.moved()
        self.flushed_end_offset, self.names_unsynced = self.appended_end_offset, False

    # Life

    def reconfigure(self, config: TopicConfig) -> None:
        """The topic's configuration changed."""
        self.config = config
        if self._active.writer is not None:
            self._active.writer.configure(config)
        self._flushing.configure()

    def close(self) -> None:
        """Flush and close. A directory that is offline is not synced: that would not say what is on the device.

        A log whose indexes find no room is not closed cleanly: it is recovered when it is opened again.
        """
        if not self.is_open:
            return
        self._end()
        failed: OSError | None = None
        try:
            self.cleaner.leave()
            self.home.check()
            sealed = self._seal()
            self._flushing.sync_all()
            self.clean = sealed and self._active.as_closed
        except OSError as error:
            failed = error
            self.home.fail(error)
            raise
        finally:
            self._segments.close()
            self._callbacks.closed(self)
            self._flushing.tell_the_rest(failed)

    def _seal(self) -> bool:
        try:
            if self._active.writer is not None:
                self._active.writer.seal()
        except OSError as error:
            if not can_be_undone(error):
                raise
            self.home.events.warning("log closed without its indexes", log=self.directory, error=str(error))
            return False
        return True

    def broken_off(self, error: OSError, offset: int) -> None:
        """A change of the files from ``offset`` on has failed in its middle, so that files and memory no longer say the
        same. If only room was lacking, the log is closed at once, and recovered when it is opened again: what memory
        says must be written nowhere. Else the directory is bad."""
        if not can_be_undone(error):
            self.home.fail(error)
            return
        self.flushed_end_offset = min(self.flushed_end_offset, offset)
        if not len(self._segments):
            self._segments.stand_in(offset)
        self._let_go("a change of the log was broken off")

    def discard(self) -> None:
        """Close without keeping anything: its directory goes."""
        if self.is_open:
            self._let_go("the log was deleted")

    def _let_go(self, why: str) -> None:
        self._end()
        self.cleaner.leave(finish=False)
        self._segments.close()
        self._callbacks.closed(self)
        self._flushing.tell_the_rest(OSError(errno.ECANCELED, why, self.directory))

    def _end(self) -> None:
        self.unplace()
        self.is_open = False
        self._flushing.stop()
