"""Decompression for a worker thread: what ``decompress`` gives, and refuses, for every codec."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.wire.batches.builder import build_batch, repack
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record, records, validate_records
from blumfeld.wire.compression.bulk_decompression import unpacked
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.compression.payload import XERIAL_HEADER, compress, decompress
from blumfeld.wire.errors import BrokerError
from tests.everyday import examples

SIZE_MAX = 200_000


def outcome(unpack: Callable[..., bytes | memoryview], codec: Codec, data: bytes, size_max: int) -> object:
    try:
        return bytes(unpack(codec, memoryview(data), size_max))
    except BrokerError as error:
        return type(error)


@settings(max_examples=examples(150), deadline=None)
@given(
    plain=st.binary(max_size=2000),
    times=st.sampled_from([1, 1, 40, 90]),
    codec=st.sampled_from(Codec),
    room=st.integers(-2, 2),
)
def test_the_same_comes_out_up_to_the_same_bound(plain: bytes, times: int, codec: Codec, room: int) -> None:
    plain *= times
    data = compress(codec, plain)
    size_max = max(len(plain) + room, 0)
    assert outcome(unpacked, codec, data, size_max) == outcome(decompress, codec, data, size_max)


@settings(max_examples=examples(300), deadline=None)
@given(
    plain=st.binary(max_size=300),
    codec=st.sampled_from(Codec),
    keep=st.integers(0, 400),
    at=st.integers(0, 400),
    byte=st.integers(0, 255),
    tail=st.binary(max_size=5),
)
def test_damaged_data_have_the_same_outcome(
    plain: bytes, codec: Codec, keep: int, at: int, byte: int, tail: bytes
) -> None:
    data = bytearray(compress(codec, plain * 3)[:keep])
    if at < len(data):
        data[at] = byte
    damaged = bytes(data) + tail
    assert outcome(unpacked, codec, damaged, SIZE_MAX) == outcome(decompress, codec, damaged, SIZE_MAX)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_frames_that_follow_each_other_are_all_read(codec: Codec) -> None:
    data = compress(codec, b"one" * 100) + compress(codec, b"two" * 100)
    assert outcome(unpacked, codec, data, SIZE_MAX) == outcome(decompress, codec, data, SIZE_MAX)


def test_a_raw_snappy_block_is_read() -> None:
    plain = b"raw" * 5_000
    block = compress(Codec.SNAPPY, plain)[len(XERIAL_HEADER) + 4 :]
    assert bytes(unpacked(Codec.SNAPPY, memoryview(block), SIZE_MAX)) == plain


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("target", Codec)
def test_a_repacked_batch_has_the_same_records(codec: Codec, target: Codec) -> None:
    given_records = [Record(b"k%d" % n, b"v" * n, (("h", b"x"),), 1_000 + n) for n in range(50)]
    batch = RecordBatch(
        memoryview(build_batch(given_records, codec=codec, producer_id=7, producer_epoch=1, base_sequence=3))
    )
    plain = unpacked(codec, batch.records_data, SIZE_MAX)
    checked = validate_records(batch, plain=plain)
    again = RecordBatch(memoryview(repack(batch, plain, target, None, checked.max_timestamp)))
    again.verify_crc()
    assert again.codec is target
    assert list(records(again)) == list(records(batch))
    assert (again.producer_id, again.producer_epoch, again.base_sequence) == (7, 1, 3)
    assert (again.last_offset_delta, again.max_timestamp) == (batch.last_offset_delta, batch.max_timestamp)
