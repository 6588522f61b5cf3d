"""A table taken apart by the streams in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa


def split(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[tuple[str, ...], pa.Table]]:
    """For each combination of the values of these string columns, sorted: the combination and its rows (of the other
    columns), in the order that they had.
    """
    if not table.num_rows:
        return
    codes = np.zeros(table.num_rows, dtype=np.int64)
    words: list[list[str]] = []
    for name in names:
        encoded = table.column(name).combine_chunks().dictionary_encode()
        words.append(encoded.dictionary.to_pylist())
        codes = codes * len(words[-1]) + encoded.indices.to_numpy(zero_copy_only=False)
    found = np.unique(codes)
    table = table.drop_columns(list(names))
    if len(found) == 1:
        yield _words(int(found[0]), words), table
        return
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], found, side="right").tolist()
    starts = [0, *ends[:-1]]
    parts = {
        _words(code, words): order[start:end]
        for code, start, end in zip(found.tolist(), starts, ends, strict=True)
    }
    for key in sorted(parts):
        yield key, table.take(parts[key])


def _words(code: int, words: list[list[str]]) -> tuple[str, ...]:
    made: list[str] = []
    for column in reversed(words):
        code, at = divmod(code, len(column))
        made.append(column[at])
    return tuple(reversed(made))


def messages(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The first row of each message.

    :param columns: those that are wanted
    """
    table = table.select(columns)
    offsets = table.column("k_offset").to_numpy()
    starts = np.nonzero(np.concatenate([[True], offsets[1:] != offsets[:-1]]))[0]
    return table if len(starts) == len(offsets) else table.take(starts)
