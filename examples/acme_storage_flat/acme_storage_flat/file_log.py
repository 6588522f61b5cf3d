"""The log of one partition: its batches one behind another in one file, and in memory where each of them begins.

The file is a generation of the log: ``truncate_fully`` begins a new one, so that records of the old one can never stand
among those of the new. Which generation counts, and at which offset it begins, the small file ``head`` says.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import NamedTuple, Protocol, TypeVar

from blumfeld.config.values import TopicConfig
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import File, Files, Runtime, Timer
from blumfeld.spi.storage import (
    AuxFiles,
    LogListener,
    LogRead,
    OffsetOutOfRangeError,
    TimestampOffset,
    WriteOutcome,
)
from blumfeld.wire.batches.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, RecordBatch
from blumfeld.wire.batches.records import times
from blumfeld.wire.errors import BrokerError

HEAD = "head"
AUX = "aux."
BUFFERS_MAX = 1024
"""Buffers of one gather write: the operating system's IOV_MAX."""
_next_offset = attrgetter("next_offset")
T = TypeVar("T")


class Stored(NamedTuple):
    """Where a batch is."""

    base_offset: int
    next_offset: int
    position: int
    size_bytes: int
    max_timestamp_ms: int


class Outcome(NamedTuple):
    """The outcome of a write that waits for a sync (``flush.messages``)."""

    done: Callable[[WriteOutcome], None]
    end_offset: int
    error: OSError | None


class Owner(Protocol):
    """What a log asks of its storage."""

    runtime: Runtime
    directory_id: bytes

    def check(self) -> None:
        """Raises ``OSError`` once the directory is offline."""

    def fail(self, error: OSError) -> None:
        """The directory is offline from now on."""

    def closed(self, log: FlatLog, *, clean: bool) -> None:
        """Nothing more is written to the log. If it is ``clean``, all of it lasts."""


class FlatAux:
    """``AuxFiles`` beside the records."""

    def __init__(self, owner: Owner, path: str) -> None:
        self._owner, self._path = owner, path

    @property
    def _files(self) -> Files:
        self._owner.check()
        return self._owner.runtime.files

    def names(self) -> list[str]:
        """All of them, sorted."""
        names = (name for name in self._files.list_dir(self._path) if not name.endswith(".tmp"))
        return [name.removeprefix(AUX) for name in names if name.startswith(AUX)]

    def read(self, name: str) -> bytes | None:
        """The file's bytes, or ``None``."""
        path = f"{self._path}/{AUX}{name}"
        return self._files.read_bytes(path) if self._files.exists(path) else None

    def write(self, name: str, data: bytes) -> None:
        """Replace it."""
        self._files.write_atomically(f"{self._path}/{AUX}{name}", data)

    write_unsynced = write

    def delete(self, name: str) -> None:
        """Remove it; it may be absent."""
        path = f"{self._path}/{AUX}{name}"
        if self._files.exists(path):
            self._files.unlink(path)


class FlatLog:
    """``PartitionLog``. Made by :meth:`scan` and :meth:`opened`, since looking through a file takes time."""

    def __init__(self, owner: Owner, path: str, config: TopicConfig, listener: LogListener) -> None:
        self.path = path
        self.aux: AuxFiles = FlatAux(owner, path)
        self.directory_id = owner.directory_id
        self._owner, self._config = owner, config
        self._files = owner.runtime.files
        self._stored: list[Stored] = []
        self._told: list[RecordBatch] = []
        self._placed: list[RecordBatch] = []
        self._outcomes: deque[Outcome] = deque()
        """In the order of the writes, until a sync covers them."""
        self._flushes: list[Completion[int]] = []
        """Flushes that wait for the next sync."""
        self._syncing = False
        self._covers = 0
        """The sync that runs, or the last one, covers everything below this offset."""
        self._timer: Timer | None = None
        self._listener = listener
        self._file: File
        self._generation = self._begins_at = 0
        self._closed = False
        self.log_start_offset = 0
        self.placed_end_offset = self.written_end_offset = self.flushed_end_offset = 0

    # Opening: in a worker

    def scan(self, log_start_offset: int, *, clean: bool) -> None:
        """Find every batch; of a log that was not stopped cleanly, cut off what is not whole."""
        files = self._files
        head = f"{self.path}/{HEAD}"
        if files.exists(head):
            self._generation, self._begins_at = map(int, files.read_bytes(head).split())
        for name in files.list_dir(self.path):
            half_done = name.startswith("records.") and name != f"records.{self._generation}"
            if half_done or name.endswith(".tmp"):
                files.unlink(f"{self.path}/{name}")
        is_new = not files.exists(self._records_path())
        self._file = files.open(self._records_path(), create=True)
        position = self._walk(self._file.size(), clean)
        if position < self._file.size():
            self._file.truncate(position)
        if not clean:
            self._file.fdatasync()  # or a second crash could leave old bytes behind what is written next
        if is_new or not clean:
            files.sync_dir(self.path)  # a flush is of the file: its name must last too
        end = self._end
        self.placed_end_offset = self.written_end_offset = self.flushed_end_offset = end
        first = self._stored[0].base_offset if self._stored else end
        self.log_start_offset = max(first, min(log_start_offset, end))

    def _walk(self, size_bytes: int, clean: bool) -> int:
        position, end = 0, self._begins_at
        while position < size_bytes:
            try:
                batch = RecordBatch.peek(memoryview(self._file.pread(HEADER_BYTES, position)))
                if batch.base_offset < end or position + batch.size_bytes > size_bytes:
                    break
                if not clean:
                    batch = RecordBatch(memoryview(self._file.pread(batch.size_bytes, position)))
                    batch.verify_crc()
                    self._told.append(batch)
            except BrokerError:
                break
            self._remember(batch, position)
            position, end = position + batch.size_bytes, batch.next_offset
        return position

    def opened(self) -> FlatLog:
        """On the loop: tell the listener what the walk went over."""
        batches, self._told = self._told, []
        for batch in batches:
            self._listener.recovered(batch)
        return self

    # Append

    def place(self, batch: RecordBatch, leader_epoch: int) -> int:
        """Give the batch the next offsets."""
        self._check()
        base_offset = self.placed_end_offset
        batch.assign_offset(base_offset, leader_epoch)
        self._placed.append(batch)
        self.placed_end_offset = batch.next_offset
        return base_offset

    def place_as_is(self, batch: RecordBatch) -> None:
        """Place a batch that has its offsets already."""
        if batch.base_offset < self.placed_end_offset:
            raise ValueError(f"a batch at {batch.base_offset} can't follow {self.placed_end_offset}")
        self._placed.append(batch)
        self.placed_end_offset = batch.next_offset

    def write(self, done: Callable[[WriteOutcome], None]) -> None:
        """Write all that is placed; all of it or nothing. Outcomes are told in the order of the writes."""
        placed, self._placed = self._placed, []
        # A failed write takes everything behind it along until its outcome is told.
        error = self._outcomes[-1].error if self._outcomes else None
        if error is None:
            error = self._append(placed)
        self.placed_end_offset = end = self.written_end_offset
        unflushed = end - self.flushed_end_offset
        if self._outcomes or (error is None and unflushed and unflushed >= self._config.flush_messages):
            self._outcomes.append(Outcome(done, end, error))
            self._sync_soon()
            return
        if unflushed and self._timer is None and self._config.flush_ms < 1 << 62:
            self._timer = self._owner.runtime.call_later(self._config.flush_ms, self._flush_by_time)
        done(WriteOutcome(end, error))

    def _append(self, placed: list[RecordBatch]) -> OSError | None:
        position = start = self._size
        try:
            self._check()
            for at in range(0, len(placed), BUFFERS_MAX):
                buffers = [batch.data for batch in placed[at : at + BUFFERS_MAX]]
                size_bytes = sum(map(len, buffers))
                if self._file.pwritev(buffers, position) < size_bytes:
                    raise OSError(errno.ENOSPC, "short write: no room for the batch", self.path)
                position += size_bytes
        except OSError as error:
            self._cut_back(start)
            return error
        for batch in placed:
            self._remember(batch, start)
            start += batch.size_bytes
        self.written_end_offset = self.placed_end_offset
        return None

    def _cut_back(self, size_bytes: int) -> None:
        """What was refused must not be found by a recovery: neither now nor behind a power cut."""
        try:
            if self._file.size() > size_bytes:
                self._file.truncate(size_bytes)
                self._file.fdatasync()
        except OSError as error:
            self._owner.fail(error)

    # Flush: off the loop, one sync at a time

    def _flush_by_time(self) -> None:
        self._timer = None
        if not self._closed:
            self._sync_soon()

    def flush(self) -> Completion[int]:
        """Make what is written last. A flush that comes while a sync runs waits for the next one."""
        self._check()
        if self.flushed_end_offset == self.written_end_offset:
            return Completion.of(self.flushed_end_offset)
        done: Completion[int] = Completion()
        self._flushes.append(done)
        self._sync_soon()
        return done

    def _sync_soon(self) -> None:
        if not self._syncing:
            self._syncing = True
            self._owner.runtime.spawn(self._sync(), "sync a flat log")

    async def _sync(self) -> None:
        """Sync until no flush and no outcome waits. A failed sync ends them all: it is never tried again, since the
        kernel may have dropped the pages.
        """
        waits = True
        while waits:
            served, self._flushes = self._flushes, []
            failure = await self._sync_once()
            if failure is not None:
                self._owner.fail(failure)
            elif self._closed and self._covers < self.written_end_offset:
                failure = OSError(errno.EBADF, "the log was closed before it was synced", self.path)
            else:
                self.flushed_end_offset = max(self.flushed_end_offset, self._covers)
            if failure is not None or self._closed:  # there is no next sync
                served += self._flushes
                self._flushes = []
            self._tell_outcomes(failure)
            self._end_flushes(served, failure)
            waits = bool(self._flushes or self._outcomes)
        self._syncing = False

    async def _sync_once(self) -> OSError | None:
        if self._closed:
            return None
        self._covers, held = self.written_end_offset, self._file.region(0, 0)
        try:
            await self._owner.runtime.offload(self._file.fdatasync)
        except OSError as error:
            return error
        finally:
            held.release()
        return None

    def _end_flushes(self, flushes: list[Completion[int]], failure: OSError | None) -> None:
        for flush in flushes:
            if failure is None:
                flush.complete(self.flushed_end_offset)
            else:
                flush.fail(failure)

    def _tell_outcomes(self, failure: OSError | None) -> None:
        outcomes = self._outcomes
        while outcomes and (failure or outcomes[0].end_offset <= self.flushed_end_offset):
            done, end, error = outcomes.popleft()
            error = failure or error
            if error is not None:
                # The caller takes all that it placed behind a failed write for lost, so it is forgotten here too.
                self._placed.clear()
                self.placed_end_offset = self.written_end_offset
                end = min(end, self.flushed_end_offset)
            done(WriteOutcome(end, error))

    # Read

    def read(
        self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool
    ) -> LogRead | Completion[LogRead]:
        """A region of the file, from the batch that contains ``offset``."""
        self._check()
        if not self.log_start_offset <= offset <= self.written_end_offset:
            raise OffsetOutOfRangeError(
                f"{offset} is outside of {self.log_start_offset}..{self.written_end_offset}"
            )
        first = last = self._at(offset)
        size_bytes = 0
        while last < len(self._stored) and self._stored[last].next_offset <= end_offset:
            more = self._stored[last].size_bytes
            if size_bytes + more > bytes_max and (size_bytes or not minimum_one_batch):
                break
            size_bytes, last = size_bytes + more, last + 1
        if not size_bytes:
            return LogRead([], 0, offset)
        position, end = self._stored[first].position, self._stored[last - 1].next_offset
        if not self._file.is_cached(position, size_bytes):
            again = partial(self.read, offset, bytes_max, end_offset, minimum_one_batch)
            return self._when_warm(position, size_bytes, again)
        return LogRead([self._file.region(position, size_bytes)], size_bytes, end)

    def _when_warm(
        self, position: int, size_bytes: int, again: Callable[[], T | Completion[T]]
    ) -> Completion[T]:
        """A completion of ``again()``, once the bytes are in memory: the loop waits for no disk."""
        done: Completion[T] = Completion()
        self._owner.runtime.spawn(self._warm(position, size_bytes, again, done), "read ahead in a flat log")
        return done

    async def _warm(
        self, position: int, size_bytes: int, again: Callable[[], T | Completion[T]], done: Completion[T]
    ) -> None:
        try:
            held = self._file.region(position, size_bytes)
            try:
                await self._owner.runtime.offload(self._file.read_ahead, position, size_bytes)
            finally:
                held.release()
            # Looked up anew: meanwhile the log may have been cut, closed, or taken offline.
            answer = again()
            outcome = await answer if isinstance(answer, Completion) else answer
        except Exception as error:  # whatever it is, the reader is told: nobody else waits for this task
            done.fail(error)
        else:
            done.complete(outcome)

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        """Written batches from the one that contains ``offset`` on."""
        for stored in self._stored[self._at(offset) :]:
            yield self._batch(stored)

    def offset_for_time(
        self, timestamp_ms: int
    ) -> TimestampOffset | Completion[TimestampOffset | None] | None:
        """The first record with a timestamp ≥ ``timestamp_ms``, from the log start on."""
        self._check()
        for stored in self._stored[self._at(self.log_start_offset) :]:
            if stored.max_timestamp_ms < timestamp_ms:
                continue
            if not self._file.is_cached(stored.position, stored.size_bytes):
                again = partial(self.offset_for_time, timestamp_ms)
                return self._when_warm(stored.position, stored.size_bytes, again)
            place = self._first(stored, timestamp_ms)
            if place is not None:
                return place  # else: its records at that time lie below the log start
        return None

    def _first(self, stored: Stored, timestamp_ms: int) -> TimestampOffset | None:
        batch = self._batch(stored)
        for time_ms, offset in times(batch):
            if time_ms >= timestamp_ms and offset >= self.log_start_offset:
                return TimestampOffset(time_ms, offset, batch.partition_leader_epoch)
        return None

    def max_timestamp(self) -> TimestampOffset | Completion[TimestampOffset | None] | None:
        """The first record with the highest timestamp."""
        visible = self._stored[self._at(self.log_start_offset) :]
        highest = max((stored.max_timestamp_ms for stored in visible), default=-1)
        return self.offset_for_time(highest) if highest >= 0 else None

    def size_bytes(self) -> int:
        """Bytes of the file, also below the log start: they come back when the log is emptied or deleted."""
        return self._size

    # Cut

    def truncate_to(self, offset: int) -> None:
        """Drop all batches that reach beyond ``offset``."""
        self._check()
        self._placed.clear()
        self.placed_end_offset = self.written_end_offset
        if offset >= self.written_end_offset:
            return
        at = self._at(offset)
        end = min(offset, self._stored[at].base_offset) if at < len(self._stored) else offset
        position = self._stored[at].position if at < len(self._stored) else self._size
        del self._stored[at:]
        self._file.truncate(position)
        # Synced here, though that takes a moment: or what is written next could stand in front of the old end.
        self._file.fdatasync()
        self._end_at(end if self._stored or end > self._begins_at else self._begins_at)

    def truncate_fully(self, start_offset: int) -> None:
        """Drop everything: a new generation, which counts as soon as ``head`` says so."""
        self._check()
        old = self._records_path()
        self._file.close()
        self._placed.clear()
        self._stored.clear()
        self._generation, self._begins_at = self._generation + 1, start_offset
        self._file = self._files.open(self._records_path(), create=True)
        head = f"{self._generation} {start_offset}".encode()
        self._files.write_atomically(f"{self.path}/{HEAD}", head)
        self._files.unlink(old)
        self.log_start_offset = start_offset
        self._end_at(start_offset)

    def _end_at(self, offset: int) -> None:
        """A sync that runs proves nothing of what is written from here on."""
        self._covers = min(self._covers, offset)
        self._outcomes = deque(o._replace(end_offset=min(o.end_offset, offset)) for o in self._outcomes)
        self.placed_end_offset = self.written_end_offset = offset
        self.flushed_end_offset = min(self.flushed_end_offset, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        if not self._stored:
            self.flushed_end_offset = offset

    def advance_log_start(self, offset: int) -> None:
        """Readers see nothing below; the bytes stay."""
        self._check()
        if offset > self.written_end_offset:
            raise ValueError(f"the log ends at {self.written_end_offset}, and can't start at {offset}")
        self.log_start_offset = max(self.log_start_offset, offset)

    # Life

    def reconfigure(self, config: TopicConfig) -> None:
        """The topic's configuration changed."""
        self._config = config

    def close(self) -> None:
        """Flush and close."""
        if self._closed:
            return
        self._let_go()
        try:
            self._check()
            self._file.fdatasync()
            if self._syncing:
                # The kernel reports an error of write-back once, so the sync that runs may be the one that hears of it.
                self._covers = self.written_end_offset
            else:
                self.flushed_end_offset = self.written_end_offset
            self._owner.closed(self, clean=not self._syncing)
        except OSError as error:
            self._owner.fail(error)
            raise
        finally:
            self._file.close()

    def discard(self) -> None:
        """Close without keeping anything: the log is deleted."""
        if not self._closed:
            self._let_go()
            self._file.close()

    # Within

    def _let_go(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._placed.clear()
        self.placed_end_offset = self.written_end_offset

    @property
    def _size(self) -> int:
        return self._stored[-1].position + self._stored[-1].size_bytes if self._stored else 0

    @property
    def _end(self) -> int:
        return self._stored[-1].next_offset if self._stored else self._begins_at

    def _at(self, offset: int) -> int:
        """The place of the first batch that reaches beyond ``offset``."""
        return bisect_right(self._stored, offset, key=_next_offset)

    def _remember(self, batch: RecordBatch, position: int) -> None:
        size_bytes = batch.batch_length + LOG_OVERHEAD_BYTES
        stored = Stored(batch.base_offset, batch.next_offset, position, size_bytes, batch.max_timestamp)
        self._stored.append(stored)

    def _batch(self, stored: Stored) -> RecordBatch:
        return RecordBatch(memoryview(self._file.pread(stored.size_bytes, stored.position)))

    def _records_path(self) -> str:
        return f"{self.path}/records.{self._generation}"

    def _check(self) -> None:
        self._owner.check()
