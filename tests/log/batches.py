"""Record batches for the tests of this folder: a right header and CRC around records that nobody reads."""

from __future__ import annotations

import struct

from crc32c import crc32c

from blumfeld.wire.batches.record_batch import HEADER, RecordBatch

MARKER_RECORD = struct.Struct(">bbbbbhhbhib")


def batch_bytes(
    base_offset: int = 0,
    records: int = 1,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    timestamp_ms: int = 1000,
    attributes: int = 0,
    leader_epoch: int = 0,
    payload: bytes = b"records",
) -> bytes:
    fields = (attributes, records - 1, timestamp_ms, timestamp_ms, producer_id, epoch, sequence, records)
    data = bytearray(HEADER.pack(base_offset, 49 + len(payload), leader_epoch, 2, 0, *fields) + payload)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


def data_batch(
    base_offset: int,
    producer_id: int,
    epoch: int,
    sequence: int,
    records: int = 1,
    *,
    transactional: bool = False,
    timestamp_ms: int = 1000,
) -> RecordBatch:
    data = batch_bytes(
        base_offset,
        records,
        producer_id=producer_id,
        epoch=epoch,
        sequence=sequence,
        timestamp_ms=timestamp_ms,
        attributes=0x10 if transactional else 0,
    )
    return RecordBatch(memoryview(bytearray(data)))


def marker(
    base_offset: int,
    producer_id: int,
    epoch: int,
    *,
    committed: bool,
    coordinator_epoch: int = 0,
    timestamp_ms: int = 1000,
) -> RecordBatch:
    """The control batch that ends a transaction."""
    record = MARKER_RECORD.pack(0x20, 0, 0, 0, 8, 0, int(committed), 12, 0, coordinator_epoch, 0)
    data = batch_bytes(
        base_offset,
        producer_id=producer_id,
        epoch=epoch,
        timestamp_ms=timestamp_ms,
        attributes=0x30,
        payload=record,
    )
    return RecordBatch(memoryview(bytearray(data)))
