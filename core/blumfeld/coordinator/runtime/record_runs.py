"""Parses all records of a coordinator's batch in one go, without an object for each record.

It is the walk of :mod:`blumfeld.wire.batches.records`, specialised for the records that a coordinator writes:
most numbers take one or two bytes, and there are no headers. If a record is different, the general walk parses
the batch; it also has the errors for a bad batch.
"""

from __future__ import annotations

from typing import NamedTuple

from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import DECOMPRESSED_BYTES_MAX, records
from blumfeld.wire.batches.varint import BadVarintError, read_varint
from blumfeld.wire.compression.payload import decompress

NULL_LENGTH = 1
"""The length byte of a null: -1 in zigzag encoding."""


class RecordRun(NamedTuple):
    """Consecutive records of a log. ``keys[n]`` and ``values[n]`` are one record; a value of ``None`` is a
    tombstone."""

    keys: list[bytes]
    values: list[bytes | None]


class _Unusual(Exception):  # noqa: N818 - not an error: the general walk takes it
    """The quick walk met a record that it can't parse."""


def record_run(batch: RecordBatch) -> RecordRun:
    """Returns the records of a batch that have a key, in order.

    :raises InvalidRecord, DecompressedTooLarge: as :func:`~blumfeld.wire.batches.records.records`
    """
    if batch.record_count <= 0:
        return RecordRun([], [])
    data = decompress(batch.codec, batch.records_data, DECOMPRESSED_BYTES_MAX)
    try:
        run = _walk(data)
    except (_Unusual, IndexError, BadVarintError):
        run = None
    if run is None or len(run.keys) != batch.record_count:
        return _walk_any(batch)
    return run


def _walk_any(batch: RecordBatch) -> RecordRun:
    run = RecordRun([], [])
    for record in records(batch):
        if record.key is not None:
            run.keys.append(record.key)
            run.values.append(record.value)
    return run


def _walk(data: bytes) -> RecordRun:
    keys: list[bytes] = []
    values: list[bytes | None] = []
    at, end = 0, len(data)
    while at < end:
        byte = data[at]
        if byte < 0x80:
            at += 1
        else:
            byte += (data[at + 1] << 7) - 0x80
            if byte < 0x4000:
                at += 2
            else:
                length, at = read_varint(data, at)
                byte = length << 1
        if byte & 1 or byte < 0:
            raise _Unusual
        stop = at + (byte >> 1)
        at += 1  # the record's attributes
        while data[at] > 0x7F:  # the timestamp
            at += 1
        at += 1
        while data[at] > 0x7F:  # the offset
            at += 1
        at += 1
        byte = data[at]
        if byte < 0x80:
            at += 1
            if byte & 1:
                raise _Unusual
            value_at = at + (byte >> 1)
        else:
            length, at = read_varint(data, at)
            if length < 0:
                raise _Unusual
            value_at = at + length
        keys.append(data[at:value_at])
        byte = data[value_at]
        if byte == NULL_LENGTH:
            values.append(None)
            at = value_at + 1
        else:
            if byte < 0x80:
                if byte & 1:
                    raise _Unusual
                value_at += 1
                at = value_at + (byte >> 1)
            else:
                length, value_at = read_varint(data, value_at)
                if length < 0:
                    raise _Unusual
                at = value_at + length
            values.append(data[value_at:at])
        if at + 1 != stop or data[at]:  # the record has headers, or its length is wrong
            raise _Unusual
        at = stop
    if at != end:
        raise _Unusual
    return RecordRun(keys, values)
