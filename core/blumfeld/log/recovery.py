"""The walk over a segment's bytes after a crash: which batches are whole, and where the log must be cut.

Pure: bytes come from a ``read(position, size)`` that the driver brings. Both generators work in slices, so that a
driver may run one slice after the other off the loop, or count them; a slice costs about one chunk of reading.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from zlib import crc32

import msgspec
from crc32c import crc32c

from blumfeld.log.segment_index import RELATIVE_OFFSET_MAX, OffsetIndex, SegmentIndexer, TimeIndex
from blumfeld.wire.errors import BrokerError
from blumfeld.wire.record_batch import (
    CRC_FROM,
    HEADER_BYTES,
    RecordBatch,
    TruncatedBatch,
    UnsupportedMagic,
)

CHUNK_BYTES = 1 << 20
"""Read at once. A larger batch is checked in chunks first, and read whole only if its CRC is right."""
_LEGACY_MAGICS = (0, 1)
_LEGACY_HEADER_BYTES = 12
_LEGACY_CRC_BYTES = 4
_LEGACY_MESSAGE_BYTES_MIN = 14
_LEGACY_MESSAGE_BYTES_MAX = 100 << 20

Read = Callable[[int, int], "bytes | bytearray | memoryview"]
"""``read(position, size)``: the bytes there; fewer only where the file ends."""


class LegacyFormat(ValueError):  # noqa: N818 - the noun says what it is
    """A whole message of format 0 or 1 stands in the log: data of an old Kafka, which must not be cut away."""


class WalkedBatch(msgspec.Struct, frozen=True):
    """A batch that is whole, and where it starts. Its bytes are valid until the next slice."""

    position: int
    batch: RecordBatch


class WalkEnd(msgspec.Struct, frozen=True):
    """Where a walk ended."""

    position: int
    """Everything before it is whole: the size to cut the file to."""
    next_offset: int
    """One past the last whole batch; the base offset if there is none."""
    problem: str | None
    """What is wrong at ``position``; ``None`` at the end of a sound segment."""


def walk(
    read: Read, size_bytes: int, base_offset: int, *, chunk_bytes: int = CHUNK_BYTES
) -> Generator[list[WalkedBatch], None, WalkEnd]:
    """The batches of a segment in slices; ends at the first that is cut off, damaged or out of order.

    Checked are length, format, CRC-32C, and that offsets rise and stay within the segment's range.

    :raises LegacyFormat: a message of format 0 or 1 with a right CRC
    """
    position, next_offset = 0, base_offset
    while position < size_bytes:
        chunk = memoryview(read(position, min(chunk_bytes, size_bytes - position)))
        slice_: list[WalkedBatch] = []
        at, problem = 0, None
        while at < len(chunk):
            try:
                batch = RecordBatch(chunk, at)
            except TruncatedBatch:
                break
            except BrokerError as error:
                problem = _unless_legacy(error, read, position + at)
                break
            problem = _damage(batch, base_offset, next_offset) or _checksum(batch)
            if problem is not None:
                break
            slice_.append(WalkedBatch(position + at, batch))
            at += batch.size_bytes
            next_offset = batch.next_offset
        position += at
        if at == 0 and problem is None:
            large = _read_large(read, position, size_bytes, chunk_bytes, base_offset, next_offset)
            if isinstance(large, str):
                problem = large
            else:
                slice_.append(WalkedBatch(position, large))
                position += large.size_bytes
                next_offset = large.next_offset
        yield slice_
        if problem is not None:
            return WalkEnd(position, next_offset, problem)
    return WalkEnd(position, next_offset, None)


def _damage(batch: RecordBatch, base_offset: int, next_offset: int) -> str | None:
    if batch.base_offset < next_offset:
        return f"offset {batch.base_offset} where {next_offset} or more should follow"
    if batch.last_offset_delta < 0 or batch.last_offset - base_offset > RELATIVE_OFFSET_MAX:
        return (
            f"offsets {batch.base_offset}..{batch.last_offset} can't be in a segment with base {base_offset}"
        )
    return None


def _checksum(batch: RecordBatch) -> str | None:
    try:
        batch.verify_crc()
    except BrokerError as error:
        return error.message
    return None


def _read_large(
    read: Read, position: int, size_bytes: int, chunk_bytes: int, base_offset: int, next_offset: int
) -> RecordBatch | str:
    """The batch at ``position``, which no chunk holds; or what is wrong with it. A wrong length that fits into
    the file costs reading, and no memory.
    """
    header = memoryview(read(position, HEADER_BYTES))
    try:
        batch = RecordBatch.peek(header)
    except BrokerError as error:
        return f"cut off: {error.message}"
    if batch.size_bytes > size_bytes - position:
        return f"cut off: {size_bytes - position} of the batch's {batch.size_bytes} bytes are there"
    problem = _damage(batch, base_offset, next_offset)
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
    return RecordBatch(memoryview(read(position, batch.size_bytes)))


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
    consumers: tuple[Callable[[RecordBatch], object], ...] = (),
    chunk_bytes: int = CHUNK_BYTES,
) -> Generator[int, None, RecoveredSegment]:
    """Walk a segment and rebuild its indexes; gives the bytes walked after each slice.

    :param consumers: each is called with every whole batch, in order: producer state, leader epochs
    :raises LegacyFormat: as :func:`walk`
    """
    indexer = SegmentIndexer(OffsetIndex(base_offset), TimeIndex(base_offset), interval_bytes)
    first_timestamp_ms = -1
    steps = walk(read, size_bytes, base_offset, chunk_bytes=chunk_bytes)
    while True:
        try:
            slice_ = next(steps)
        except StopIteration as stop:
            end: WalkEnd = stop.value
            break
        for walked in slice_:
            batch = walked.batch
            if walked.position == 0:
                first_timestamp_ms = batch.max_timestamp
            indexer.add(batch.last_offset, walked.position, batch.size_bytes, batch.max_timestamp)
            for consumer in consumers:
                consumer(batch)
        if slice_:
            yield slice_[-1].position + slice_[-1].batch.size_bytes
    indexer.seal()
    return RecoveredSegment(
        end=end,
        offsets=indexer.offsets,
        times=indexer.times,
        max_timestamp_ms=indexer.max_timestamp_ms,
        max_timestamp_offset=indexer.max_timestamp_offset,
        first_timestamp_ms=first_timestamp_ms,
    )
