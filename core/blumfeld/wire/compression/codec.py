"""The codec numbers of a record batch, and the bounded call into cramjam that all its readers share.

:mod:`~blumfeld.wire.compression.payload` and :mod:`~blumfeld.wire.compression.lz4_frame` build on this
    module.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from blumfeld.wire.errors import BrokerError, ErrorCode, InvalidRecord

if TYPE_CHECKING:
    from collections.abc import Callable

Data = bytes | bytearray | memoryview


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes; the names are the values of ``compression.type``."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


EXPANSION_MAX = {Codec.NONE: 1, Codec.GZIP: 1032, Codec.SNAPPY: 22, Codec.LZ4: 255, Codec.ZSTD: 32_768}
"""Bytes that one byte of data can become at most.

gzip copies 258 bytes for 2 bits, snappy 64 for 3 bytes. An LZ4 sequence grows by 255 for each byte of its length. A
zstd block of 4 bytes repeats one byte 128 KiB times.
"""


class DecompressedTooLarge(BrokerError):  # noqa: N818 - the noun says whose fault it is
    """The data exceed the caller's limit. MESSAGE_TOO_LARGE on the wire: the producer then splits its batch."""

    def __init__(self, codec: Codec, size_max: int) -> None:
        name = codec.name.lower()
        super().__init__(
            ErrorCode.MESSAGE_TOO_LARGE, f"{name} data holds more than the {size_max} bytes that are allowed"
        )
        self.size_max = size_max


_FULL = "write whole buffer"  # cramjam's message when the output does not fit


def decompress_into(
    unpack: Callable[[Data, Any], int], codec: Codec, data: Data, out: bytearray | memoryview
) -> int:
    """Decompress into ``out`` with one of cramjam's functions. The size of ``out`` is the limit.

    :return: number of bytes filled in ``out``
    :raises DecompressedTooLarge: ``out`` is too small
    :raises InvalidRecord: any other fault
    """
    import cramjam

    try:
        return unpack(data, out)
    except cramjam.DecompressionError as error:
        if _FULL in str(error):
            raise DecompressedTooLarge(codec, len(out)) from None
        raise InvalidRecord(f"bad {codec.name.lower()} data: {error}") from None
