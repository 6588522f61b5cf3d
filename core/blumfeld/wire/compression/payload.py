"""The five codecs of a record batch, with a bound on the decompressed size.

Framings are Kafka's: RFC 1952 gzip, the xerial stream or one raw block for snappy, LZ4 frames of
independent blocks (:mod:`blumfeld.wire.compression.lz4_frame`), plain zstd frames. cramjam is imported at
first use, because an idle broker never needs it.
"""

from __future__ import annotations

import zlib

from blumfeld.wire.compression.codec import Codec, Data, DecompressedTooLarge, decompress_into
from blumfeld.wire.errors import InvalidRecord

__all__ = ["compress", "decompress"]

GZIP_WBITS = 31
# Java's Snappy output stream writes blocks of 32 KiB; a reader must accept any size.
SNAPPY_BLOCK_BYTES = 32 * 1024
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
# A snappy copy element makes at most 64 bytes out of 3. A larger claim is false and must not be allocated.
_SNAPPY_RATIO_MAX = 64
_FIRST_GUESS_BYTES = 64 * 1024


def compress(codec: Codec, data: Data, level: int | None = None) -> bytes:
    """Compress ``data`` in the framing that Kafka's clients read.

    :param level: gzip 1..9 or -1, lz4 1..17, zstd -131072..22; ``None`` is Kafka's default. Other codecs
        ignore it
    """
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, GZIP_WBITS)
        return packer.compress(data) + packer.flush()
    if codec is Codec.SNAPPY:
        return _compress_snappy(memoryview(data))
    if codec is Codec.LZ4:
        from blumfeld.wire.compression.lz4_frame import compress_lz4

        return compress_lz4(memoryview(data), level)
    import cramjam

    return bytes(cramjam.zstd.compress(data, 3 if level is None else level))


def decompress(codec: Codec, data: Data, size_max: int, *, lz4_wrong_checksum: bool = False) -> bytes:
    """Returns the decompressed data. It allocates at most ``size_max`` plus a fixed overhead.

    :param size_max: limit of the decompressed size, in bytes
    :param lz4_wrong_checksum: accept the LZ4 header checksum of message format 0, which old clients
        computed over the wrong bytes
    :raises DecompressedTooLarge: the data exceed ``size_max``
    :raises InvalidRecord: the data are not in the codec's format, or are cut off
    """
    view = memoryview(data)
    if codec is Codec.NONE:
        if len(view) > size_max:
            raise DecompressedTooLarge(codec, size_max)
        return bytes(view)
    if codec is Codec.GZIP:
        return _decompress_gzip(view, size_max)
    if codec is Codec.SNAPPY:
        return _decompress_snappy(view, size_max)
    if codec is Codec.LZ4:
        from blumfeld.wire.compression.lz4_frame import decompress_lz4

        return decompress_lz4(view, size_max, wrong_checksum=lz4_wrong_checksum)
    return _decompress_zstd(view, size_max)


def _decompress_gzip(view: memoryview, size_max: int) -> bytes:
    parts: list[bytes] = []
    left = size_max
    try:
        while True:
            unpacker = zlib.decompressobj(GZIP_WBITS)
            part = unpacker.decompress(view, left + 1)
            if len(part) > left:
                raise DecompressedTooLarge(Codec.GZIP, size_max)
            if not unpacker.eof:
                raise InvalidRecord("gzip data are cut off")
            parts.append(part)
            left -= len(part)
            view = memoryview(unpacker.unused_data)
            # Several members may follow each other. Anything else after a member is padding, as Java reads
            # it.
            if bytes(view[:2]) != b"\x1f\x8b":
                return b"".join(parts)
    except zlib.error as error:
        raise InvalidRecord(f"bad gzip data: {error}") from None


def _decompress_zstd(view: memoryview, size_max: int) -> bytes:
    import cramjam

    # A frame need not state its size, and may state a wrong one: grow the buffer until it fits or the limit
    # is reached.
    room = min(size_max, max(_FIRST_GUESS_BYTES, 4 * len(view)))
    while True:
        out = bytearray(room)
        try:
            size = decompress_into(cramjam.zstd.decompress_into, Codec.ZSTD, view, out)
            return bytes(memoryview(out)[:size])
        except DecompressedTooLarge:
            if room == size_max:
                raise
            room = min(size_max, room * 4)


def _compress_snappy(view: memoryview) -> bytes:
    import cramjam

    parts = [XERIAL_HEADER]
    for start in range(0, len(view), SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + SNAPPY_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _decompress_snappy(view: memoryview, size_max: int) -> bytes:
    if bytes(view[:8]) != XERIAL_MAGIC:
        return _snappy_block(view, size_max, size_max)
    parts: list[bytes] = []
    at, end, left = 0, len(view), size_max
    while at < end:
        if bytes(view[at : at + 8]) == XERIAL_MAGIC:  # several streams may follow each other
            at += len(XERIAL_HEADER)
            if at > end:
                raise InvalidRecord("snappy header is cut off")
            continue
        length = int.from_bytes(view[at : at + 4], "big")
        at += 4
        if at + length > end:
            raise InvalidRecord(f"a snappy block of {length} bytes, where {max(0, end - at)} are left")
        parts.append(_snappy_block(view[at : at + length], left, size_max))
        left -= len(parts[-1])
        at += length
    return b"".join(parts)


def _snappy_block(view: memoryview, left: int, size_max: int) -> bytes:
    import cramjam

    out = bytearray(snappy_claim(view, left, size_max))
    size = decompress_into(cramjam.snappy.decompress_raw_into, Codec.SNAPPY, view, out)
    return bytes(memoryview(out)[:size])


def snappy_claim(view: memoryview, left: int, size_max: int) -> int:
    """Returns the size that a raw snappy block claims for its content.

    :raises DecompressedTooLarge: it exceeds ``left`` of ``size_max``
    :raises InvalidRecord: no block of this size can hold that much
    """
    import cramjam

    try:
        claimed: int = cramjam.snappy.decompress_raw_len(view)
    except cramjam.DecompressionError as error:
        raise InvalidRecord(f"bad snappy data: {error}") from None
    if claimed > len(view) * _SNAPPY_RATIO_MAX:
        raise InvalidRecord(f"a snappy block of {len(view)} bytes claims to hold {claimed}")
    if claimed > left:
        raise DecompressedTooLarge(Codec.SNAPPY, size_max)
    return claimed
