"""Fingerprints that tell whether two sets of rows are the same in any order.

Each is a sum that ties every value to its row's lineage."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_BYTES_AT_ONCE = 1 << 20
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1


class Fingerprint:
    """Rows and, for each column, how many values there are and a sum over all of them of value times a number made of
    the row's partition and offset (mod 2**64). Two sets with equal fingerprints have the same values in the same rows
    of messages, but for chance; no clock, no order. It guards against mistakes, not against an adversary.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.sums: dict[str, tuple[int, int]] = {}

    def add(self, rows: pa.Table) -> None:
        """Takes more rows; they have the lineage columns."""
        rows = rows.combine_chunks()
        self.rows += rows.num_rows
        if not rows.num_rows:
            return
        keys = _mixed(_plain(rows["k_offset"]).to_numpy().astype(np.uint64)) ^ _mixed(
            _plain(rows["k_partition"]).to_numpy().astype(np.uint64) + np.uint64(1)
        )
        for name in rows.schema.names:
            column = _plain(rows[name])
            values, total = self.sums.get(name, (0, 0))
            values += len(column) - column.null_count
            self.sums[name] = values, (total + _weighed(column, keys)) & _MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fingerprint) and (self.rows, self.sums) == (other.rows, other.sums)

    __hash__ = None  # type: ignore[assignment]

    def difference(self, other: Fingerprint) -> str:
        """Returns the differences of two fingerprints, for people."""
        if self.rows != other.rows:
            return f"{self.rows} rows became {other.rows}"
        changed = [
            name for name in sorted({*self.sums, *other.sums}) if self.sums.get(name) != other.sums.get(name)
        ]
        return f"values changed in {', '.join(changed) or 'nothing'}"


def _plain(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def _mixed(numbers: Any) -> Any:
    """Each number as another odd one, far from its neighbours'."""
    mixed = numbers * _ODD
    return (mixed ^ (mixed >> np.uint64(29))) * _ODD | np.uint64(1)


def _weighed(array: pa.Array, keys: Any) -> int:
    """The sum of values times keys; nulls count as nothing."""
    if array.null_count:
        kept = array.is_valid()
        array, keys = array.filter(kept), keys[kept.to_numpy(zero_copy_only=False)]
    if not len(array):
        return 0
    kind = array.type
    if pa.types.is_list(kind):
        return _weighed_lists(array, keys)
    if pa.types.is_struct(kind):
        parts = (
            _weighed(array.field(place), _mixed(keys + np.uint64(place))) for place in range(kind.num_fields)
        )
        return sum(parts) & _MASK
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _weighed_texts(array, keys)
    if pa.types.is_decimal128(kind):
        halves = np.frombuffer(array.buffers()[1], dtype=np.uint64).reshape(-1, 2)
        halves = halves[array.offset : array.offset + len(array)]
        return int((halves[:, 0] * keys + halves[:, 1] * _mixed(keys)).sum(dtype=np.uint64))
    if pa.types.is_float64(kind):
        return int((array.to_numpy().view(np.uint64) * keys).sum(dtype=np.uint64))
    return int((array.cast(pa.int64()).to_numpy().view(np.uint64) * keys).sum(dtype=np.uint64))


def _weighed_lists(array: pa.Array, keys: Any) -> int:
    lengths = pc.list_value_length(array).to_numpy().astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    place = np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
    inner = _mixed(np.repeat(keys, lengths) + place.astype(np.uint64))
    return (
        int((lengths.astype(np.uint64) * keys).sum(dtype=np.uint64)) + _weighed(array.flatten(), inner)
    ) & _MASK


def _weighed_texts(array: pa.Array, keys: Any) -> int:
    """Weighs the texts in slices, so that the temporary arrays stay small."""
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    offsets = offsets.astype(np.int64)
    content = np.frombuffer(array.buffers()[2] or b"", dtype=np.uint8)
    total = 0
    first = 0
    while first < len(array):
        last = int(np.searchsorted(offsets, offsets[first] + _BYTES_AT_ONCE, side="right")) - 1
        last = min(max(last, first + 1), len(array))
        part = content[offsets[first] : offsets[last]]
        total += _weighed_parts(part, offsets[first : last + 1] - offsets[first], keys[first:last])
        first = last
    return total & _MASK


def _weighed_parts(content: Any, offsets: Any, keys: Any) -> int:
    """A text is the polynomial of its bytes, cut out of the running sum over all texts, and its length."""
    up, down = _powers(max(len(content), _BYTES_AT_ONCE))
    running = np.zeros(len(content) + 1, dtype=np.uint64)
    np.cumsum(content * up[: len(content)], dtype=np.uint64, out=running[1:])
    digests = (running[offsets[1:]] - running[offsets[:-1]]) * down[offsets[:-1]]
    lengths = np.diff(offsets).astype(np.uint64)
    return int(((_mixed(digests) ^ _mixed(lengths)) * keys).sum(dtype=np.uint64))


@lru_cache(maxsize=2)
def _powers(count: int) -> tuple[Any, Any]:
    """Powers of an odd number, and of its inverse mod 2**64."""
    up = np.full(count + 1, _ODD, dtype=np.uint64)
    down = np.full(count + 1, np.uint64(pow(int(_ODD), -1, 1 << 64)), dtype=np.uint64)
    up[0] = down[0] = 1
    return np.cumprod(up, dtype=np.uint64), np.cumprod(down, dtype=np.uint64)
