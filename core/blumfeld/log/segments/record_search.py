"""Search one batch for a record: the last step of every look-up by time."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.spi.storage import TimestampOffset
from blumfeld.wire.batches.record_batch import HEADER_BYTES, RecordBatch
from blumfeld.wire.batches.records import DECOMPRESSED_BYTES_MAX, times
from blumfeld.wire.compression.bulk_decompression import unpacked

RECORDS_BETWEEN_CHECKS = 1 << 16
"""Records of a batch between two calls of ``check``: a stop waits for no search. A batch of some kB may have 14
million."""


def record_at_time(
    batch: RecordBatch, timestamp_ms: int, from_offset: int, check: Callable[[], None] = lambda: None
) -> TimestampOffset | None:
    """Return the first record from ``from_offset`` on with a timestamp ≥ ``timestamp_ms``. For workers: it
    may take seconds.

    :param check: called now and then; ends the search by raising
    :raises InvalidRecord: a client wrote a batch whose records break the format
    """
    plain = None  # nothing is unpacked of a batch without records
    if batch.size_bytes > HEADER_BYTES:
        # In this way 100 MB are unpacked without the interpreter, so that the loop goes on meanwhile.
        plain = unpacked(batch.codec, batch.records_data, DECOMPRESSED_BYTES_MAX)
    for number, (time_ms, offset) in enumerate(times(batch, plain)):
        if not number % RECORDS_BETWEEN_CHECKS:
            check()
        if time_ms >= timestamp_ms and offset >= from_offset:
            return TimestampOffset(time_ms, offset, batch.partition_leader_epoch)
    return None
