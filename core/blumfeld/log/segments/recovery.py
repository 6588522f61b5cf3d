"""Recovery walk over a segment after a crash: which batches are whole, and where to cut the log.

Pure: the driver brings ``read(position, size)``. The generator works in slices of about one chunk, so that
the driver can run them off the loop one by one, or count them.

The walk determines how long a start after a crash takes. So a sound batch makes no object: its header's
fields go straight into index entries. Only an unsound one is parsed again, to report what is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from zlib import crc32

import msgspec
from crc32c import crc32c

from blumfeld.log.segments.index import NO_TIMESTAMP, RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex
from blumfeld.wire.batches.record_batch import (
    CRC_FROM,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_LEADER_EPOCH,
    RecordBatch,
    TruncatedBatch,
    UnsupportedMagic,
)
from blumfeld.wire.errors import BrokerError

CHUNK_BYTES = 1 << 20
"""Bytes read at once. A larger batch is checked in chunks."""
_UNKNOWN_EPOCH = NO_LEADER_EPOCH - 1
"""An epoch that no batch has, so that the first batch of a segment is always reported."""
_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES
_LEGACY_MAGICS = (0, 1)
_LEGACY_HEADER_BYTES = 12
_LEGACY_CRC_BYTES = 4
_LEGACY_MESSAGE_BYTES_MIN = 14
_LEGACY_MESSAGE_BYTES_MAX = 100 << 20
_unpack = struct.Struct(">qiibIhiqqq").unpack_from
"""A batch header up to its producer id."""
_pack_offset = struct.Struct(">ii").pack
_pack_time = struct.Struct(">qi").pack

Read = Callable[[int, int], "bytes | bytearray | memoryview"]
"""``read(position, size)``: returns the bytes there; fewer only at the end of the file."""
BatchListener = Callable[[RecordBatch], object]
"""Receives, in order, the batches that matter to producers or leader epochs: the first of a segment, those
with a producer id, and those whose epoch differs from the batch before. ``data`` is the whole of a control
batch, else the header only. Both may be kept.
"""


class LegacyFormat(ValueError):  # noqa: N818 - the noun says what it is
    """A whole message of format 0 or 1 stands in the log. It is an old Kafka's data and must not be cut off."""


class WalkEnd(msgspec.Struct, frozen=True):
    """The end of a walk."""

    position: int
    """Everything before is whole: cut the file to this size."""
    next_offset: int
    """Last offset of the last whole batch, + 1; the base offset if there is none."""
    problem: str | None
    """The fault at ``position``; ``None`` at the end of a sound segment."""


class RecoveredSegment(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a walk. The driver cuts the log accordingly and saves the indexes."""

    end: WalkEnd
    offsets: OffsetIndex
    times: TimeIndex
    max_timestamp_ms: int
    max_timestamp_offset: int
    """Last offset of the first batch with the highest timestamp, or -1."""
    first_timestamp_ms: int
    """Highest timestamp of the first batch, or -1: a roll by time counts from here."""


def recover_segment(
    read: Read,
    size_bytes: int,
    base_offset: int,
    *,
    interval_bytes: int,
    listener: BatchListener | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Generator[int, None, RecoveredSegment]:
    """Walk a segment and rebuild its indexes. Yields the bytes walked after each slice.

    The walk ends at the first batch that is cut off, damaged or out of order. It checks length, format and
    CRC-32C, and that offsets rise and stay within the segment's range.

    :raises LegacyFormat: a message of format 0 or 1 with a correct CRC
    """
    walk = _Walk(base_offset, interval_bytes, listener)
    problem: str | None = None
    while walk.position < size_bytes and problem is None:
        start = walk.position
        chunk = memoryview(read(start, min(chunk_bytes, size_bytes - start)))
        taken = walk.take(chunk)
        if taken < len(chunk):
            problem = _problem(chunk, taken, walk, read)
        if not taken and problem is None:
            problem = _take_large(walk, read, size_bytes, chunk_bytes)
        if walk.position > start:
            yield walk.position
    return walk.ended(problem)


class _Walk:
    """The state of a walk. Index entries follow the rules of ``segments.index.SegmentIndexer``."""

    __slots__ = (
        "_epoch",
        "_interval_bytes",
        "_listener",
        "_offsets",
        "_since_bytes",
        "_times",
        "base_offset",
        "first_timestamp_ms",
        "indexed_ms",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "next_offset",
        "position",
    )

    def __init__(self, base_offset: int, interval_bytes: int, listener: BatchListener | None) -> None:
        self.base_offset = self.next_offset = base_offset
        self.position = 0
        self.max_timestamp_ms = self.indexed_ms = self.first_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = -1
        self._offsets, self._times = bytearray(), bytearray()
        self._interval_bytes = interval_bytes
        self._since_bytes = 0
        self._epoch = _UNKNOWN_EPOCH
        self._listener = listener

    def take(self, chunk: memoryview, *, whole: bool = True) -> int:
        """Take in the sound batches at the start of ``chunk``, which lies at :attr:`position`. Returns their
        size in bytes.

        :param whole: False if the chunk is only a header, of a batch that was found to be sound
        """
        at, position, next_offset, base_offset = 0, self.position, self.next_offset, self.base_offset
        offset_max, start_max, size = base_offset + RELATIVE_OFFSET_MAX, len(chunk) - HEADER_BYTES, len(chunk)
        highest_ms, since_bytes, interval_bytes = (
            self.max_timestamp_ms,
            self._since_bytes,
            self._interval_bytes,
        )
        epoch, listener = self._epoch, self._listener
        while at <= start_max:
            first, length, batch_epoch, magic, crc, _, delta, _, time_ms, producer = _unpack(chunk, at)
            end, last = at + LOG_OVERHEAD_BYTES + length, first + delta
            if (
                magic != MAGIC
                or length < _LENGTH_MIN
                or delta < 0
                or not next_offset <= first <= last <= offset_max
            ):
                break
            if whole and (end > size or crc32c(chunk[at + CRC_FROM : end]) != crc):
                break
            if time_ms > highest_ms:
                self.max_timestamp_ms = highest_ms = time_ms
                self.max_timestamp_offset = last
            if since_bytes > interval_bytes:
                self._offsets += _pack_offset(last - base_offset, position + at)
                if highest_ms > self.indexed_ms:
                    self._note_time()
                since_bytes = 0
            since_bytes += end - at
            if (producer >= 0 or batch_epoch != epoch) and listener is not None:
                listener(_kept(chunk, at))
            if position + at == 0:
                self.first_timestamp_ms = time_ms
            epoch, next_offset, at = batch_epoch, last + 1, end
        self.position, self.next_offset = position + at, next_offset
        self._since_bytes, self._epoch = since_bytes, epoch
        return at

    def _note_time(self) -> None:
        self._times += _pack_time(self.max_timestamp_ms, self.max_timestamp_offset - self.base_offset)
        self.indexed_ms = self.max_timestamp_ms

    def ended(self, problem: str | None) -> RecoveredSegment:
        """Returns the result."""
        if self.max_timestamp_ms > self.indexed_ms:
            self._note_time()
        return RecoveredSegment(
            end=WalkEnd(self.position, self.next_offset, problem),
            offsets=OffsetIndex(self.base_offset, self._offsets),
            times=TimeIndex(self.base_offset, self._times),
            max_timestamp_ms=self.max_timestamp_ms,
            max_timestamp_offset=self.max_timestamp_offset,
            first_timestamp_ms=self.first_timestamp_ms,
        )


def _kept(chunk: memoryview, at: int) -> RecordBatch:
    """Returns a batch with its own bytes, so that the chunk can be freed."""
    if len(chunk) == HEADER_BYTES:
        return RecordBatch.peek(memoryview(bytes(chunk)))
    batch = RecordBatch(chunk, at)
    batch.data = memoryview(bytes(batch.data if batch.is_control else batch.data[:HEADER_BYTES]))
    return batch


def _problem(chunk: memoryview, at: int, walk: _Walk, read: Read) -> str | None:
    """Returns what is wrong with the batch at ``at``; ``None`` if the chunk merely ends within it."""
    try:
        batch = RecordBatch(chunk, at)
    except TruncatedBatch:
        return None
    except BrokerError as error:
        return _unless_legacy(error, read, walk.position)
    problem = _damage(batch, walk)
    if problem is None:
        try:
            batch.verify_crc()
        except BrokerError as error:
            return error.message
        raise AssertionError(f"nothing is wrong with {batch!r}")
    return problem


def _damage(batch: RecordBatch, walk: _Walk) -> str | None:
    if batch.base_offset < walk.next_offset:
        return f"offset {batch.base_offset} where {walk.next_offset} or more should follow"
    if batch.last_offset_delta < 0 or batch.last_offset - walk.base_offset > RELATIVE_OFFSET_MAX:
        return f"offsets {batch.base_offset}..{batch.last_offset} can't be in a segment with base {walk.base_offset}"
    return None


def _take_large(walk: _Walk, read: Read, size_bytes: int, chunk_bytes: int) -> str | None:
    """Take in a batch that is larger than a chunk, or return what is wrong with it. A wrong length that fits
    into the file costs reading but no memory.
    """
    position = walk.position
    header = memoryview(read(position, HEADER_BYTES))
    try:
        batch = RecordBatch.peek(header)
    except BrokerError as error:
        return f"cut off: {error.message}"
    if batch.size_bytes > size_bytes - position:
        return f"cut off: {size_bytes - position} of the batch's {batch.size_bytes} bytes are there"
    problem = _damage(batch, walk)
    if problem is not None:
        return problem
    crc, at, end = 0, position + CRC_FROM, position + batch.size_bytes
    while at < end:
        data = read(at, min(chunk_bytes, end - at))
        if not data:
            return f"cut off: the file ends at {at}"
        crc = crc32c(data, crc)
        at += len(data)
    if crc != batch.crc:
        return f"the batch's CRC is {crc:08x}, its header says {batch.crc:08x}"
    walk.take(
        memoryview(read(position, batch.size_bytes)) if batch.is_control else header, whole=batch.is_control
    )
    return None


def _unless_legacy(error: BrokerError, read: Read, position: int) -> str:
    """Returns what is wrong, unless it is valid old data: a torn tail may look like format 0, but has no
    correct CRC.
    """
    if isinstance(error, UnsupportedMagic) and error.magic in _LEGACY_MAGICS:
        header = bytes(read(position, _LEGACY_HEADER_BYTES))
        length = int.from_bytes(header[8:12], "big", signed=True)
        if _LEGACY_MESSAGE_BYTES_MIN <= length <= _LEGACY_MESSAGE_BYTES_MAX:
            message = bytes(read(position + _LEGACY_HEADER_BYTES, length))
            if crc32(message[_LEGACY_CRC_BYTES:]) == int.from_bytes(message[:_LEGACY_CRC_BYTES], "big"):
                raise LegacyFormat(f"a message of format {error.magic} stands at byte {position}") from error
    return error.message or str(error)
