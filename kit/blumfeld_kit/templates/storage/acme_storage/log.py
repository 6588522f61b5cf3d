"""The log of one partition: a list of batches, until you write them down."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from blumfeld.config.values import TopicConfig
from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import (
    AuxFiles,
    LogRead,
    OffsetOutOfRangeError,
    TimestampOffset,
    WriteOutcome,
)
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import times


class SmallFiles:
    """``AuxFiles``: what the broker keeps beside a log. WRITE HERE: in files."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self._files)

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, or ``None``."""
        return self._files.get(name)

    def write(self, name: str, data: bytes) -> None:
        """Replace a file."""
        self._files[name] = bytes(data)

    def write_unsynced(self, name: str, data: bytes) -> None:
        """Replace a file, and wait for no device."""
        self.write(name, data)

    def delete(self, name: str) -> None:
        """Remove a file. It may be absent."""
        self._files.pop(name, None)


class AcmeStorageLog:
    """``PartitionLog``. Placed batches are written at the end of the turn; only then readers see them."""

    def __init__(self, directory_id: bytes) -> None:
        self.aux: AuxFiles = SmallFiles()
        self.directory_id = directory_id
        self.log_start_offset = 0
        self.placed_end_offset = self.written_end_offset = self.flushed_end_offset = 0
        self._placed: list[RecordBatch] = []
        self._batches: list[bytes] = []
        self._last_offsets: list[int] = []

    def place(self, batch: RecordBatch, leader_epoch: int) -> int:
        """Give the batch the next offsets."""
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
        """Keep a copy of each placed batch: its buffer is the connection's. WRITE HERE: to a file, in one write.

        A write that fails is an outcome with an error, and leaves nothing behind. With ``flush.messages`` the outcome
        waits for a sync, and later ones wait behind it.
        """
        placed, self._placed = self._placed, []
        for batch in placed:
            self._batches.append(bytes(batch.data))
            self._last_offsets.append(batch.last_offset)
        self.written_end_offset = self.flushed_end_offset = self.placed_end_offset
        done(WriteOutcome(self.written_end_offset))

    def flush(self) -> Completion[int]:
        """Complete at once. WRITE HERE: sync the file by ``runtime.offload``, and complete behind it."""
        return Completion.of(self.flushed_end_offset)

    def read(self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool) -> LogRead:
        """Return whole batches from the one that contains ``offset`` on."""
        if not self.log_start_offset <= offset <= self.written_end_offset:
            valid = f"{self.log_start_offset}..{self.written_end_offset}"
            raise OffsetOutOfRangeError(f"{offset} is outside of {valid}")
        read = LogRead([], 0, offset)
        for at in range(self._at(offset), self._at(end_offset)):
            data = self._batches[at]
            if read.size_bytes + len(data) > bytes_max and (read.parts or not minimum_one_batch):
                break
            read.parts.append(data)
            read.size_bytes += len(data)
            read.end_offset = self._last_offsets[at] + 1
        return read

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        """Return the written batches from the one that contains ``offset`` on."""
        for data in self._batches[self._at(offset) :]:
            yield RecordBatch(memoryview(data))

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
        highest = max((batch.max_timestamp for batch in self.batches(self.log_start_offset)), default=-1)
        return self.offset_for_time(highest) if highest >= 0 else None

    def size_bytes(self) -> int:
        """Return the bytes of all batches."""
        return sum(map(len, self._batches))

    def truncate_to(self, offset: int) -> None:
        """Drop all batches with an offset ≥ ``offset``, and what was placed. WRITE HERE: in the file too."""
        at = self._at(offset) if offset < self.written_end_offset else len(self._batches)
        if at < len(self._batches):
            offset = min(offset, RecordBatch(memoryview(self._batches[at])).base_offset)
        del self._batches[at:], self._last_offsets[at:]
        self._end_at(min(offset, self.written_end_offset))

    def truncate_fully(self, start_offset: int) -> None:
        """Drop everything, and begin anew at ``start_offset``. WRITE HERE: in the file too."""
        self._batches, self._last_offsets = [], []
        self.log_start_offset = start_offset
        self._end_at(start_offset)

    def advance_log_start(self, offset: int) -> None:
        """Let the log start at ``offset``. The next checkpoint keeps it."""
        if offset > self.written_end_offset:
            raise ValueError(f"the log ends at {self.written_end_offset}, and can't start at {offset}")
        self.log_start_offset = max(self.log_start_offset, offset)

    def reconfigure(self, config: TopicConfig) -> None:
        """Need nothing of the topic's configuration. WRITE HERE: ``flush_messages`` and ``flush_ms``."""

    def close(self) -> None:
        """Drop what was placed. WRITE HERE: flush, and close the file. May be called twice."""
        self._end_at(self.written_end_offset)

    def _at(self, offset: int) -> int:
        """Return the number of the first batch that ends at ``offset`` or behind."""
        return bisect_left(self._last_offsets, offset)

    def _end_at(self, offset: int) -> None:
        self._placed = []
        self.placed_end_offset = self.written_end_offset = self.flushed_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
