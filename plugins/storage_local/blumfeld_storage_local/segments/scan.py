"""Walk over the batches of a segment that is known to be sound."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from blumfeld.spi.runtime import File
from blumfeld.wire.batches.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, RecordBatch
from blumfeld.wire.errors import BrokerError

SCAN_BYTES = 16 * 1024
"""Bytes per read while looking for a batch: four times the distance of two index entries (index.interval.bytes)."""
REPLAY_BYTES = 1 << 20
"""Bytes per read while every batch is wanted."""

REPAIR = "stop the node, then run `blumfeld log DIR --repair`"
"""Advice about damage, for messages."""

_HEADER = struct.Struct(">qiibIhiqq")


class BatchAt(NamedTuple):
    """The position of a batch, and what its header says."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int


def damaged(file: File, position: int, problem: object) -> OSError:
    """Return the error for written bytes that are no batch: the disk changed them, or another process did."""
    return OSError(errno.EIO, f"no batch at byte {position}: {problem}; {REPAIR}", file.path)


def scan(file: File, position: int, end: int) -> Iterator[BatchAt]:
    """Yield the headers of the batches from ``position``, where one starts, to ``end``, where one ends.

    :raises OSError: EIO: the bytes are no batches
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
    """Yield the same batches with their bytes.

    :param open_file: called for each read: between two reads the budget of open files may have closed the file
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
