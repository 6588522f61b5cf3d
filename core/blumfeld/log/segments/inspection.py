"""Inspection of a segment that may be damaged: every whole batch, and the exact damaged bytes. Pure.

Recovery (``recovery``) stops at the first bad byte, because the log promises nothing after it. After an
incident one wants to see what is left instead. So after damage this walk searches for the next batch with a
correct length, format, offsets and CRC-32C, and continues there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
from crc32c import crc32c

from blumfeld.log.segments.index import RELATIVE_OFFSET_MAX
from blumfeld.wire.batches.record_batch import CRC_FROM, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, RecordBatch
from blumfeld.wire.errors import BrokerError

MAGIC_AT = 16
"""Position of the format byte in a batch."""
_MAGIC = re.compile(re.escape(bytes([MAGIC])))
_ZEROS = bytes(4096)


class WholeBatch(msgspec.Struct, frozen=True):
    """A sound batch and its position."""

    position: int
    batch: RecordBatch


class Damage(msgspec.Struct, frozen=True):
    """Bytes that are not a sound batch."""

    position: int
    size_bytes: int
    problem: str
    from_offset: int
    """Lowest offset that may have been there."""
    to_offset: int | None
    """Highest offset that may have been there, + 1: the base of the next sound batch. ``None`` if nothing
    sound follows.
    """

    @property
    def is_tail(self) -> bool:
        """Whether nothing sound follows. A write that a crash cut off looks like this, and recovery cuts it off."""
        return self.to_offset is None


def inspect_segment(
    data: memoryview, base_offset: int, *, check_crc: bool = True
) -> Iterator[WholeBatch | Damage]:
    """Yield all bytes of a segment in order, each byte in exactly one item.

    :param data: the log file; batches are views of it
    :param check_crc: False accepts a batch by length and format: ten times as fast, for an overview
    """
    position, next_offset = 0, base_offset
    while position < len(data):
        problem = _problem(data, position, base_offset, next_offset, check_crc)
        if problem is None:
            batch = RecordBatch(data, position)
            yield WholeBatch(position, batch)
            position += batch.size_bytes
            next_offset = batch.next_offset
            continue
        sound_at = _next_sound(data, position, base_offset, next_offset)
        to_offset = None if sound_at is None else RecordBatch(data, sound_at).base_offset
        end = len(data) if sound_at is None else sound_at
        yield Damage(position, end - position, problem, next_offset, to_offset)
        position = end


def _problem(
    data: memoryview, position: int, base_offset: int, next_offset: int, check_crc: bool = True
) -> str | None:
    """Returns what is wrong with the batch that should start here, or ``None``."""
    try:
        batch = RecordBatch(data, position)
    except BrokerError as error:
        left = len(data) - position
        if not any(data[position : position + min(left, HEADER_BYTES)]):
            return f"{_zeros(data, position)} zero bytes"
        return str(error)
    if batch.last_offset_delta < 0 or batch.last_offset - base_offset > RELATIVE_OFFSET_MAX:
        return f"offsets {batch.base_offset} to {batch.last_offset} can't stand in segment {base_offset}"
    if batch.base_offset < next_offset:
        return f"offset {batch.base_offset} follows {next_offset - 1}"
    if check_crc:
        try:
            batch.verify_crc()
        except BrokerError as error:
            return str(error)
        # The CRC does not cover the base offset. After a hole, only the next batch can show whose base offset
        # is wrong.
        if batch.base_offset > next_offset and position + batch.size_bytes < len(data):
            behind = _next_sound(data, position, base_offset, next_offset)
            following = None if behind is None else RecordBatch(data, behind).base_offset
            if following is not None and following < batch.next_offset:
                return f"offset {batch.base_offset} where {following} follows"
    return None


def _zeros(data: memoryview, position: int) -> int:
    at = position
    while at < len(data):
        piece = bytes(data[at : at + len(_ZEROS)])
        if piece != _ZEROS[: len(piece)]:
            return at + len(piece) - len(piece.lstrip(b"\0")) - position
        at += len(piece)
    return at - position


def _next_sound(data: memoryview, position: int, base_offset: int, next_offset: int) -> int | None:
    """Returns the position of the next sound batch after ``position``. The end that the bad batch claims is
    tried first.
    """
    if len(data) - position >= HEADER_BYTES:
        length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        behind = position + LOG_OVERHEAD_BYTES + length
        if position < behind < len(data) and _is_sound(data, behind, base_offset, next_offset):
            return behind
    for match in _MAGIC.finditer(data, position + 1 + MAGIC_AT):
        start = match.start() - MAGIC_AT
        if _is_sound(data, start, base_offset, next_offset):
            return start
    return None


def _is_sound(data: memoryview, position: int, base_offset: int, next_offset: int) -> bool:
    """Whether a sound batch starts here. Cheap tests come first: this is asked at every byte with value 2."""
    if len(data) - position < HEADER_BYTES:
        return False
    first = int.from_bytes(data[position : position + 8], "big", signed=True)
    size = int.from_bytes(data[position + 8 : position + 12], "big", signed=True) + LOG_OVERHEAD_BYTES
    delta = int.from_bytes(data[position + 23 : position + 27], "big", signed=True)
    if not next_offset <= first <= base_offset + RELATIVE_OFFSET_MAX or delta < 0:
        return False
    if size < HEADER_BYTES or position + size > len(data):
        return False
    crc = int.from_bytes(data[position + 17 : position + 21], "big")
    return bool(crc32c(data[position + CRC_FROM : position + size]) == crc)
