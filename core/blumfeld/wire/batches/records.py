"""The records of a batch, decoded one by one, within a limit of memory.

Few places need to look inside of a batch (docs/design.md, rule 4): a compacted topic, a look-up by time, a
change of codec, a replay. If the CRC is right, a fault inside of the batch was sent like that and is
INVALID_RECORD.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from blumfeld.wire.batches.record_batch import HEADER_BYTES, NO_SEQUENCE, NO_TIMESTAMP, RecordBatch
from blumfeld.wire.batches.varint import BadVarintError, read_varint, read_varlong
from blumfeld.wire.compression.payload import decompress
from blumfeld.wire.errors import InvalidRecord

DECOMPRESSED_BYTES_MAX = 100 * 1024 * 1024
"""Limit for one decompressed batch: Kafka's limit for one request (``socket.request.max.bytes``)."""

Headers = Sequence[tuple[str, bytes | None]]


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record. A null key or value is ``None``; a record with a null value is a tombstone.

    A header's key that is not UTF-8 keeps its bytes as surrogate escapes.
    """

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    timestamp: int = NO_TIMESTAMP
    """Milliseconds since 1970; in a LogAppendTime batch the batch's time."""
    offset: int = -1
    sequence: int = NO_SEQUENCE


Span = tuple[int, int, int, int, int, int, int, int]
"""Positions in the uncompressed data: timestamp delta, offset delta, key at, key length, value at, value
length, headers at, header count. A plain tuple, because one is made for each record.
"""


NULL_KEYS_NAMED_MAX = 10_000
"""Limit of records without a key that a check lists. Each takes some 50 bytes of the answer, and a batch that
unpacks to 100 MB may have millions.
"""


class TooManyHeaders(Exception):  # noqa: N818 - as BrokerErrors are named
    """The batch has more headers than :func:`validate_records` was allowed to walk. It may still be valid."""


class Checked(NamedTuple):
    """The result of :func:`validate_records`."""

    offsets_in_order: bool
    """Whether the deltas are 0, 1, 2…; if not, the batch must be rebuilt before it is stored."""
    null_keys: int
    """Number of records without a key. A compacted topic allows none."""
    null_key_indexes: list[int]
    """Their indexes in the batch, the first :data:`NULL_KEYS_NAMED_MAX` of them."""
    max_timestamp: int
    """Highest timestamp of all records, by their deltas; -1 for an empty batch."""
    min_timestamp: int
    decompressed_bytes: int


def records(batch: RecordBatch, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Yield the records of a batch in order. The first step decompresses; each record is decoded when it is
    asked for.

    :raises InvalidRecord: a record breaks the format, or number or size of the records differ from the
        header
    :raises DecompressedTooLarge: the records exceed ``decompressed_bytes_max``
    """
    data = _plain(batch, decompressed_bytes_max)
    base_offset, base_timestamp, base_sequence = batch.base_offset, batch.base_timestamp, batch.base_sequence
    append_time = batch.max_timestamp if batch.is_log_append_time else None
    for span in spans(data, batch.record_count):
        delta, offset_delta, key_at, key_length, value_at, value_length, headers_at, header_count = span
        yield Record(
            None if key_length < 0 else data[key_at : key_at + key_length],
            None if value_length < 0 else data[value_at : value_at + value_length],
            _headers(data, headers_at, header_count) if header_count else (),
            base_timestamp + delta if append_time is None else append_time,
            base_offset + offset_delta,
            NO_SEQUENCE if base_sequence < 0 else base_sequence + offset_delta & 0x7FFFFFFF,
        )


def times(batch: RecordBatch, plain: memoryview | None = None) -> Iterator[tuple[int, int]]:
    """Yield (timestamp, offset) of each record in order.

    Keys, values and headers are passed over unread, because a record's length leads to the next one. So a record with
    40 million headers takes no time and no memory of its own.

    :param plain: the records section, if it is decompressed already
    :raises InvalidRecord, DecompressedTooLarge: as :func:`records`, but for faults inside of what is passed over
    """
    data = _plain(batch, DECOMPRESSED_BYTES_MAX) if plain is None else plain
    append_time = batch.max_timestamp if batch.is_log_append_time else None
    base_timestamp, base_offset, count = batch.base_timestamp, batch.base_offset, batch.record_count
    at, size = 0, len(data)
    try:
        for index in range(count):
            length, at = read_varint(data, at)
            end = at + length
            if length < 0 or end > size:
                raise InvalidRecord(f"record {index} of {count} has {length} bytes, {size - at} are left")
            delta, at = read_varlong(data, at + 1)
            offset_delta, at = read_varint(data, at)
            if at > end:
                raise InvalidRecord(f"record {index} of {count} has {length} bytes and uses other than that")
            yield base_timestamp + delta if append_time is None else append_time, base_offset + offset_delta
            at = end
    except (IndexError, BadVarintError) as error:
        raise InvalidRecord(f"the records end early, or hold a bad number: {error}") from None


def values(batch: RecordBatch) -> Iterator[bytes]:
    """Yield the value of each record, empty where it is null, as :func:`records` does, without making record objects.

    :raises InvalidRecord, DecompressedTooLarge: as :func:`records`
    """
    data = _plain(batch, DECOMPRESSED_BYTES_MAX)
    for span in spans(data, batch.record_count):
        yield data[span[4] : span[4] + span[5]] if span[5] > 0 else b""


def validate_records(
    batch: RecordBatch,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    plain: memoryview | None = None,
    headers_max: int | None = None,
) -> Checked:
    """Walk a batch as :func:`records` does, without making record objects.

    :param plain: the records section, if it is decompressed already
    :param headers_max: limit of headers walked in all records together; a header may take only two bytes
    :raises InvalidRecord, DecompressedTooLarge: as :func:`records`
    :raises TooManyHeaders: there are more than ``headers_max``
    """
    data = _plain(batch, decompressed_bytes_max) if plain is None else plain
    in_order, null_keys = True, 0
    keyless: list[int] = []
    # The deltas are not collected: freeing a list of a million at once would hold the interpreter.
    earliest = latest = None
    for index, span in enumerate(spans(data, batch.record_count, headers_max)):
        delta = span[0]
        if earliest is None or latest is None:
            earliest = latest = delta
        elif delta > latest:
            latest = delta
        elif delta < earliest:
            earliest = delta
        if span[1] != index:
            in_order = False
        if span[3] < 0:
            null_keys += 1
            if null_keys <= NULL_KEYS_NAMED_MAX:
                keyless.append(index)
    return Checked(
        in_order,
        null_keys,
        keyless,
        NO_TIMESTAMP if latest is None else batch.base_timestamp + latest,
        NO_TIMESTAMP if earliest is None else batch.base_timestamp + earliest,
        len(data),
    )


def _plain(batch: RecordBatch, decompressed_bytes_max: int) -> bytes:
    if batch.size_bytes == HEADER_BYTES:
        return b""  # an empty section is not compressed, whatever the attributes say
    return decompress(batch.codec, batch.records_data, decompressed_bytes_max)


def spans(data: bytes | memoryview, count: int, headers_max: int | None = None) -> Iterator[Span]:
    """Yield the positions of the ``count`` records in ``data``, which they must fill exactly.

    :param data: the uncompressed records section
    :param headers_max: as for :func:`validate_records`
    :raises InvalidRecord: as :func:`records`
    :raises TooManyHeaders: as :func:`validate_records`
    """
    if count < 0:
        raise InvalidRecord(f"a batch with {count} records")
    at, size = 0, len(data)
    headers_left = size if headers_max is None else headers_max
    try:
        for index in range(count):
            length, at = read_varint(data, at)
            end = at + length
            if length < 0 or end > size:
                raise InvalidRecord(f"record {index} of {count} has {length} bytes, {size - at} are left")
            span, at = _span(data, at + 1, end, headers_left)
            headers_left -= span[7]
            if at != end:
                raise InvalidRecord(f"record {index} of {count} has {length} bytes and uses other than that")
            yield span
    except (IndexError, BadVarintError) as error:
        raise InvalidRecord(f"the records end early, or hold a bad number: {error}") from None
    if at != size:
        raise InvalidRecord(f"{size - at} bytes follow the last of {count} records")


def _span(data: bytes | memoryview, at: int, end: int, headers_max: int) -> tuple[Span, int]:
    # Hot path: most of these numbers take one byte, which is read here without a call.
    byte = data[at]
    if byte < 0x80:
        timestamp_delta, at = byte >> 1 ^ -(byte & 1), at + 1
    else:
        timestamp_delta, at = read_varlong(data, at)
    byte = data[at]
    if byte < 0x80:
        offset_delta, at = byte >> 1 ^ -(byte & 1), at + 1
    else:
        offset_delta, at = read_varint(data, at)
    byte = data[at]
    if byte < 0x80:
        key_length, key_at = byte >> 1 ^ -(byte & 1), at + 1
    else:
        key_length, key_at = read_varint(data, at)
    at = key_at + key_length if key_length > 0 else key_at
    value_length, value_at = read_varint(data, at)
    at = value_at + value_length if value_length > 0 else value_at
    header_count, headers_at = (0, at + 1) if data[at] == 0 else read_varint(data, at)
    at = headers_at
    if key_length < -1 or value_length < -1 or not 0 <= header_count <= end - at:
        raise InvalidRecord(
            f"a record with key of {key_length}, value of {value_length} bytes and {header_count} headers"
        )
    if header_count:
        if header_count > headers_max:
            raise TooManyHeaders
        at = _skip_headers(data, at, header_count, end)
    span = timestamp_delta, offset_delta, key_at, key_length, value_at, value_length, headers_at, header_count
    return span, at


def _skip_headers(data: bytes | memoryview, at: int, count: int, end: int) -> int:
    for _ in range(count):
        length, at = read_varint(data, at)
        at = _skip(at, length, 0, end)
        length, at = read_varint(data, at)
        at = _skip(at, length, -1, end)
    return at


def _skip(at: int, length: int, least: int, end: int) -> int:
    if length < least or at + length > end:
        raise InvalidRecord(f"a header's part of {length} bytes")
    return at + length if length > 0 else at


def _headers(data: bytes, at: int, count: int) -> Headers:
    headers = []
    for _ in range(count):
        length, at = read_varint(data, at)
        name = data[at : at + length].decode("utf-8", "surrogateescape")
        length, at = read_varint(data, at + length)
        headers.append((name, None if length < 0 else data[at : at + length]))
        at += max(length, 0)
    return tuple(headers)
