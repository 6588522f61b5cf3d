"""Message sets of formats 0 and 1, as brokers before 0.11 wrote them. Read only.

An entry is offset, size, CRC-32, magic, attributes, in format 1 a timestamp, key and value. A compressed
entry is a wrapper: its value is another message set. In format 1 the inner offsets count from 0, and the
wrapper has the offset of the last inner entry. Wrappers inside of wrappers are refused.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from blumfeld.wire.batches.record_batch import (
    CODEC_MASK,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    TruncatedBatch,
    UnsupportedMagic,
)
from blumfeld.wire.batches.records import DECOMPRESSED_BYTES_MAX, Record
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.compression.payload import decompress
from blumfeld.wire.errors import CorruptBatch, InvalidRecord

_ENTRY = struct.Struct(">qiIbb")
_I64 = struct.Struct(">q")
_I32 = struct.Struct(">i")
# Bytes from the CRC on: CRC, magic, attributes, two lengths.
_SIZE_MIN = 14


class _Message(NamedTuple):
    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def legacy_records(
    data: memoryview,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    *,
    allow_partial: bool = False,
) -> Iterator[Record]:
    """Yield the records of a message set. Records inside of wrappers have absolute offsets.

    :param decompressed_bytes_max: limit for the content of one wrapper
    :param allow_partial: stop without an error before an entry that is cut off
    :raises TruncatedBatch: the last entry is cut off, and ``allow_partial`` is false
    :raises CorruptBatch: a wrong CRC or an impossible length
    :raises UnsupportedMagic: an entry of format 2 or an unknown format
    :raises InvalidRecord: a wrapper is empty or holds another wrapper
    :raises DecompressedTooLarge: a wrapper's content exceeds the limit
    """
    try:
        for message in _messages(data):
            if message.attributes & CODEC_MASK:
                yield from _unwrap(message, decompressed_bytes_max)
            else:
                yield _record(message)
    except TruncatedBatch:
        if not allow_partial:
            raise


def _record(message: _Message) -> Record:
    return Record(message.key, message.value, timestamp=message.timestamp, offset=message.offset)


def _unwrap(wrapper: _Message, decompressed_bytes_max: int) -> Iterator[Record]:
    number = wrapper.attributes & CODEC_MASK
    if number not in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4) or wrapper.value is None:
        raise InvalidRecord(f"a wrapper message with codec {number}, which format {wrapper.magic} has not")
    plain = decompress(
        Codec(number), wrapper.value, decompressed_bytes_max, lz4_wrong_checksum=wrapper.magic == 0
    )
    try:
        inner = list(_messages(memoryview(plain)))
    except TruncatedBatch as error:
        # The wrapper was complete, so its sender cut off the content: the client's fault, not a torn read.
        raise InvalidRecord(f"in a wrapper message: {error.message}") from None
    if not inner:
        raise InvalidRecord("a wrapper message is empty")
    for message in inner:
        if message.attributes & CODEC_MASK or message.magic != wrapper.magic:
            raise InvalidRecord("a wrapper message holds another wrapper, or a message of another format")
    # Old clients left the inner offsets of format 1 absolute. The wrapper then has the last one's offset too,
    # so the shift is 0.
    shift = wrapper.offset - inner[-1].offset if wrapper.magic else 0
    append_time = wrapper.timestamp if wrapper.attributes & LOG_APPEND_TIME_BIT and wrapper.magic else None
    for message in inner:
        yield _record(
            message._replace(
                offset=message.offset + shift,
                timestamp=message.timestamp if append_time is None else append_time,
            )
        )


def _messages(data: memoryview) -> Iterator[_Message]:
    at, end = 0, len(data)
    while at < end:
        if end - at < LOG_OVERHEAD_BYTES:
            raise TruncatedBatch(f"{end - at} bytes are too few for a message")
        (size,) = _I32.unpack_from(data, at + 8)
        if size < _SIZE_MIN:
            raise CorruptBatch(f"a message of {size} bytes, where its header alone takes {_SIZE_MIN}")
        size += LOG_OVERHEAD_BYTES
        if at + size > end:
            raise TruncatedBatch(f"{end - at} of the message's {size} bytes are there")
        yield _message(data[at : at + size])
        at += size


def _message(entry: memoryview) -> _Message:
    offset, _, crc, magic, attributes = _ENTRY.unpack_from(entry)
    if magic not in (0, 1):
        raise UnsupportedMagic(magic)
    computed = zlib.crc32(entry[16:])
    if computed != crc:
        raise CorruptBatch(f"the message's CRC is {computed:08x}, its header says {crc:08x}")
    at, timestamp = _ENTRY.size, NO_TIMESTAMP
    if magic == 1:
        if len(entry) < at + 16:
            raise CorruptBatch("a message that is too short for its format")
        (timestamp,) = _I64.unpack_from(entry, at)
        at += 8
    key, at = _nullable(entry, at)
    value, at = _nullable(entry, at)
    if at != len(entry):
        raise CorruptBatch(f"{len(entry) - at} bytes follow the message's value")
    return _Message(offset, magic, attributes, timestamp, key, value)


def _nullable(entry: memoryview, at: int) -> tuple[bytes | None, int]:
    if at + 4 > len(entry):
        raise CorruptBatch("a message ends before its value")
    (length,) = _I32.unpack_from(entry, at)
    at += 4
    if length < -1 or at + length > len(entry):
        raise CorruptBatch(f"a key or value of {length} bytes, {len(entry) - at} are left")
    return (None, at) if length < 0 else (bytes(entry[at : at + length]), at + length)
