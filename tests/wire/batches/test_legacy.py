"""Message sets of formats 0 and 1: Kafka's bytes, offsets inside of wrappers, and garbage."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.wire.batches.legacy import legacy_records
from blumfeld.wire.batches.record_batch import TruncatedBatch, UnsupportedMagic
from blumfeld.wire.batches.records import Record
from blumfeld.wire.compression.codec import Codec, DecompressedTooLarge
from blumfeld.wire.compression.payload import compress
from blumfeld.wire.errors import BrokerError, CorruptBatch, InvalidRecord
from tests.everyday import examples, for_each
from tests.kafka_facts import golden_batches
from tests.wire.golden import PLAIN, V0, V0_LZ4, V1_LZ4, T

OF_V0 = [Record(b"k0", b"value-0", offset=42), Record(None, b"value-1", offset=43)]
OF_V1 = [
    Record(b"k0", b"value-0", timestamp=T, offset=42),
    Record(None, b"value-1", timestamp=T + 5, offset=43),
]


def message(
    offset: int, value: bytes | None, *, magic: int = 1, attributes: int = 0, timestamp: int = T
) -> bytes:
    """An entry without a key."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic == 1 else b"")
    body += struct.pack(">i", -1)
    body += struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
    body = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(body)) + body


def wrapper(offset: int, inner: bytes, *, magic: int = 1, more: int = 0, codec: Codec = Codec.GZIP) -> bytes:
    """An entry whose value is a message set."""
    return message(offset, compress(codec, inner), magic=magic, attributes=codec | more, timestamp=T + 77)


@pytest.mark.parametrize(
    ("data", "expected"), [(V0, OF_V0), (V0_LZ4, OF_V0), (V1_LZ4, OF_V1)], ids=["v0", "v0-lz4", "v1-lz4"]
)
def test_what_kafka_wrote_is_read(data: bytes, expected: list[Record]) -> None:
    """Also with the wrong lz4 checksum of format 0."""
    assert list(legacy_records(memoryview(data))) == expected


def test_every_golden_message_set_is_read() -> None:
    seen = 0
    for case, data in golden_batches().items():
        if case.startswith("legacy"):
            expected = OF_V0 if "_v0_" in case else OF_V1
            assert list(legacy_records(memoryview(data))) == expected, case
            seen += 1
    assert seen == 6


def test_inner_offsets_of_format_1_count_from_the_wrappers() -> None:
    """The wrapper has the offset of the last; those that compaction took away stay holes."""
    inner = message(0, b"a") + message(1, b"b") + message(3, b"c")
    all_records = list(legacy_records(memoryview(wrapper(1003, inner))))
    assert [(record.offset, record.value) for record in all_records] == [
        (1000, b"a"),
        (1001, b"b"),
        (1003, b"c"),
    ]


def test_inner_offsets_of_format_0_are_absolute() -> None:
    inner = message(7, b"a", magic=0) + message(8, b"b", magic=0)
    assert [r.offset for r in legacy_records(memoryview(wrapper(8, inner, magic=0)))] == [7, 8]


def test_append_time_of_a_wrapper_is_that_of_its_messages() -> None:
    all_records = list(legacy_records(memoryview(wrapper(5, message(0, b"a"), more=8))))
    assert [record.timestamp for record in all_records] == [T + 77]


@pytest.mark.parametrize(
    "data",
    [
        wrapper(1, b""),
        wrapper(1, wrapper(0, message(0, b"a"))),
        wrapper(1, message(0, b"a", magic=0)),
        wrapper(1, message(0, b"a")[:-1]),
        message(1, None, attributes=1),
        wrapper(1, message(0, b"a"), codec=Codec.ZSTD),
        message(1, b"x", attributes=7),
    ],
    ids=["empty", "nested", "other format", "cut off inside", "null", "zstd", "no codec"],
)
def test_wrappers_that_break_the_format_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRecord):
        list(legacy_records(memoryview(data)))


def test_a_wrapper_that_holds_too_much_is_refused() -> None:
    with pytest.raises(DecompressedTooLarge):
        list(legacy_records(memoryview(wrapper(1, message(0, bytes(100_000)))), 1000))


@for_each(range(1, len(V0)))
def test_a_message_that_is_cut_off_is_truncated(cut: int) -> None:
    data = memoryview(V0)[:cut]
    if cut == 35:  # the end of the first
        assert list(legacy_records(data)) == OF_V0[:1]
        return
    with pytest.raises(TruncatedBatch):
        list(legacy_records(data))
    assert list(legacy_records(data, allow_partial=True)) == OF_V0[: cut // 35]


def test_damage_is_found() -> None:
    for at, error in ((30, CorruptBatch), (16, UnsupportedMagic), (8, CorruptBatch)):
        data = bytearray(V0)
        data[at] ^= 0x82
        with pytest.raises(error):
            list(legacy_records(memoryview(data)))
    with pytest.raises(UnsupportedMagic, match="format 2"):
        list(legacy_records(memoryview(PLAIN)))


@settings(max_examples=examples(300), deadline=None)
@given(
    body=st.binary(max_size=60),
    magic=st.integers(0, 1),
    attributes=st.integers(0, 7),
    keep=st.integers(0, 80),
)
def test_garbage_raises_broker_errors_only(body: bytes, magic: int, attributes: int, keep: int) -> None:
    """Behind a CRC that is right, inside of wrappers, and from nowhere."""
    body = bytes([magic, attributes]) + body
    framed = struct.pack(">qiI", 3, len(body) + 4, zlib.crc32(body)) + body
    for data in (framed, wrapper(1, framed), V1_LZ4[:keep] + body, message(1, body, attributes=attributes)):
        with suppress(BrokerError):
            list(legacy_records(memoryview(data), 10_000, allow_partial=True))
