"""Check the batch headers of bytes that this process did not write, before a reader gets them.

What an older process left, or somebody appended after a clean stop, must not reach a client: librdkafka aborts on bytes
that are no batch. Only size, format and offsets in the headers are checked; recovery and the client check the CRC.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from blumfeld.spi.runtime import File
from blumfeld.wire.batches.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC

CHECK_BYTES = 1 << 20
"""Bytes that a worker checks in one job, so that a reader who goes on finds the next bytes checked.

With batches of 150 bytes that takes about 3 ms, for which the worker may hold the interpreter: more would delay the
loop for longer."""
RANGES_MAX = 8
"""Checked ranges that a segment remembers. A range that was forgotten is checked again."""
NOWHERE = 1 << 62
MAGIC_AT = 16
"""Position in a batch of the byte that names its format."""
_CHUNK_BYTES = 256 << 10
_unpack = struct.Struct(">qi4xb4x2xi").unpack_from
"""Unpack base offset, length, format and last offset delta."""


class Checked(NamedTuple):
    """The result of a walk over headers."""

    end: int
    """Position up to which the walk found whole batches."""
    problem: str | None
    """The problem at :attr:`end`; ``None`` if nothing is."""


def check_headers(file: File, position: int, enough: int, size: int, next_offset: int) -> Checked:
    """Walk over headers from ``position``, where a batch starts, at least to ``enough``. Blocks: call it in a worker.

    :param size: bytes of the segment: its last batch must end there
    :param next_offset: one past the last offset that the segment may hold
    :raises OSError: the disk can't read it
    """
    chunk, chunk_at, offset_min = b"", position, -1
    while position < enough:
        at = position - chunk_at
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_at, at = file.pread(min(_CHUNK_BYTES, size - position), position), position, 0
            if len(chunk) < HEADER_BYTES:
                return Checked(position, "the file ends there")
        base_offset, length, magic, delta = _unpack(chunk, at)
        end, last_offset = position + LOG_OVERHEAD_BYTES + length, base_offset + delta
        if magic != MAGIC or length < HEADER_BYTES - LOG_OVERHEAD_BYTES or delta < 0:
            return Checked(position, f"length {length}, format {magic}")
        if base_offset < offset_min or last_offset >= next_offset:
            return Checked(
                position, f"offsets {base_offset}..{last_offset} are not in {offset_min}..{next_offset - 1}"
            )
        if end > size:
            return Checked(position, f"{size - position} of the batch's {end - position} bytes are there")
        position, offset_min = end, last_offset + 1
    return Checked(position, None)


class CheckedBytes:
    """The bytes of one segment that are known to be whole batches."""

    __slots__ = ("_ranges", "damaged_at", "from_here_on")

    def __init__(self) -> None:
        self.from_here_on = NOWHERE
        """Position from which on this process has written or walked over all bytes, up to the end of the file."""
        self.damaged_at = -1
        """Position at which the last check found no batch where one should start; -1 without such a damage."""
        self._ranges: list[tuple[int, int]] = []

    def end(self, position: int) -> int:
        """Return the end of the checked range that holds ``position``; ``position`` itself if none does."""
        if position >= self.from_here_on:
            return NOWHERE
        for start, end in self._ranges:
            if start <= position < end:
                return NOWHERE if end >= self.from_here_on else end
        return position

    def sound_bytes(self, position: int, size: int) -> int:
        """Return how many of these bytes a reader may have: all, those before a known damage, or none yet.

        :param position: the start of a batch
        """
        end = self.end(position)
        if end >= position + size:
            return size
        return end - position if end == self.damaged_at else 0

    def add(self, start: int, end: int) -> None:
        """Remember that these bytes are whole batches."""
        kept = []
        for span in self._ranges:
            if span[0] <= end and start <= span[1]:
                start, end = min(start, span[0]), max(end, span[1])
            else:
                kept.append(span)
        if end >= self.from_here_on:
            self.from_here_on = min(start, self.from_here_on)
            self._ranges = kept
        elif end > start:
            self._ranges = [*kept, (start, end)][-RANGES_MAX:]

    def cut(self, size: int) -> None:
        """The file was cut at ``size``. Whatever comes behind is written by this process."""
        self._ranges = [(start, min(end, size)) for start, end in self._ranges if start < size]
        self.from_here_on = min(self.from_here_on, size)
        self.damaged_at = -1
