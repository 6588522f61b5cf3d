"""Converts exact decimals to text, floats and fixed-point integers. Each distinct value is converted once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def texts(column: Any) -> pa.Array:
    """Returns the shortest text of each decimal: ``61800.3``, ``0.001``, ``5``. Null stays null."""
    encoded = _encoded(column)
    # Python formats them, because Arrow writes small numbers with an exponent.
    text = pa.array([f"{value:f}" for value in encoded.dictionary.to_pylist()], pa.string())
    if encoded.dictionary.type.scale > 0:
        text = pc.replace_substring_regex(text, r"\.?0+$", "")
    return text.take(encoded.indices)


def floats(column: Any) -> Any:
    """Returns the nearest float of each decimal as a numpy array; null is NaN.

    The cast goes through text, because Arrow's direct cast is off by one unit in the last place now and then.
    """
    encoded = _encoded(column)
    values = encoded.dictionary.cast(pa.string()).cast(pa.float64()).take(encoded.indices)
    return values.to_numpy(zero_copy_only=False)


def places(column: Any) -> int:
    """Returns the number of decimal places that the values need."""
    values = _encoded(column).dictionary
    for scale in range(values.type.scale):
        try:
            values.cast(pa.decimal128(values.type.precision, scale))
        except pa.ArrowInvalid:
            continue
        return scale
    return int(values.type.scale)


def fixed(column: Any, scale: int) -> pa.Array:
    """Returns each decimal times 10**scale as 16 bytes, little-endian, two's complement.

    :raises pa.ArrowInvalid: a value has more decimal places than ``scale``
    """
    encoded = _encoded(column)
    values = encoded.dictionary.cast(pa.decimal128(38, scale))
    raw = pa.Array.from_buffers(pa.binary(16), len(values), [None, values.buffers()[1]], offset=values.offset)
    return raw.take(encoded.indices)


def _encoded(column: Any) -> Any:
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return column.dictionary_encode()
