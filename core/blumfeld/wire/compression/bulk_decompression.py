"""Decompression of much data in a worker thread, without holding the interpreter for long.

:func:`blumfeld.wire.compression.payload.decompress` returns ``bytes``. To fill and copy 100 MB of them
holds the interpreter for 50 ms twice, and the loop's thread waits. Here the data go into anonymous memory,
which the system provides page by page while the codec runs (without the interpreter), and are not copied.
The bounds are the same.
"""

from __future__ import annotations

import mmap
import zlib

from blumfeld.wire.compression.codec import Codec, DecompressedTooLarge, decompress_into
from blumfeld.wire.compression.lz4_frame import check_header, walk_blocks
from blumfeld.wire.compression.payload import GZIP_WBITS, XERIAL_HEADER, XERIAL_MAGIC, snappy_claim
from blumfeld.wire.errors import InvalidRecord

GZIP_PIECE_BYTES = 256 * 1024


def unpacked(codec: Codec, data: memoryview, size_max: int) -> memoryview:
    """Returns the decompressed data as a view: of ``data`` itself if it is not compressed, else of new memory.

    :raises DecompressedTooLarge: the data exceed ``size_max`` bytes
    :raises InvalidRecord: the data are not in the codec's format, or are cut off
    """
    if codec is Codec.NONE:
        if len(data) > size_max:
            raise DecompressedTooLarge(codec, size_max)
        return data
    out = memoryview(mmap.mmap(-1, max(size_max, 1)))[:size_max]
    if codec is Codec.GZIP:
        size = _gzip(data, out)
    elif codec is Codec.SNAPPY:
        size = _snappy(data, out)
    elif codec is Codec.LZ4:
        size = _lz4(data, out)
    else:
        import cramjam

        size = decompress_into(cramjam.zstd.decompress_into, codec, data, out)
    return out[:size]


def _gzip(data: memoryview, out: memoryview) -> int:
    size, size_max = 0, len(out)
    try:
        while True:
            unpacker = zlib.decompressobj(GZIP_WBITS)
            rest: bytes | memoryview = data
            while not unpacker.eof:
                piece = unpacker.decompress(rest, GZIP_PIECE_BYTES)
                if size + len(piece) > size_max:
                    raise DecompressedTooLarge(Codec.GZIP, size_max)
                out[size : size + len(piece)] = piece
                size += len(piece)
                rest = unpacker.unconsumed_tail
                if not piece and not rest and not unpacker.eof:
                    raise InvalidRecord("gzip data are cut off")
            data = memoryview(unpacker.unused_data)
            # Several members may follow each other. Anything else after a member is padding, as Java reads
            # it.
            if bytes(data[:2]) != b"\x1f\x8b":
                return size
    except zlib.error as error:
        raise InvalidRecord(f"bad gzip data: {error}") from None


def _snappy(data: memoryview, out: memoryview) -> int:
    if bytes(data[:8]) != XERIAL_MAGIC:
        return _snappy_block(data, out, 0)
    size = at = 0
    while at < len(data):
        if bytes(data[at : at + 8]) == XERIAL_MAGIC:  # several streams may follow each other
            at += len(XERIAL_HEADER)
            if at > len(data):
                raise InvalidRecord("snappy header is cut off")
            continue
        length = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if at + length > len(data):
            raise InvalidRecord(f"a snappy block of {length} bytes, where {max(0, len(data) - at)} are left")
        size += _snappy_block(data[at : at + length], out, size)
        at += length
    return size


def _snappy_block(block: memoryview, out: memoryview, at: int) -> int:
    import cramjam

    claimed = snappy_claim(block, len(out) - at, len(out))
    # The codec writes nothing into an empty view. This still finds a malformed block.
    room = out[at : at + claimed] if claimed else bytearray()
    return decompress_into(cramjam.snappy.decompress_raw_into, Codec.SNAPPY, block, room)


def _lz4(data: memoryview, out: memoryview) -> int:
    import cramjam

    frame_end, room = walk_blocks(data, check_header(data))
    try:
        return decompress_into(
            cramjam.lz4.decompress_into, Codec.LZ4, data[:frame_end], out[: min(room, len(out))]
        )
    except DecompressedTooLarge:
        if room <= len(out):
            raise InvalidRecord("a block of lz4 data holds more than its frame allows") from None
        raise
