"""Arrow arrays of exact numbers, made from numpy's without a loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

INT64_DIGITS, UINT64_DIGITS = 19, 20

Mask = npt.NDArray[np.bool_]


def decimals(values: npt.NDArray[Any], scale: int, nulls: Mask | None = None) -> pa.Array:
    """Integers that count ``10**-scale``, as exact decimals; ``nulls`` are null."""
    signed = values.dtype.kind == "i"
    words = np.empty((len(values), 2), np.int64)
    words[:, 0] = values.astype(np.int64, copy=False) if signed else values.astype(np.uint64).view(np.int64)
    words[:, 1] = words[:, 0] >> 63 if signed else 0
    kind = pa.decimal128(INT64_DIGITS if signed else UINT64_DIGITS, scale)
    validity = (
        None if nulls is None or not nulls.any() else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    )
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(words)])


def chosen(names: list[str], index: npt.NDArray[Any]) -> pa.Array:
    """The names at these places."""
    return pa.array(names, pa.string()).take(pa.array(index.astype(np.int32, copy=False)))


def coded(values: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """(distinct values in the order in which they come, place of each value among them)."""
    encoded = pa.array(values).dictionary_encode()
    return encoded.dictionary.to_numpy(), encoded.indices.to_numpy()
