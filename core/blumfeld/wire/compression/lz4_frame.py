"""LZ4 frames for Kafka: independent blocks in both directions.

Kafka's Java reader refuses frames whose blocks depend on each other, and LZ4 libraries write such frames by
default. So this module writes frames itself, around the block codec. On reading it checks the header before
the library sees it.
"""

from __future__ import annotations

from blumfeld.wire.compression.codec import Codec, Data, DecompressedTooLarge, decompress_into
from blumfeld.wire.errors import InvalidRecord

FRAME_MAGIC = b"\x04\x22\x4d\x18"
BLOCK_BYTES = 64 * 1024
# Version 1, independent blocks, no checksums, no content size; blocks of 64 KiB; xxh32 of these two bytes.
_HEADER = FRAME_MAGIC + b"\x60\x40\x82"
_STORED_BIT = 0x80000000
# At Kafka's default level the fast compressor runs; any other level selects the slow one (KIP-390).
_LEVEL_DEFAULT = 9
# An LZ4 block expands to at most 255 times its size.
_RATIO_MAX = 255

_VERSION_MASK, _VERSION_1 = 0xC0, 0x40
_INDEPENDENT_BIT = 0x20
_BLOCK_CHECKSUM_BIT = 0x10
_CONTENT_SIZE_BIT = 0x08
_CONTENT_CHECKSUM_BIT = 0x04
_RESERVED_FLG, _RESERVED_BD = 0x03, 0x8F


def compress_lz4(view: memoryview, level: int | None = None) -> bytes:
    """Returns one frame of independent 64 KiB blocks. A block that does not shrink is stored."""
    import cramjam

    parts = [_HEADER]
    slow = level is not None and level != _LEVEL_DEFAULT
    for start in range(0, len(view), BLOCK_BYTES):
        plain = view[start : start + BLOCK_BYTES]
        if slow:
            packed = cramjam.lz4.compress_block(
                plain, mode="high_compression", compression=min(level or 0, 12), store_size=False
            )
        else:
            packed = cramjam.lz4.compress_block(plain, store_size=False)
        block = bytes(packed)
        if len(block) < len(plain):
            parts += (len(block).to_bytes(4, "little"), block)
        else:
            parts += ((len(plain) | _STORED_BIT).to_bytes(4, "little"), bytes(plain))
    parts.append(b"\x00\x00\x00\x00")
    return b"".join(parts)


def decompress_lz4(view: memoryview, size_max: int, *, wrong_checksum: bool = False) -> bytes:
    """Returns the content of the first frame. Data after it is ignored, as in Kafka.

    :param wrong_checksum: ignore the header's checksum (message format 0)
    :raises DecompressedTooLarge: the content exceeds ``size_max`` bytes
    :raises InvalidRecord: not an LZ4 frame, cut off, a wrong checksum, or dependent blocks
    """
    import cramjam

    blocks_at = check_header(view)
    frame_end, room = walk_blocks(view, blocks_at)
    frame: Data = view[:frame_end]
    if wrong_checksum:
        frame = bytearray(frame)
        frame[blocks_at - 1] = _xxh32_short(bytes(frame[4 : blocks_at - 1])) >> 8 & 0xFF
    out = bytearray(min(room, size_max))
    try:
        size = decompress_into(cramjam.lz4.decompress_into, Codec.LZ4, frame, out)
    except DecompressedTooLarge:
        if room <= size_max:
            raise InvalidRecord("a block of lz4 data holds more than its frame allows") from None
        raise
    return bytes(memoryview(out)[:size])


def check_header(view: memoryview) -> int:
    """Check the frame header as Kafka does.

    :return: position of the first block
    """
    if len(view) < len(_HEADER) or bytes(view[:4]) != FRAME_MAGIC:
        raise InvalidRecord("lz4 data do not begin with a frame")
    flags, block = view[4], view[5]
    if flags & _VERSION_MASK != _VERSION_1 or flags & _RESERVED_FLG or block & _RESERVED_BD:
        raise InvalidRecord(f"an lz4 frame with descriptor {flags:#04x} {block:#04x}")
    if not flags & _INDEPENDENT_BIT:
        raise InvalidRecord(
            "the blocks of an lz4 frame depend on each other: only independent blocks are allowed"
        )
    if block >> 4 < 4:
        raise InvalidRecord(f"an lz4 frame with block size code {block >> 4}")
    return 7 + (8 if flags & _CONTENT_SIZE_BIT else 0)


def walk_blocks(view: memoryview, at: int) -> tuple[int, int]:
    """Walk over the block headers.

    :return: end of the frame, and an upper bound of its content's size
    """
    flags = view[4]
    block_max = 1 << (8 + 2 * (view[5] >> 4))
    checksum = 4 if flags & _BLOCK_CHECKSUM_BIT else 0
    room = 0
    while at + 4 <= len(view):
        size = int.from_bytes(view[at : at + 4], "little")
        at += 4
        if size == 0:
            at += 4 if flags & _CONTENT_CHECKSUM_BIT else 0
            if at > len(view):
                break
            return at, room
        stored = bool(size & _STORED_BIT)
        size &= ~_STORED_BIT
        if size > block_max:
            raise InvalidRecord(f"an lz4 block of {size} bytes in a frame of blocks up to {block_max}")
        room += size if stored else min(block_max, size * _RATIO_MAX)
        at += size + checksum
    raise InvalidRecord("lz4 data are cut off")


def _xxh32_short(data: bytes) -> int:
    """xxHash32 with seed 0 for less than 16 bytes, which is the most that a frame header has."""
    mask = 0xFFFFFFFF
    acc = 374761393 + len(data)
    at = 0
    while at + 4 <= len(data):
        acc = acc + int.from_bytes(data[at : at + 4], "little") * 3266489917 & mask
        acc = (acc << 17 | acc >> 15) * 668265263 & mask
        at += 4
    for byte in data[at:]:
        acc = acc + byte * 374761393 & mask
        acc = (acc << 11 | acc >> 21) * 2654435761 & mask
    acc = (acc ^ acc >> 15) * 2246822519 & mask
    acc = (acc ^ acc >> 13) * 3266489917 & mask
    return acc ^ acc >> 16
