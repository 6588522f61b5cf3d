"""Builds record batches: for internal topics, the metadata log, tests, and topics that change the codec."""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from blumfeld.wire.batches.record_batch import (
    CONTROL_BIT,
    CRC_FROM,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    RecordBatch,
)
from blumfeld.wire.batches.records import Record
from blumfeld.wire.batches.varint import append_varint
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.compression.payload import compress


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = NO_LEADER_EPOCH,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    keep_offsets: bool = False,
    last_offset_delta: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """Returns one batch with its CRC, writable, so that
    :func:`~blumfeld.wire.batches.record_batch.assign_offset` can patch it.

    Records get the offsets ``base_offset``, ``base_offset + 1``…; with ``keep_offsets`` they keep their
    own, gaps included. Their ``sequence`` is ignored.

    :param level: compression level (see :func:`~blumfeld.wire.compression.payload.compress`)
    :param log_append_time_ms: the broker's time, for a topic with LogAppendTime; ``None``: the records' own
        times
    :param last_offset_delta: the former value, for a batch whose last records compaction removed
    :param delete_horizon_ms: when tombstones may go; takes the place of the base timestamp
    :raises ValueError: with ``keep_offsets``, an offset is below ``base_offset``
    """
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    body, delta, max_timestamp = _encoded(records, base_timestamp, base_offset if keep_offsets else None)
    if log_append_time_ms is not None:
        max_timestamp = log_append_time_ms
    attributes = (
        codec
        | (LOG_APPEND_TIME_BIT if log_append_time_ms is not None else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0)
    )
    payload = body if codec is Codec.NONE or not records else compress(codec, body, level)
    size = HEADER_BYTES + len(payload)
    out = bytearray(size)
    HEADER.pack_into(
        out,
        0,
        base_offset,
        size - LOG_OVERHEAD_BYTES,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        max(delta, 0) if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    out[HEADER_BYTES:] = payload
    return _sealed(out)


def repack(
    of: RecordBatch, body: memoryview, codec: Codec, level: int | None, max_timestamp: int
) -> bytearray:
    """Returns a produced batch in another codec. Its offsets must be in order already.

    :param body: the uncompressed records section
    :param max_timestamp: highest timestamp of all records
    """
    payload: bytes | memoryview = body if codec is Codec.NONE else compress(codec, body, level)
    size = HEADER_BYTES + len(payload)
    out = bytearray(size)
    HEADER.pack_into(
        out,
        0,
        0,
        size - LOG_OVERHEAD_BYTES,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        codec | of.attributes & TRANSACTIONAL_BIT,
        of.last_offset_delta,
        of.base_timestamp,
        max_timestamp,
        of.producer_id,
        of.producer_epoch,
        of.base_sequence,
        of.record_count,
    )
    out[HEADER_BYTES:] = payload
    return _sealed(out)


def build_empty_batch(of: RecordBatch) -> bytearray:
    """Returns a batch's header without records, for compaction to keep the batch's last offset and sequence.

    Offsets, producer, sequence, epoch, the highest timestamp and the transactional and control bits stay.
    Base timestamp, codec and records go. The timestamp stays because producers expire by it (Kafka's
    ``writeEmptyHeader``).
    """
    out = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        out,
        0,
        of.base_offset,
        HEADER_BYTES - LOG_OVERHEAD_BYTES,
        of.partition_leader_epoch,
        MAGIC,
        0,
        of.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT | LOG_APPEND_TIME_BIT),
        of.last_offset_delta,
        NO_TIMESTAMP,
        of.max_timestamp,
        of.producer_id,
        of.producer_epoch,
        of.base_sequence,
        0,
    )
    return _sealed(out)


def _sealed(out: bytearray) -> bytearray:
    out[17:21] = crc32c(memoryview(out)[CRC_FROM:]).to_bytes(4, "big")
    return out


def _encoded(
    records: Sequence[Record], base_timestamp: int, kept_base_offset: int | None
) -> tuple[bytearray, int, int]:
    """Returns the records section, the offset delta of its last record, and the highest timestamp."""
    body = bytearray()
    delta = -1
    max_timestamp = NO_TIMESTAMP
    for index, record in enumerate(records):
        delta = index if kept_base_offset is None else record.offset - kept_base_offset
        if delta < 0:
            raise ValueError(f"offset {record.offset} lies before the batch's {kept_base_offset}")
        _append_record(body, record, record.timestamp - base_timestamp, delta)
        if record.timestamp > max_timestamp:
            max_timestamp = record.timestamp
    return body, delta, max_timestamp


def _append_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    body = bytearray(1)  # the record's attributes, always 0
    append_varint(body, timestamp_delta)
    append_varint(body, offset_delta)
    _append_nullable(body, record.key)
    _append_nullable(body, record.value)
    append_varint(body, len(record.headers))
    for name, value in record.headers:
        _append_nullable(body, name.encode("utf-8", "surrogateescape"))
        _append_nullable(body, value)
    append_varint(out, len(body))
    out += body


def _append_nullable(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
        return
    size = len(data)
    if size < 64:  # as append_varint(), without its call
        out.append(size << 1)
    else:
        append_varint(out, size)
    out += data
