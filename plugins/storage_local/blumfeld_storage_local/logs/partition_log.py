"""The log of one replica, whole: its ends, appends, flushes, reads, truncation, compaction, moves and close.

All of them change the same few numbers, so they are one object. Parts with a state of their own stand apart: the writer
of the active segment, the small files beside the log, one cleaner pass, the search for a time.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence

import msgspec

from blumfeld.config.values import TopicConfig
from blumfeld.log.segments.index import RELATIVE_OFFSET_MAX
from blumfeld.spi.compaction import CompactionAbandonedError, CompactionRequest, CompactionResult
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Timer
from blumfeld.spi.storage import (
    AuxFiles,
    LogListener,
    LogRead,
    LogReadOutcome,
    OffsetOutOfRangeError,
    SegmentInfo,
    TimestampOffset,
    TopicPartition,
    WriteOutcome,
)
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import BrokerError
from blumfeld_storage_local.compaction.cleaner_pass import CleanerPass
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.durability import can_be_undone
from blumfeld_storage_local.logs.active_writer import ActiveWriter
from blumfeld_storage_local.logs.aux_files import AuxDirectory
from blumfeld_storage_local.logs.timestamp_search import TimedSegment, first_at_or_after, first_highest
from blumfeld_storage_local.segment_list import SegmentList
from blumfeld_storage_local.segments.cold_reads import ColdBytesError, UncheckedBytesError
from blumfeld_storage_local.segments.scan import REPAIR, SCAN_BYTES
from blumfeld_storage_local.segments.segment import Segment
from blumfeld_storage_local.segments.segment_check import check_of, take_check
from blumfeld_storage_local.segments.segment_writer import CutBackError
from blumfeld_storage_local.segments.start_mark import remove_start_marks
from blumfeld_storage_local.sync.sync_rounds import Flusher, sync

Done = Callable[[WriteOutcome], None]
Found = TimestampOffset | None

FLUSH_NEVER_MS = 1 << 53
"""A ``flush.ms`` from here on is no interval: Kafka's default is 2**63-1."""
COLD_TRIES_MAX = 8
"""Times that a read has cold bytes brought: its indexes, its own bytes, those at its limit. Then it reads anyway."""
SEARCH_TRIES_MAX = 5
"""Times that a search by time begins anew because the log was cut or compacted under it."""
SETTLE_SYNCS_MAX = 100
"""Syncs after which a cut-over gives up waiting for a log that settles."""
_NEVER = 1 << 62


class LogCallbacks(msgspec.Struct, frozen=True):
    """The calls by which a log tells its storage of changes."""

    truncating: Callable[[TopicPartition, int], None]
    """Called before records from that offset on are dropped: the checkpoints must not promise them any more."""
    closed: Callable[[LocalLog], None]
    """Called once, when the log was closed or deleted."""
    cleaned: Callable[[TopicPartition, int], None]
    """Called with each new ``cleaned_end_offset``: the storage keeps it over restarts."""


class OpenedLog(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that a log is made from, once its files are known to be sound."""

    home: LogDirectory
    partition: TopicPartition
    segments: SegmentList
    config: TopicConfig
    listener: LogListener
    callbacks: LogCallbacks
    log_start_offset: int
    flushed_end_offset: int
    cleaned_end_offset: int
    names_unsynced: bool
    """Files were made in the log's directory that no sync has covered yet."""
    topic_id_unsynced: bool
    """No sync is known to have covered ``partition.metadata``."""


class Original(msgspec.Struct, frozen=True):
    """One segment of the log, as it was when a move listed the segments."""

    segment: Segment
    next_offset: int
    size_bytes: int
    sealed: bool


class _Waiting(msgspec.Struct):
    """The outcome of a write, until a sync covers the write."""

    done: Done
    end_offset: int
    error: OSError | None


class LocalLog:
    """``SegmentedLog`` in a directory. Made by ``start.open_partition``, which knows that the segments are sound."""

    # With a dict, empty but where a method of one log is replaced, as tests and wrappers do.
    __slots__ = (
        "__dict__",
        "_active",
        "_after_sync",
        "_aux",
        "_callbacks",
        "_flush_asked",
        "_flush_timer",
        "_flusher",
        "_held",
        "_listener",
        "_moving",
        "_pass",
        "_placed",
        "_segments",
        "_waiting",
        "_write_error",
        "aux",
        "clean",
        "cleaned_end_offset",
        "config",
        "directory",
        "directory_id",
        "flushed_end_offset",
        "home",
        "is_open",
        "log_start_offset",
        "names_unsynced",
        "partition",
        "placed_end_offset",
        "small_unsynced",
        "topic_id_unsynced",
        "truncations",
        "written_end_offset",
    )

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
        """The number of truncations of the log."""
        self._segments = segments
        self._listener = opened.listener
        self._callbacks = opened.callbacks
        self._placed: list[RecordBatch] = []
        self.aux: AuxFiles
        self.aux = self._aux = AuxDirectory(home.files, segments.directory, home.draft_numbers)
        self.small_unsynced = self._aux.unsynced

        self._active = ActiveWriter(home, opened.config, segments)
        # After the writer was made, for it finds out where the segment really ends.
        end_offset = segments.active.next_offset
        self.log_start_offset = max(opened.log_start_offset, segments.first_offset)
        self.placed_end_offset = self.written_end_offset = end_offset
        self.flushed_end_offset = min(opened.flushed_end_offset, end_offset)
        self.cleaned_end_offset = min(opened.cleaned_end_offset, end_offset)

        self._pass: CleanerPass | None = None
        """The cleaner pass that runs."""
        self._moving = False
        """A copy of the log is being made in another directory: no cleaner pass begins meanwhile."""
        self._held: list[Done] | None = None
        """Writes that wait until the log has moved; ``None`` while writes don't wait for that."""
        self._waiting: deque[_Waiting] = deque()
        """Outcomes of writes that wait for a sync, in the order of the writes."""
        self._write_error: OSError | None = None
        """A write has failed, and its outcome waits for the outcomes before it. Until then nothing is written."""
        self._flush_timer: Timer | None = None
        self._flusher = Flusher(self, home.files, home.rounds())
        self._configure_flushes()

    def _configure_flushes(self) -> None:
        """Take the topic's configuration. What the write path asks is worked out here, once."""
        config, durability = self.config, self.home.durability
        self._after_sync = durability.acks_after_sync
        """Records count as written only after a sync (``flush = "every"``)."""
        flushes = config.flush_messages < _NEVER or config.flush_ms < FLUSH_NEVER_MS
        self._flush_asked = flushes or durability.mode != "never"
        """Somebody wants this log flushed. If not, a write need not look any further."""
        self._cancel_flush_timer()

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
        held = self._held
        if held is not None:
            held.append(done)
            return
        placed = self._placed
        error: OSError | None = None
        if placed:
            self._placed = []
            try:
                if self.home.error is not None or not self.is_open:
                    self.check()
                if self._write_error is not None:
                    raise self._write_error
                writer = self._active.writer
                if writer is None:
                    writer = self._active.wake()
                if not (writer.append_one(placed[0]) if len(placed) == 1 else writer.append_few(placed)):
                    self._append(placed)
                elif not self._after_sync:
                    self.written_end_offset = self.placed_end_offset
            except OSError as failed:
                error = failed
                self._write_failed(failed)
        if self._flush_asked or self._waiting:
            self._tell_when_synced(done, error)
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
            if not self._after_sync:
                self.written_end_offset = writer.segment.next_offset

    def _unplace(self) -> None:
        """Forget what is placed and not written."""
        self._placed = []
        self.placed_end_offset = self.appended_end_offset

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
        self._flusher.flush()

    # Read

    def read(self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool) -> LogReadOutcome:
        """Bytes from the batch that contains ``offset``; see the contract. Cold ones come by a completion."""
        try:
            return self._read_now(offset, bytes_max, end_offset, minimum_one_batch, True)
        except ColdBytesError as cold:
            return self._read_later(cold, offset, bytes_max, end_offset, minimum_one_batch)

    def _read_now(
        self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool, look: bool
    ) -> LogRead:
        """Return bytes from the batch that contains ``offset``, as :meth:`read` does.

        :param look: see first that nothing would wait for a disk
        :raises ColdBytesError: only if ``look``: it would; :meth:`_read_later` reads then
        :raises OffsetOutOfRangeError: ``offset`` is outside of the log
        """
        if offset < self.log_start_offset or offset > self.written_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is outside of {self.log_start_offset}..{self.written_end_offset}"
            )
        if self.home.error is not None or not self.is_open:
            self.check()
        if offset >= end_offset:
            return LogRead([], 0, offset)
        segments = self._segments
        at = segments.index_of(offset)
        while True:
            segment = segments[at]
            # The newest batches are in the page cache, and this process has written or walked them: no look, no check.
            recent, start = segment.is_recent(offset), -1
            if look and not recent:
                start = self._look(segment, offset, bytes_max)
            position, first_bytes = segment.locate(offset, start)
            at += 1
            if first_bytes or at == len(segments):
                break  # otherwise compaction took the end of that segment
        if end_offset >= segment.next_offset:
            end_offset, limit = segment.next_offset, segment.size_bytes
        else:
            if look and not segment.is_recent(end_offset):
                self._look(segment, end_offset, 0)
            limit, _ = segment.locate(end_offset)
        size = limit - position
        if size > bytes_max:
            size = bytes_max if first_bytes <= bytes_max else first_bytes if minimum_one_batch else 0
        if size <= 0:
            return LogRead([], 0, offset)
        if not recent:
            if look and size > bytes_max:
                self.home.cold_reads.look(segment, position, size)
            size = self._sound(segment, position, size, look)
        return LogRead([segment.part(position, size)], size, end_offset)

    def _read_later(
        self, cold: ColdBytesError, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool
    ) -> Completion[LogRead]:
        """Return the completion of a read that :meth:`_read_now` refused: a worker brings the bytes first."""
        done: Completion[LogRead] = Completion()
        self.home.runtime.spawn(
            self._read_cold(cold, done, offset, bytes_max, end_offset, minimum_one_batch),
            f"read {self.directory}",
        )
        return done

    async def _read_cold(
        self,
        cold: ColdBytesError,
        done: Completion[LogRead],
        offset: int,
        bytes_max: int,
        end_offset: int,
        minimum_one_batch: bool,
    ) -> None:
        # The log may be cut, rolled or closed while a worker reads, so each try begins anew with what is there.
        try:
            for tries_left in range(COLD_TRIES_MAX, -1, -1):
                try:
                    await self._bring(cold)
                    end = min(end_offset, self.written_end_offset)
                    read = self._read_now(offset, bytes_max, end, minimum_one_batch, tries_left > 0)
                except ColdBytesError as more:
                    cold = more
                else:
                    done.complete(read)
                    return
            raise OSError(errno.EAGAIN, "the bytes never came", self.directory)
        except Exception as error:  # a defect, too, is the read's: the request that waits for it is answered
            done.fail(error)

    async def _bring(self, cold: ColdBytesError) -> None:
        segment = cold.segment
        known = segment.checked.damaged_at
        try:
            await self.home.cold_reads.bring(cold)
        finally:
            position = segment.checked.damaged_at
            if position >= 0 and position != known:
                self._active.distrust(segment)
                self.home.events.error(
                    "bytes that are no batch, served up to there",
                    file=segment.path(),
                    position=position,
                    repair=REPAIR,
                )

    def _sound(self, segment: Segment, position: int, size: int, look: bool) -> int:
        """Return how many of these bytes may be served: those before a damage, where there is one.

        :raises UncheckedBytesError: only if ``look``: a worker has to look at them first
        """
        sound = segment.checked.sound_bytes(position, size)
        if not sound:
            if look:
                raise UncheckedBytesError(segment, position, size)
            take_check(segment, position, check_of(segment, position, size)())
            sound = segment.checked.sound_bytes(position, size)
        return sound

    def _look(self, segment: Segment, offset: int, bytes_max: int) -> int:
        """See that ``bytes_max`` from the batch with ``offset`` on can be found and read without waiting.

        :return: the position at which the search for that batch begins; -1 if the segment ends before it
        :raises ColdBytesError: they can't
        """
        if offset >= segment.next_offset:
            return -1
        cold_reads = self.home.cold_reads
        cold_reads.look_for_indexes(segment)
        position = segment.position_before(offset)
        cold_reads.look(segment, position, min(bytes_max + SCAN_BYTES, segment.size_bytes - position))
        return position

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        """Yield written batches from the one that contains ``offset`` on."""
        self.check()
        end_offset = self.written_end_offset
        while offset < end_offset:
            self.check()
            segment = self._segments[self._segments.index_of(offset)]
            try:
                for batch in segment.batches(offset):
                    if batch.base_offset >= end_offset:
                        return
                    yield batch
                    offset = batch.next_offset
            except OSError:
                if segment in self._segments:
                    raise
                continue  # compaction has put another in its place
            if segment.next_offset < offset:
                return  # it was cut meanwhile
            offset = max(offset, segment.next_offset)

    def segments(self) -> Sequence[SegmentInfo]:
        """Return all segments, the active one last."""
        self.check()
        active, highest = self._segments.active, self._active.highest
        return [
            segment.info(highest(segment).timestamp_ms, sealed=segment is not active)
            for segment in self._segments
        ]

    def size_bytes(self) -> int:
        """Return the bytes of record batches in all segments."""
        self.check()
        return sum(segment.size_bytes for segment in self._segments)

    # Find a time

    def offset_for_time(self, timestamp_ms: int) -> TimestampOffset | Completion[Found] | None:
        """Find the first record with a timestamp ≥ ``timestamp_ms``; at once only where there is none."""
        self.check()
        if self._all_below(timestamp_ms):
            return None
        runtime, files = self.home.runtime, self.home.files

        def work(timed: list[TimedSegment]) -> Awaitable[Found]:
            return runtime.offload(
                first_at_or_after, files, timed, timestamp_ms, self.log_start_offset, self.check
            )

        return self._by_worker(work)

    def max_timestamp(self) -> TimestampOffset | Completion[Found] | None:
        """Find the first record with the highest timestamp; at once only where no record has one."""
        self.check()
        if self._all_below(0):
            return None
        runtime, files = self.home.runtime, self.home.files

        def work(timed: list[TimedSegment]) -> Awaitable[Found]:
            return runtime.offload(first_highest, files, timed, self.log_start_offset, self.check)

        return self._by_worker(work)

    def _all_below(self, timestamp_ms: int) -> bool:
        """Return whether every record is known to be older, without a look into a file."""
        for segment in self._segments:
            known = self._active.known_highest(segment)
            if (known is None or known.timestamp_ms >= timestamp_ms) and segment.size != 0:
                return False
        return True

    def _by_worker(self, work: Callable[[list[TimedSegment]], Awaitable[Found]]) -> Completion[Found]:
        done: Completion[Found] = Completion()
        self.home.runtime.spawn(self._look_up(work, done), f"look up a time in {self.directory}")
        return done

    async def _look_up(
        self,
        work: Callable[[list[TimedSegment]], Awaitable[Found]],
        done: Completion[Found],
    ) -> None:
        try:
            for tries_left in range(SEARCH_TRIES_MAX - 1, -1, -1):
                async with self.home.time_searches:
                    self.check()
                    segments, truncations = list(self._segments), self.truncations
                    timed = [self._timed(segment) for segment in segments]
                    try:
                        place = await work(timed)
                    except (OSError, BrokerError) as error:
                        gone = isinstance(error, FileNotFoundError) or any(s.is_gone for s in segments)
                        if tries_left and (gone or self.truncations != truncations):
                            continue  # what the worker read was cut, renamed or replaced under it
                        raise
                if tries_left and any(segment.is_gone for segment in segments):
                    continue  # other bytes may stand behind the same names now
                for segment, known in zip(segments, timed, strict=True):
                    segment.learn_highest(known.highest)
                done.complete(place)
                return
        except (
            Exception
        ) as error:  # a defect, too, is the look-up's: the request that waits for it is answered
            done.fail(error)

    def _timed(self, segment: Segment) -> TimedSegment:
        timed = TimedSegment(
            path_of=segment.path,
            base_offset=segment.base_offset,
            next_offset=segment.next_offset,
            size_bytes=segment.size_bytes,
            highest=self._active.known_highest(segment),
        )
        if self._active.writer is not None and segment is self._segments.active:
            # The newest entries are in memory only, and they grow while the worker searches: it gets copies.
            timed.indexes = segment.offsets.copy(), segment.times.copy()
        return timed

    # Flush

    def flush(self) -> Completion[int]:
        """Make what is written now last; completes with the flushed end."""
        self.check()
        return self._flusher.flush()

    @property
    def appended_end_offset(self) -> int:
        """Everything below it is in the page cache: the written end, unless "written" waits for a sync."""
        return self._segments.active.next_offset

    @property
    def recovery_point(self) -> int:
        """Everything below it lasts: records, and the indexes of sealed segments, which nobody would check again."""
        return self._segments.lasting(self.flushed_end_offset)

    def unflushed_segments(self) -> list[Segment]:
        """Segments that a sync must cover, oldest first."""
        first = self._segments.index_of(self.recovery_point)
        return [self._segments[at] for at in range(first, len(self._segments))]

    def _tell_when_synced(self, done: Done, error: OSError | None) -> None:
        """Tell the outcome of a write: now, or after the sync that must cover it.

        A failed write waits too while others wait before it: outcomes come in the order of the writes.
        """
        end_offset = self.appended_end_offset
        unflushed = end_offset - self.flushed_end_offset
        if self._waiting or (unflushed > 0 and (self._after_sync or unflushed >= self.config.flush_messages)):
            self._waiting.append(_Waiting(done, end_offset, error))
            if error is not None:
                self._write_error = error
            self._flusher.request()
            return
        if unflushed > 0:
            self._flush_later()
        done(WriteOutcome(self.written_end_offset, error))

    def _flush_later(self) -> None:
        if self.home.durability.mode == "interval":
            self.home.syncs.join_within(self._flusher, self.home.durability.interval_ms)
        if self.config.flush_ms < FLUSH_NEVER_MS and self._flush_timer is None:
            self._flush_timer = self.home.runtime.call_later(self.config.flush_ms, self._due)

    def _due(self) -> None:
        self._flush_timer = None
        if self.is_open and self.home.error is None:
            self._flusher.request()

    def flush_ended(self, error: OSError | None) -> None:
        """A sync has ended: the flushed end moved, or with an error it never will again."""
        waiting = self._waiting
        if self._after_sync:
            self.written_end_offset = max(self.written_end_offset, self.flushed_end_offset)
        while waiting and (error is not None or waiting[0].end_offset <= self.flushed_end_offset):
            self._tell_outcome(waiting.popleft(), error)
        if waiting:
            self._flusher.request()

    def _tell_outcome(self, outcome: _Waiting, error: OSError | None) -> None:
        end_offset, error = outcome.end_offset, error or outcome.error
        if error is not None:
            # The caller takes all that it placed behind a failed write for lost, so the log must forget it too.
            self._write_error = None
            self._unplace()
            end_offset = min(end_offset, self.flushed_end_offset)
        outcome.done(WriteOutcome(end_offset, error))

    def _cancel_flush_timer(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None

    # Truncate, from the end

    def truncate_to(self, offset: int) -> None:
        """Drop all batches with an offset ≥ ``offset``."""
        self.check()
        self._unplace()
        if offset >= self.appended_end_offset:
            return
        self._leave_pass(offset)
        if offset <= self._segments.first_offset:
            self.truncate_fully(offset)
            return
        self._callbacks.truncating(self.partition, offset)
        try:
            self._cut_to(offset)
        except OSError as error:
            self._broken_off(error, offset)
            raise

    def _cut_to(self, offset: int) -> None:
        segments = self._segments
        at = segments.index_of(offset)
        if segments[at].base_offset == offset:
            at -= 1
        if segments.drop_behind(at + 1, self.config.file_delete_delay_ms):
            # A crash could else bring these segments back behind the cut that follows: a hole where all was flushed.
            self.home.files.sync_dir(self.directory)
        segment = segments.active
        position, size = segment.locate(offset)
        if size:
            offset = min(offset, next(segment.batches(offset)).base_offset)
        segment.offsets.truncate_to(offset)
        segment.times.truncate_to(offset)
        segment.file().truncate(position)
        # A power cut could else bring back what was cut, in front of a newer segment that begins where it ends.
        segment.file().fdatasync()
        segment.was_cut(position)
        segment.save_indexes()
        self._ends_at(offset)

    def truncate_fully(self, start_offset: int) -> None:
        """Drop everything; the log starts at ``start_offset``."""
        self.check()
        self._unplace()
        self._leave_pass()
        self._callbacks.truncating(self.partition, start_offset)
        try:
            unmarked = remove_start_marks(self.home.files, self.directory)
            if self._segments.drop_behind(0, self.config.file_delete_delay_ms) or unmarked:
                # A power cut could else bring them back in front of the new one, where they end as it begins.
                self.home.files.sync_dir(self.directory)
            self._segments.add(start_offset)
        except OSError as error:
            self._broken_off(error, start_offset)
            raise
        self.log_start_offset = start_offset
        self._ends_at(start_offset)
        self.written_end_offset = start_offset

    def _ends_at(self, offset: int) -> None:
        """Move every end down to ``offset``, and write on there. Raises ``OSError``."""
        self.truncations += 1
        self._active.reopen()
        self._segments.active.next_offset = offset
        self.names_unsynced = True
        self.placed_end_offset = offset
        self.written_end_offset = min(self.written_end_offset, offset)
        self.flushed_end_offset = min(self.flushed_end_offset, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self._flusher.truncated(offset)
        for waiting in self._waiting:
            waiting.end_offset = min(waiting.end_offset, offset)
        if self.cleaned_end_offset > offset:
            self._cleaned_to(offset)

    def _broken_off(self, error: OSError, offset: int) -> None:
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

    # Truncate, from the front

    def advance_log_start(self, offset: int) -> None:
        """Let the log start at ``offset``. Raises ``ValueError`` above the written end."""
        self.check()
        if offset > self.written_end_offset:
            raise ValueError(f"the log ends at {self.written_end_offset}, and can't start at {offset}")
        self.log_start_offset = max(self.log_start_offset, offset)

    def drop_segments(self, end_offset: int) -> int:
        """Delete sealed segments that end at or below ``end_offset``, and return how many."""
        segments = self._segments
        self.check()
        if segments[0].next_offset <= end_offset:
            self._leave_pass()
        count = segments.drop_oldest(
            end_offset, self.config.file_delete_delay_ms, names_unsynced=self.names_unsynced
        )
        if count:
            self.log_start_offset = max(self.log_start_offset, segments.first_offset)
            self.names_unsynced = True
        return count

    # Compact

    @property
    def is_compacted_now(self) -> bool:
        """A cleaner pass runs, which may change what the log consists of."""
        return self._pass is not None

    def compact(self, request: CompactionRequest) -> Completion[CompactionResult]:
        """Do one pass, as ``SegmentedLog.compact`` says.

        :raises ValueError: one runs already
        """
        self.check()
        if self._pass is not None:
            raise ValueError(f"{self.directory} is being compacted")
        done: Completion[CompactionResult] = Completion()
        if self._moving:
            done.fail(CompactionAbandonedError("the log moves to another directory"))
            return done
        self._pass = CleanerPass(
            self.home, self._segments, request, self._swapped, self.config.file_delete_delay_ms
        )
        self.home.runtime.spawn(self._run_pass(self._pass, done), f"compact {self.directory}")
        return done

    def _leave_pass(self, offset: int = 0, *, finish: bool = True) -> None:
        """End a pass that works at ``offset`` or above, because something else is about to change the log there.

        A pass that has swapped its segments is finished here and now, blocking. Any other comes to nothing.

        :param finish: False: leave even a swap half done, because the whole directory goes
        :raises OSError: the directory is offline
        """
        if self._pass is not None and offset <= self._pass.end_offset:
            self._pass.leave(finish=finish)

    async def _run_pass(self, pass_: CleanerPass, done: Completion[CompactionResult]) -> None:
        try:
            result = await pass_.run()
        except (OSError, CompactionAbandonedError) as error:
            self._pass = None
            done.fail(error)
        else:
            self._pass = None
            done.complete(result)

    def _swapped(self, result: CompactionResult) -> None:
        self.names_unsynced = True
        self._cleaned_to(min(result.cleaned_end_offset, self.written_end_offset))

    def _cleaned_to(self, end_offset: int) -> None:
        """The log is clean up to ``end_offset``: the storage keeps that over restarts."""
        self.cleaned_end_offset = end_offset
        self._callbacks.cleaned(self.partition, end_offset)

    # Move: the copy in the making

    def begin_move(self) -> None:
        """A copy is about to be made: end a cleaner pass, and begin none before :meth:`end_move`. Raises ``OSError``.

        In the middle of a swap, a file's name doesn't say whose bytes are in it.
        """
        self._moving = True
        self._leave_pass()

    def end_move(self) -> None:
        """The move has ended, one way or the other."""
        self._moving = False
        self._aux.touched = None

    def layout(self) -> list[Original]:
        """Return what the log consists of now. Raises ``OSError``."""
        active = self._segments.active
        return [
            Original(segment, segment.next_offset, segment.size_bytes, segment is not active)
            for segment in self._segments
        ]

    def watch_aux(self) -> None:
        """Take down from now on which small files change. All that exist count as changed. Raises ``OSError``."""
        self._aux.touched = set(self._aux.names())

    def take_touched(self) -> list[str]:
        """Return the names that changed since the last call."""
        touched = sorted(self._aux.touched or ())
        self.touch([])
        return touched

    def touch(self, names: list[str]) -> None:
        """Let the next :meth:`take_touched` return these names, and those that change until then."""
        self._aux.touched = set(names)

    # Move: the cut-over

    def hold_writes(self) -> None:
        """Write nothing from now on: what is placed waits for :meth:`let_writes_go`. Raises ``OSError``."""
        self._active.wake().save()
        self._held = []

    def let_writes_go(self) -> None:
        """Write what waits, and tell the outcomes in the order of the writes. Without a hold this does nothing."""
        held, self._held = self._held, None
        if not held:
            return
        if not self.is_open:
            error = OSError(errno.ECANCELED, "the log was closed", self.directory)
            _tell(held, WriteOutcome(self.written_end_offset, error))
        else:
            self.write(lambda outcome: _tell(held, outcome))

    async def settle(self) -> bool:
        """Wait until :attr:`is_settled`, and return whether it came to that. Call it while writes are held.

        Raises ``OSError``.
        """
        for _ in range(SETTLE_SYNCS_MAX):
            if not self.is_open:
                return False
            if self.is_settled:
                return True
            await self._flusher.flush()
            await asyncio.sleep(0)
        return False

    @property
    def is_settled(self) -> bool:
        """No sync runs, nothing waits for one, and no cleaner pass runs."""
        return self._flusher.is_idle and not self._waiting and self._pass is None

    def relocate(self, home: LogDirectory, directory: str) -> list[Segment]:
        """Go on in a copy that is whole and flushed. Call it while writes are held and the log :attr:`is_settled`.

        :return: the segments that the log had; their files are still open
        :raises OSError: the copy can't be read: the log stays where it is
        """
        segments = []
        for old in self._segments:
            segment = Segment(home.files, directory, old.base_offset, old.next_offset)
            segment.size, segment.created_ms = old.size_bytes, old.created_ms
            segments.append(segment)
        copy, old = segments[-1], self._segments.active
        writer = self._active.copied_to(home, copy)
        if copy.next_offset > old.next_offset or copy.size_bytes != old.size_bytes:
            raise OSError(errno.EIO, f"the copy ends at {copy.next_offset}", copy.path())
        # The copy may end earlier than the log: compaction took the last records of a segment, and a truncation took
        # the segments behind it. Offsets are not given twice, so the log's own end counts.
        copy.next_offset, copy.created_ms = old.next_offset, old.created_ms
        self._active.relocate(home, writer)
        self._aux.directory = directory
        self.home, self.directory, self.directory_id = home, directory, home.directory_id
        self._flusher.close()
        self._flusher = Flusher(self, home.files, home.rounds())
        self.flushed_end_offset, self.names_unsynced = self.appended_end_offset, False
        self.small_unsynced.clear()
        return self._segments.relocate(home, directory, segments)

    # Life

    def check(self) -> None:
        """Raise ``OSError`` if the log is closed or its directory offline."""
        self.home.check()
        if not self.is_open:
            raise OSError(errno.EBADF, "the log is closed", self.directory)

    def reconfigure(self, config: TopicConfig) -> None:
        """The topic's configuration changed."""
        self.config = config
        self._active.configure(config)
        self._configure_flushes()

    def close(self) -> None:
        """Flush and close. A directory that is offline is not synced: that would not say what is on the device.

        A log whose indexes find no room is not closed cleanly: it is recovered when it is opened again.
        """
        if not self.is_open:
            return
        self._end()
        failed: OSError | None = None
        try:
            self._leave_pass()
            self.home.check()
            sealed = self._seal()
            self._sync_all()
            self.clean = sealed and self._active.as_closed
        except OSError as error:
            failed = error
            self.home.fail(error)
            raise
        finally:
            self._segments.close()
            self._callbacks.closed(self)
            self._tell_the_rest(failed)

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

    def discard(self) -> None:
        """Close without keeping anything: its directory goes."""
        if self.is_open:
            self._let_go("the log was deleted")

    def _let_go(self, why: str) -> None:
        self._end()
        self._leave_pass(finish=False)
        self._segments.close()
        self._callbacks.closed(self)
        self._tell_the_rest(OSError(errno.ECANCELED, why, self.directory))

    def _end(self) -> None:
        self._unplace()
        self.is_open = False
        self._flusher.close()
        self._cancel_flush_timer()

    def _sync_all(self) -> None:
        """Sync all of a log that is being closed. Blocks. Raises ``OSError``."""
        syncing = self._flusher.is_syncing
        dirty = self.flushed_end_offset < self.appended_end_offset or self.names_unsynced or syncing
        files = [segment.file() for segment in self.unflushed_segments()] if dirty else []
        indexes = [segment for segment in self._segments if segment.index_unsynced]
        if files or indexes or self.small_unsynced:
            sync(
                self.home.files,
                self.directory,
                files,
                indexes,
                names=True,
                topic_id=self.topic_id_unsynced,
                small=sorted(self.small_unsynced),
            )
        # The kernel reports an error of write-back once. Where a sync runs beside this one, it may be the other that
        # hears of it: only when both went well all of the log lasts (see last_sync).
        if not syncing:
            self._all_synced()

    def _tell_the_rest(self, error: OSError | None) -> None:
        """Tell the outcomes that no sync will cover any more."""
        waiting = list(self._waiting)
        self._waiting.clear()
        for outcome in waiting:
            if error is None and outcome.end_offset > self.flushed_end_offset:
                error = OSError(
                    errno.ECANCELED, "the log was closed before the sync had ended", self.directory
                )
            self._tell_outcome(outcome, error)

    @property
    def waits_for_last_sync(self) -> bool:
        """The log was closed while a sync of it ran, and that sync has not ended yet."""
        last = self._flusher.last_round
        return last is not None and not last.done

    async def last_sync(self) -> None:
        """Wait for that sync. If it and the sync of the close went well, all of the log lasts."""
        last = self._flusher.last_round
        if last is not None and await last and self.clean:
            self._all_synced()

    def _all_synced(self) -> None:
        for segment in self._segments:
            segment.index_unsynced = False
        self.flushed_end_offset = self.appended_end_offset


def _tell(held: list[Done], outcome: WriteOutcome) -> None:
    for done in held:
        done(outcome)
