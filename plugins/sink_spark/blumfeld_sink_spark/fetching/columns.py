"""Records of the wire as columns of raw rows. Lengths are walked one after the other; all else is read for all records
at once.

A damaged batch raises and never makes a row: every length is bounded by the bytes of its record, and each record must
be filled exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from blumfeld.wire.batches.varint import BadVarintError, read_varint
from blumfeld.wire.errors import InvalidRecord
from blumfeld_sink_spark import stamps
from blumfeld_sink_spark.fetching.varints import Bytes, Numbers, read_varints, read_varlongs
from blumfeld_sink_spark.rows import HEADERS, RAW_ROWS, RAW_ROWS_WITH_HEADERS

RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, two lengths and the number of headers: a byte each."""

CREATE_TIME, LOG_APPEND_TIME = 0, 1
"""``timestampType``."""


class Section(NamedTuple):
    """The places of one batch's records in plain data, and the fields of its header."""

    start: int
    end: int
    records: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    append_time: int
    """The time of every record, where ``timestamp_type`` is ``LOG_APPEND_TIME``."""
    timestamp_type: int


class _Fields(NamedTuple):
    offset: Numbers
    timestamp: Numbers
    timestamp_type: Numbers
    key_at: Numbers
    key_length: Numbers
    value_at: Numbers
    value_length: Numbers
    headers_at: Numbers
    header_count: Numbers
    end: Numbers


def to_rows(
    data: memoryview, sections: Sequence[Section], topic: str, partition: int, *, with_headers: bool
) -> pa.RecordBatch:
    """Returns the raw rows of these sections, in their order. They share no memory with ``data``.

    Times are of whole milliseconds, -1 where a record has none. A header's name that isn't UTF-8 gets replacement
    characters.

    :param sections: none without records
    :param data: less than 2 GiB
    :raises InvalidRecord: a record breaks the format, or number, size or offsets differ from the header
    """
    try:
        fields = _fields(np.frombuffer(data, np.uint8), sections, _walk(data, sections))
        headers = [_headers(data, fields)] if with_headers else []
    except (IndexError, BadVarintError) as error:
        raise InvalidRecord(f"the records end early, or hold a bad number: {error}") from None
    count = len(fields.offset)
    columns = [
        _gather(data, fields.key_at, fields.key_length),
        _gather(data, fields.value_at, fields.value_length),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array(fields.offset),
        pa.array(stamps.record_us(fields.timestamp)).view(RAW_ROWS.field("timestamp").type),
        pa.array(fields.timestamp_type.astype(np.int32)),
        *headers,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RAW_ROWS_WITH_HEADERS if with_headers else RAW_ROWS)


def _walk(data: Any, sections: Sequence[Section]) -> list[int]:
    """Returns the beginning of each record, found by the lengths alone. Positions always grow, but a reader must check
    them.

    :raises InvalidRecord: a section can't have so many records, or they don't fill it
    """
    begins: list[int] = []
    append = begins.append
    for section in sections:
        at, end = section.start, section.end
        if not 0 <= section.records <= (end - at) // RECORD_BYTES_MIN:
            raise InvalidRecord(f"{section.records} records in {end - at} bytes")
        for _ in range(section.records):
            append(at)
            byte = data[at]
            if byte < 0x80:
                at += 1 + (byte >> 1)
                continue
            second = data[at + 1]
            if second < 0x80:
                at += 2 + (byte - 0x80 >> 1) + (second << 6)
            else:
                length, at = read_varint(data, at)
                at += max(length, 0)
        if at != end:
            raise InvalidRecord(
                f"{section.records} records take {at - section.start} bytes of {end - section.start}"
            )
    return begins


def _fields(data: Bytes, sections: Sequence[Section], begins: list[int]) -> _Fields:
    table = np.array(sections, np.int64)
    counts = table[:, 2]
    begin = np.array(begins, np.int64)
    end = np.append(begin[1:], 0)
    end[np.cumsum(counts) - 1] = table[:, 1]
    length, at = read_varints(data, begin)
    if (at + length != end).any():
        raise InvalidRecord("a record of a negative length")
    timestamp_delta, at = read_varlongs(data, at + 1)
    offset_delta, at = read_varints(data, at)
    key_length, key_at = read_varints(data, at)
    value_length, value_at = read_varints(data, key_at + np.maximum(key_length, 0))
    header_count, headers_at = read_varints(data, value_at + np.maximum(value_length, 0))
    left = end - headers_at
    if (np.minimum(key_length, value_length) < -1).any():
        raise InvalidRecord("a key or value of a negative length")
    if (left[header_count == 0] != 0).any():
        raise InvalidRecord("a record uses other than the bytes that it has")
    if (header_count < 0).any() or (header_count > left // 2).any():
        raise InvalidRecord("a number of headers for which a record has no bytes")
    base_offset, last_delta, base_time, append_time, kind = (
        np.repeat(table[:, n], counts) for n in range(3, 8)
    )
    offset = base_offset + offset_delta
    if ((offset_delta < 0) | (offset_delta > last_delta)).any() or (offset[1:] <= offset[:-1]).any():
        raise InvalidRecord("offsets that don't grow, or lie outside of their batch")
    timestamp = np.where(kind == LOG_APPEND_TIME, append_time, base_time + timestamp_delta)
    return _Fields(
        offset, timestamp, kind, key_at, key_length, value_at, value_length, headers_at, header_count, end
    )


def _gather(data: memoryview, at: Numbers, length: Numbers) -> pa.Array:
    """Copies the bytes at these places; a length of -1 gives null.

    Arrow does the copying: the data are seen as an array of binaries, and every other one is taken.
    """
    count = len(at)
    missing = length < 0
    if missing.all():
        return pa.nulls(count, pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = at
    bounds[1::2] = at + np.maximum(length, 0)
    spans = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    wanted = np.arange(0, 2 * count, 2, dtype=np.int32)
    return spans.take(pa.array(wanted, mask=missing if missing.any() else None))


def _headers(data: memoryview, fields: _Fields) -> pa.Array:
    if not fields.header_count.any():
        return pa.nulls(len(fields.offset), HEADERS)
    if (fields.header_count == 1).all() and (headers := _one_header_each(data, fields)) is not None:
        return headers
    places = zip(fields.headers_at.tolist(), fields.header_count.tolist(), fields.end.tolist(), strict=True)
    return pa.array([_headers_of(data, *place) if place[1] else None for place in places], HEADERS)


def _one_header_each(data: memoryview, fields: _Fields) -> pa.Array | None:
    """All headers at once, where each record has one, as a feed with the time of receipt has; ``None`` where one isn't
    plain: its bytes aren't its record's, or its name isn't UTF-8.
    """
    buffer = np.frombuffer(data, np.uint8)
    name_length, name_at = read_varints(buffer, fields.headers_at)
    if (name_length < 0).any() or (name_at + name_length >= fields.end).any():
        return None
    value_length, value_at = read_varints(buffer, name_at + name_length)
    if (value_length < -1).any() or (value_at + np.maximum(value_length, 0) != fields.end).any():
        return None
    try:
        names = _gather(data, name_at, name_length).cast(pa.string())
    except pa.ArrowInvalid:
        return None
    pairs = pa.StructArray.from_arrays(
        [names, _gather(data, value_at, value_length)], fields=list(HEADERS.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(np.arange(len(names) + 1, dtype=np.int32)), pairs)


def _headers_of(data: Any, at: int, count: int, end: int) -> list[dict[str, Any]]:
    headers = []
    for _ in range(count):
        name, at = _part(data, at, end)
        if name is None:
            raise InvalidRecord("a header without a name")
        value, at = _part(data, at, end)
        headers.append({"key": name.decode(errors="replace"), "value": value})
    if at != end:
        raise InvalidRecord(f"{end - at} bytes follow the headers of a record")
    return headers


def _part(data: Any, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_varint(data, at)
    if length < -1 or at + length > end:
        raise InvalidRecord(f"a header's part of {length} bytes")
    return (None, at) if length < 0 else (bytes(data[at : at + length]), at + length)
