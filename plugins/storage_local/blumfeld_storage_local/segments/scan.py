"""Walk over the batch headers of a segment that is known to be sound, a few kilobytes at a time."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from blumfeld.spi.runtime import File
from blumfeld.wire.errors import BrokerError
from blumfeld.wire.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, RecordBatch

SCAN_BYTES = 16 * 1024
"""Read at once while looking for a batch: four times the distance of two index entries (index.interval.bytes)."""
REPLAY_BYTES = 1 << 20
"""Read at once while every batch is wanted."""

REPAIR = "stop the node, then run `blumfeld log DIR --repair`"
"""The way out of damage, for messages."""

_HEADER = struct.Struct(">qiibIhiqq")


class BatchAt(NamedTuple):
    """What a look-up needs to know of a batch."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int


def damaged(file: File, position: int, problem: object) -> OSError:
    """Written bytes don't read as a batch: the disk changed them, or another process did."""
    return OSError(errno.EIO, f"no batch at byte {position}: {problem}; {REPAIR}", file.path)


def scan(file: File, position: int, end: int) -> Iterator[BatchAt]:
    """The batches from ``position``, where one starts, to ``end``, where one ends.

    :raises OSError: EIO: the bytes there are no batches
    """
    chunk, chunk_at = b"", position
    while position < end:
        at = position - chunk_at
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_at, at = file.pread(min(SCAN_BYTES, end - position), position), position, 0
            if len(chunk) < HEADER_BYTES:
                raise damaged(file, position, "the file ends there")
        base_offset, length, _, magic, _, _, delta, _, max_timestamp = _HEADER.unpack_from(chunk, at)
        size = length + LOG_OVERHEAD_BYTES
        if magic != MAGIC or size < HEADER_BYTES or position + size > end or delta < 0:
            raise damaged(file, position, f"length {length}, format {magic}")
        yield BatchAt(position, size, base_offset, base_offset + delta, max_timestamp)
        position += size


def read_batches(open_file: Callable[[], File], position: int, end: int) -> Iterator[RecordBatch]:
    """The same with their bytes, which are valid as long as someone holds them.

    :param open_file: asked for each read: between two of them the file may have been closed to make room
    :raises OSError: as :func:`scan`
    """
    size = REPLAY_BYTES
    while position < end:
        wanted, file = min(size, end - position), open_file()
        chunk = memoryview(file.pread(wanted, position))
        if len(chunk) != wanted:
            raise damaged(file, position + len(chunk), "the file ends there")
        at, size = 0, REPLAY_BYTES
        while at + HEADER_BYTES <= len(chunk):
            try:
                batch_bytes = RecordBatch.peek(chunk[at : at + HEADER_BYTES]).size_bytes
                if at + batch_bytes > len(chunk):
                    size = max(size, batch_bytes)
                    break
                batch = RecordBatch(chunk, at)
            except BrokerError as error:
                raise damaged(file, position + at, error) from error
            yield batch
            at += batch_bytes
        position += at
        if at == 0 and (size == REPLAY_BYTES or position + size > end):
            raise damaged(file, position, "cut off")
