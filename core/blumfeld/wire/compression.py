"""The five codecs of a record batch, with a bound on what comes out.

Framings are those of Kafka: RFC 1952 gzip, the xerial stream or one raw block for snappy, LZ4 frames
of independent blocks, plain zstd frames. cramjam is imported at first use: an idle broker never needs it.
"""

from __future__ import annotations

from enum import IntEnum


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes; the names are the values of ``compression.type``."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
