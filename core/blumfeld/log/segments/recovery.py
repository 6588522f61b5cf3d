"""The walk over a segment's bytes after a crash: which batches are whole, and where the log must be cut.

Pure: bytes come from a ``read(position, size)`` that the driver brings. The generator works in slices, so that a
driver may run one slice after the other off the loop, or count them; a slice costs about one chunk of reading.

A start after a crash is as fast as this walk. So a batch that is in order makes no object: its header's fields go
straight into the index entries. Whatever isn't is looked at a second time, to say what is wrong.
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
"""Read at once. A larger batch is checked in chunks."""
_UNKNOWN_EPOCH = NO_LEADER_EPOCH - 1
"""Of no batch, so that the first of a segment is always told of."""
_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES
_LEGACY_MAGICS = (0, 1)
_LEGACY_HEADER_BYTES = 12
_LEGACY_CRC_BYTES = 4
_LEGACY_MESSAGE_BYTES_MIN = 14
_LEGACY_MESSAGE_BYTES_MAX = 100 << 20
_unpack = struct.Struct(">qiibIhiqqq").unpack_from
"""A header up to its producer id."""
_pack_offset = struct.Struct(">ii").pack
_pack_time = struct.Struct(">qi").pack

Read = Callable[[int, int], "bytes | bytearray | memoryview"]
"""``read(position, size)``: the bytes there; fewer only where the file ends."""
Told = Callable[[RecordBatch], object]
"""Told of the batches that say something of producers or leader epochs, in order: the first of a segment, those with a
producer id, and those of another epoch than the batch before. ``data`` is the whole of a control batch, of others the
header only; both may be kept."""


class LegacyFormat(ValueError):  # noqa: N818 - the noun says what it is
    """A whole message of format 0 or 1 stands in the log: data of an old Kafka, which must not be cut away."""


class WalkEnd(msgspec.Struct, frozen=True):
    """Where a walk ended."""

    position: int
    """Everything before it is whole: the size to cut the file to."""
    next_offset: int
    """One past the last whole batch; the base offset if there is none."""
    problem: str | None
    """What is wrong at ``position``; ``None`` at the end of a sound segment."""


class RecoveredSegment(msgspec.Struct, frozen=True, kw_only=True):
    """What a walk over a segment made of it. The driver cuts the log, and saves the indexes."""

    end: WalkEnd
    offsets: OffsetIndex
    times: TimeIndex
    max_timestamp_ms: int
    max_timestamp_offset: int
    """Last offset of the first batch with the highest timestamp, or -1."""
    first_timestamp_ms: int
    """Highest timestamp of the first batch, or -1: what the roll by time counts from."""


def recover_segment(
    read: Read,
    size_bytes: int,
    base_offset: int,
    *,
    interval_bytes: int,
    told: Told | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Generator[int, None, RecoveredSegment]:
    """Walk a segment and rebuild its indexes; gives the bytes walked after each slice.

    Ends at the first batch that is cut off, damaged or out of order. Checked are length, format, CRC-32C, and that
    offsets rise and stay within the segment's range.

    :raises LegacyFormat: a message of format 0 or 1 with a right CRC
    """
    walk = _Walk(base_offset, interval_bytes, told)
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
    """What is known so far. The rules of index entries are those of ``segment_index.SegmentIndexer``."""

    __slots__ = (
        "_epoch",
        "_interval_bytes",
        "_offsets",
        "_since_bytes",
        "_times",
        "_told",
        "base_offset",
        "first_timestamp_ms",
        "indexed_ms",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "next_offset",
        "position",
    )

    def __init__(self, base_offset: int, interval_bytes: int, told: Told | None) -> None:
        self.base_offset = self.next_offset = base_offset
        self.position = 0
        self.max_timestamp_ms = self.indexed_ms = self.first_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = -1
        self._offsets, self._times = bytearray(), bytearray()
        self._interval_bytes = interval_bytes
        self._since_bytes = 0
        self._epoch = _UNKNOWN_EPOCH
        self._told = told

    def take(self, chunk: memoryview, *, whole: bool = True) -> int:
        """Take in the sound batches at the start of ``chunk``, which stands at :attr:`position`; their bytes.

        :param whole: False: it is a header, and the batch behind it was found to be sound
        """
        at, position, next_offset, base_offset = 0, self.position, self.next_offset, self.base_offset
        offset_max, start_max, size = base_offset + RELATIVE_OFFSET_MAX, len(chunk) - HEADER_BYTES, len(chunk)
        highest_ms, since_bytes, interval_bytes = (
            self.max_timestamp_ms,
            self._since_bytes,
            self._interval_bytes,
        )
        epoch, told = self._epoch, self._told
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
            if (producer >= 0 or batch_epoch != epoch) and told is not None:
                told(_kept(chunk, at))
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
        """What came of it."""
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
    """A batch with bytes of its own, so that the chunk can go."""
    if len(chunk) == HEADER_BYTES:
        return RecordBatch.peek(memoryview(bytes(chunk)))
    batch = RecordBatch(chunk, at)
    batch.data = memoryview(bytes(batch.data if batch.is_control else batch.data[:HEADER_BYTES]))
    return batch


def _problem(chunk: memoryview, at: int, walk: _Walk, read: Read) -> str | None:
    """What is wrong with the batch at ``at``, or ``None`` if only the chunk ends within it."""
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
    """Take in the batch that no chunk holds, or say what is wrong with it. A wrong length that fits into the file costs
    reading, and no memory.
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
    """What is wrong, unless old data is right: a torn tail may look like format 0, but has no CRC."""
    if isinstance(error, UnsupportedMagic) and error.magic in _LEGACY_MAGICS:
        header = bytes(read(position, _LEGACY_HEADER_BYTES))
        length = int.from_bytes(header[8:12], "big", signed=True)
        if _LEGACY_MESSAGE_BYTES_MIN <= length <= _LEGACY_MESSAGE_BYTES_MAX:
            message = bytes(read(position + _LEGACY_HEADER_BYTES, length))
            if crc32(message[_LEGACY_CRC_BYTES:]) == int.from_bytes(message[:_LEGACY_CRC_BYTES], "big"):
                raise LegacyFormat(f"a message of format {error.magic} stands at byte {position}") from error
    return error.message or str(error)
