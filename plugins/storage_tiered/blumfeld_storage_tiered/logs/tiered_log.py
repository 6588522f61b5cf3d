"""The log of a tiered topic: a local log, and before it what lies in the remote store (``spi.tiering.TieredLog``).

What appends are the local log's own methods, bound once: a produce costs no call more. What reads looks first on which
side of the border the offset lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter

from crc32c import crc32c

from blumfeld.config.values import TopicConfig
from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import (
    LogRead,
    LogReadOutcome,
    OffsetOutOfRangeError,
    SegmentedLog,
    TimestampOffset,
)
from blumfeld.spi.tiering import LogStartState
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld_storage_tiered.logs.remote_part import RemotePart

START_FILE = "remote-log-start-offset"
"""The small file beside the log with the start of the whole log: decimal digits, and their CRC-32C in hexadecimal."""

TimestampOutcome = TimestampOffset | Completion[TimestampOffset | None] | None


class TieredLog:
    """``TieredLog`` around a local log.

    :param left: called when the log goes on without the store, is closed or deleted
    :raises OSError: the start of the whole log can't be read or written
    """

    __slots__ = (
        "_left",
        "_local",
        "_remote",
        "aux",
        "compact",
        "config",
        "flush",
        "log_start_offset",
        "place",
        "place_as_is",
        "roll",
        "segments",
        "size_bytes",
        "write",
    )

    def __init__(
        self,
        local: SegmentedLog,
        remote: RemotePart,
        config: TopicConfig,
        left: Callable[[], None],
    ) -> None:
        self._local = local
        self._remote = remote
        self.config = config
        self._left = left
        self.aux = local.aux
        self.place, self.place_as_is, self.write = local.place, local.place_as_is, local.write
        self.flush, self.roll, self.compact = local.flush, local.roll, local.compact
        self.segments, self.size_bytes = local.segments, local.size_bytes
        saved = local.aux.read(START_FILE)
        # Written before the local start can move: without the file, the next start of the node takes the local start
        # for that of the whole log.
        self.log_start_offset = local.log_start_offset if saved is None else _offset_in(saved)
        if saved is None:
            self._save()
        # The local log's own start is checkpointed now and then, so a killed node may have an older one.
        if self.log_start_offset > local.written_end_offset:
            # A power cut took the end. No offset is given twice, so the log begins anew at its start.
            local.truncate_fully(self.log_start_offset)
        elif self.log_start_offset > local.log_start_offset:
            local.advance_log_start(self.log_start_offset)

    placed_end_offset: int = property(attrgetter("_local.placed_end_offset"))  # type: ignore[assignment]
    written_end_offset: int = property(attrgetter("_local.written_end_offset"))  # type: ignore[assignment]
    flushed_end_offset: int = property(attrgetter("_local.flushed_end_offset"))  # type: ignore[assignment]
    directory_id: bytes = property(attrgetter("_local.directory_id"))  # type: ignore[assignment]
    cleaned_end_offset: int = property(attrgetter("_local.cleaned_end_offset"))  # type: ignore[assignment]
    local_log_start_offset: int = property(attrgetter("_local.log_start_offset"))  # type: ignore[assignment]

    @property
    def local(self) -> SegmentedLog:
        """The log inside."""
        return self._local

    @property
    def remote(self) -> RemotePart:
        """The part that lies in the store."""
        return self._remote

    @property
    def copied_end_offset(self) -> int:
        """The end of what the store has; -1 as long as that isn't known."""
        return self._remote.copied_end_offset(self._local.log_start_offset)

    # Reads

    def read(self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool) -> LogReadOutcome:
        """Bytes from the batch that contains ``offset``, from the disk or by a completion from the store."""
        if offset >= self._local.log_start_offset:
            outcome = self._local.read(offset, bytes_max, end_offset, minimum_one_batch)
            return outcome if isinstance(outcome, LogRead) else self._unless_moved(outcome, offset)
        if offset < self.log_start_offset:
            raise OffsetOutOfRangeError(f"offset {offset} is below the log start {self.log_start_offset}")
        return self._remote.read(offset, bytes_max, minimum_one_batch)

    def _unless_moved(self, cold: Completion[LogRead], offset: int) -> Completion[LogRead]:
        """Return the result of a cold local read. It has no bytes if the segment left the disk meanwhile: the log still
        has them, and the next fetch reads them in the store."""
        outcome: Completion[LogRead] = Completion()

        def take(done: Completion[LogRead]) -> None:
            error = done.error
            if error is None:
                outcome.complete(done.result())
            elif isinstance(error, OffsetOutOfRangeError) and self.log_start_offset <= offset:
                outcome.complete(LogRead([], 0, offset))
            else:
                outcome.fail(error)

        cold.when_done(take)
        return outcome

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        """Batches of the local part from the one that contains ``offset`` on."""
        return self._local.batches(max(offset, self._local.log_start_offset))

    def offset_for_time(self, timestamp_ms: int) -> TimestampOutcome:
        """The first record of the whole log with a timestamp ≥ ``timestamp_ms``."""
        if self.log_start_offset >= self._local.log_start_offset:
            return self._local.offset_for_time(timestamp_ms)
        return self._remote.offset_for_time(timestamp_ms, self.log_start_offset, self._local)

    def max_timestamp(self) -> TimestampOutcome:
        """The record of the whole log with the highest timestamp."""
        if self.log_start_offset >= self._local.log_start_offset:
            return self._local.max_timestamp()
        return self._remote.max_timestamp(self.log_start_offset, self._local)

    def state_at(self, offset: int, leader_epoch: int) -> Completion[LogStartState]:
        """As ``TieredLog.state_at``."""
        return self._remote.state_at(offset, leader_epoch)

    # The two starts

    def drop_segments(self, end_offset: int) -> int:
        """Delete local segments that the store has."""
        return self._local.drop_segments(end_offset)

    def advance_log_start(self, offset: int) -> None:
        """The whole log starts at ``offset``; the local part too, if it began below."""
        if offset > self._local.log_start_offset:
            self._local.advance_log_start(offset)
        self._start_at(max(offset, self.log_start_offset))

    def truncate_to(self, offset: int) -> None:
        """Drop all batches with an offset ≥ ``offset``, here. What the store has of them isn't this log's any more."""
        if offset < self._local.log_start_offset:
            self._local.truncate_fully(offset)
            self._start_at(min(self.log_start_offset, offset))
        else:
            self._local.truncate_to(offset)

    def truncate_fully(self, start_offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything that is local; see the contract."""
        start = start_offset if log_start_offset is None else min(log_start_offset, start_offset)
        if start < self.log_start_offset:
            self._start_at(start)  # before the local part is empty: a crash between leaves too early a start
        self._local.truncate_fully(start_offset)
        self._start_at(start)

    def _start_at(self, offset: int) -> None:
        if offset != self.log_start_offset:
            self.log_start_offset = offset
            self._save()

    def _save(self) -> None:
        # At once: the owner cuts the leader epochs at the start next. With an older start, a restarted node would look
        # for records in epochs that it doesn't know.
        self.aux.write(START_FILE, encode_start(self.log_start_offset))

    # The rest

    def reconfigure(self, config: TopicConfig) -> None:
        """The topic's configuration changed."""
        self.config = config
        self._local.reconfigure(config)

    def close(self) -> None:
        """Close the local log."""
        self.leave()
        self._local.close()

    def leave(self) -> None:
        """Let go of the store: the log goes on without it, is closed or deleted."""
        self._remote.leave()
        self._left()


def encode_start(offset: int) -> bytes:
    """Return the content of :data:`START_FILE`."""
    digits = str(offset).encode()
    return digits + b" %08x" % crc32c(digits)


def _offset_in(content: bytes) -> int:
    """Return the offset in a start file. A leader deletes what the store has below it, so a checksum goes with it. A
    person may write ``0``, which deletes nothing.

    :raises OSError: the file has been changed
    """
    digits = content.partition(b" ")[0]
    if content.strip() != b"0" and not (digits.isdigit() and content == encode_start(int(digits))):
        allowed = "an offset and its CRC-32C, as they were written. Put them back, or write 0"
        raise OSError(f"{START_FILE}: found {content[:40]!r}; allowed: {allowed}")
    return int(digits.strip())
