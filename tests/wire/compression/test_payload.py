"""The five codecs: round trips, Kafka's framings, and bombs that never go off."""

from __future__ import annotations

import tracemalloc
import zlib
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.wire.compression.codec import EXPANSION_MAX, Codec, DecompressedTooLarge
from blumfeld.wire.compression.payload import compress, decompress
from blumfeld.wire.errors import BrokerError, ErrorCode, InvalidRecord
from tests.everyday import examples

MIB = 1024 * 1024
PACKED = [codec for codec in Codec if codec is not Codec.NONE]
SOMETHING = bytes(range(256)) * 700


@settings(max_examples=examples(80), deadline=None)
@given(data=st.binary(max_size=2000), times=st.sampled_from([1, 1, 40, 90]), codec=st.sampled_from(Codec))
def test_round_trip(data: bytes, times: int, codec: Codec) -> None:
    """From nothing to more than one block of each framing, at exactly the size that is allowed."""
    data *= times
    assert decompress(codec, memoryview(compress(codec, memoryview(data))), len(data)) == data


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        *[(Codec.GZIP, level) for level in (-1, 1, 9)],
        *[(Codec.LZ4, level) for level in (1, 9, 17)],
        *[(Codec.ZSTD, level) for level in (-131072, -5, 3, 22)],
    ],
)
def test_every_level_of_kafka_is_taken(codec: Codec, level: int) -> None:
    assert decompress(codec, compress(codec, SOMETHING, level), MIB) == SOMETHING


@pytest.mark.parametrize("codec", Codec)
def test_one_byte_more_than_allowed_is_refused(codec: Codec) -> None:
    """With the code at which producers split a batch."""
    with pytest.raises(DecompressedTooLarge) as caught:
        decompress(codec, compress(codec, SOMETHING), len(SOMETHING) - 1)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def bomb(codec: Codec) -> bytes:
    """256 MiB of zeros in few bytes, as far as the codec can."""
    if codec is Codec.SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(bytes(32 * 1024)))
        framed = len(block).to_bytes(4, "big") + block
        return compress(codec, b"") + framed * (256 * 32)
    if codec is Codec.LZ4:
        whole = compress(codec, bytes(64 * 1024))
        return whole[:7] + whole[7:-4] * (256 * 16) + whole[-4:]
    if codec is Codec.GZIP:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        return b"".join(packer.compress(bytes(MIB)) for _ in range(256)) + packer.flush()
    return bytes(cramjam.zstd.compress(bytes(256 * MIB)))


@pytest.mark.parametrize("codec", PACKED)
def test_no_codec_makes_more_of_a_byte_than_its_bound(codec: Codec) -> None:
    ratio = 256 * MIB / len(bomb(codec))
    assert EXPANSION_MAX[codec] * 0.9 < ratio <= EXPANSION_MAX[codec]


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_allocates_no_more_than_what_is_allowed(codec: Codec) -> None:
    """256 MiB come out of less than 13 MiB: with a limit of 1 MiB, Python holds a few of them at most."""
    data = bomb(codec)
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedTooLarge):
            decompress(codec, data, MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MIB


def test_a_snappy_block_that_lies_about_its_size_is_refused_at_once() -> None:
    """Four bytes can not hold 4 GiB, whatever is allowed."""
    with pytest.raises(InvalidRecord, match="claims"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f\x00", 1 << 40)


def test_both_snappy_framings_are_read() -> None:
    """The xerial stream of Java, one raw block of librdkafka, and streams one after the other."""
    raw = bytes(cramjam.snappy.compress_raw(SOMETHING))
    assert decompress(Codec.SNAPPY, raw, MIB) == SOMETHING
    stream = compress(Codec.SNAPPY, SOMETHING)
    assert stream[:16] == bytes.fromhex("82534e41505059000000000100000001")
    assert decompress(Codec.SNAPPY, stream, MIB) == SOMETHING
    assert decompress(Codec.SNAPPY, stream + stream, MIB) == SOMETHING * 2


def test_gzip_members_may_follow_each_other_and_padding_may_follow_them() -> None:
    data = compress(Codec.GZIP, b"one") + compress(Codec.GZIP, b"two") + bytes(8)
    assert decompress(Codec.GZIP, data, 6) == b"onetwo"
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.GZIP, data, 5)


def test_zstd_frames_may_follow_each_other() -> None:
    data = compress(Codec.ZSTD, b"one") + compress(Codec.ZSTD, b"two")
    assert decompress(Codec.ZSTD, data, 6) == b"onetwo"


def blocks_of(frame: bytes) -> list[tuple[bool, bytes]]:
    """An independent reader of the frames that we write: (stored, bytes) of each block."""
    blocks, at = [], 7
    while (size := int.from_bytes(frame[at : at + 4], "little")) != 0:
        stored, size = size >> 31 == 1, size & 0x7FFFFFFF
        blocks.append((stored, frame[at + 4 : at + 4 + size]))
        at += 4 + size
    assert at + 4 == len(frame)
    return blocks


def unpacked(block: bytes) -> bytes:
    """One LZ4 block, without any other."""
    out = bytearray(64 * 1024)
    return bytes(out[: cramjam.lz4.decompress_block_into(block, out)])


@pytest.mark.parametrize("level", [None, 1, 12])
def test_lz4_blocks_are_written_so_that_each_can_be_read_alone(level: int | None) -> None:
    """FLG says so, Kafka believes only that, and it is true: each block decodes with no other."""
    frame = compress(Codec.LZ4, SOMETHING, level)
    assert frame[:7] == bytes.fromhex("04224d18604082")
    flags = frame[4]
    assert flags >> 6 == 1, "version"
    assert flags & 0x20, "independent"
    assert not flags & 0x1F, "no checksums, no sizes"
    plain = [part if stored else unpacked(part) for stored, part in blocks_of(frame)]
    assert [len(part) for part in plain] == [65536, 65536, len(SOMETHING) - 2 * 65536]
    assert b"".join(plain) == SOMETHING


def test_lz4_stores_what_does_not_shrink() -> None:
    noise = bytes(cramjam.zstd.compress(bytes(range(256)), 19))[:40]
    ((stored, part),) = blocks_of(compress(Codec.LZ4, noise))
    assert stored
    assert part == noise
    assert decompress(Codec.LZ4, compress(Codec.LZ4, noise), 40) == noise


def test_lz4_frames_with_dependent_blocks_are_refused_as_kafka_does() -> None:
    linked = bytes(cramjam.lz4.compress(SOMETHING))
    assert not linked[4] & 0x20
    with pytest.raises(InvalidRecord, match="depend"):
        decompress(Codec.LZ4, linked, MIB)


def lz4_frame(flags: int, tail: bytes = b"", size: bytes = b"", block_sum: bytes = b"") -> bytes:
    """A frame with one stored block "abc", with a right header checksum for the descriptor that is asked."""
    checksums = {0x60: 0x82, 0x64: 0xA7, 0x70: 0xAD, 0x68: 0x87, 0x62: 0x00, 0xA0: 0x00, 0x20: 0x00}
    head = bytes([flags, 0x40]) + size
    return (
        b"\x04\x22\x4d\x18"
        + head
        + bytes([checksums[flags]])
        + b"\x03\x00\x00\x80abc"
        + block_sum
        + bytes(4)
        + tail
    )


XXH32_OF_ABC = (0x32D153FF).to_bytes(4, "little")


@pytest.mark.parametrize(
    "frame",
    [
        lz4_frame(0x68, size=(3).to_bytes(8, "little")),
        lz4_frame(0x70, block_sum=XXH32_OF_ABC),
        lz4_frame(0x64, tail=XXH32_OF_ABC),
    ],
    ids=["content size", "block checksum", "content checksum"],
)
def test_lz4_frames_of_other_writers_are_read(frame: bytes) -> None:
    assert decompress(Codec.LZ4, frame, 3) == b"abc"
    assert decompress(Codec.LZ4, frame + b"what follows is not looked at", 3) == b"abc"


@pytest.mark.parametrize("flags", [0x62, 0xA0, 0x20])
def test_lz4_descriptors_that_are_none_are_refused(flags: int) -> None:
    with pytest.raises(InvalidRecord, match="descriptor"):
        decompress(Codec.LZ4, lz4_frame(flags), MIB)


def test_lz4_header_checksum_is_checked_except_for_format_0() -> None:
    """Old clients computed it over the magic as well."""
    frame = bytearray(lz4_frame(0x60))
    assert decompress(Codec.LZ4, frame, 3) == b"abc"
    frame[6] = 0x1A
    with pytest.raises(InvalidRecord):
        decompress(Codec.LZ4, frame, 3)
    assert decompress(Codec.LZ4, frame, 3, lz4_wrong_checksum=True) == b"abc"
    assert (
        decompress(Codec.LZ4, frame + b"what follows is not looked at", 3, lz4_wrong_checksum=True) == b"abc"
    )


def test_lz4_block_that_says_more_than_its_frame_allows_is_refused() -> None:
    """A block of a frame of 64 KiB blocks may not hold 128 KiB."""
    block = bytes(cramjam.lz4.compress_block(bytes(128 * 1024), store_size=False))
    frame = lz4_frame(0x60)[:7] + len(block).to_bytes(4, "little") + block + bytes(4)
    with pytest.raises(InvalidRecord):
        decompress(Codec.LZ4, frame, MIB)
    with pytest.raises(InvalidRecord, match="in a frame of blocks"):
        decompress(Codec.LZ4, lz4_frame(0x60)[:7] + b"\x01\x00\x01\x00" + bytes(70_000), MIB)


@pytest.mark.parametrize("codec", PACKED)
def test_data_that_are_cut_off_are_refused(codec: Codec) -> None:
    """At any byte; snappy's streams may end after a block."""
    data = compress(codec, b"something that is long enough, long enough to be cut")
    allowed = {16, 0} if codec is Codec.SNAPPY else set()
    for cut in range(len(data)):
        if cut not in allowed:
            with pytest.raises(BrokerError):
                decompress(codec, data[:cut], MIB)


@settings(max_examples=examples(300), deadline=None)
@given(
    data=st.binary(max_size=150),
    codec=st.sampled_from(PACKED),
    keep=st.integers(0, 40),
    at=st.integers(0, 60),
    byte=st.integers(0, 255),
)
def test_garbage_raises_broker_errors_only(data: bytes, codec: Codec, keep: int, at: int, byte: int) -> None:
    """Bytes from nowhere, after a beginning that is right, and one wrong byte."""
    right = bytearray(compress(codec, b"some data, some data, some data and more"))
    if at < len(right):
        right[at] = byte
    for garbage in (data, bytes(right[:keep]) + data, bytes(right)):
        with suppress(BrokerError):
            assert len(decompress(codec, garbage, 10_000)) <= 10_000
