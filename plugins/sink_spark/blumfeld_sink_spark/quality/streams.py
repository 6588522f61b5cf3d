"""A table taken apart by the streams in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Columns = Mapping[str, NDArray[Any]]


def split(
    table: pa.Table, names: Sequence[str], columns: Columns
) -> Iterator[tuple[tuple[str, ...], Columns]]:
    """Yields each combination of values of these string columns, sorted, with its rows of ``columns`` in their order.

    ``columns`` have a value for each row of the table.

    Whole columns are sorted once, so that many streams cost little more than one.
    """
    if not table.num_rows:
        return
    if all(is_constant(table.column(name)) for name in names):
        yield tuple(table.column(name)[0].as_py() for name in names), columns
        return
    codes = np.zeros(table.num_rows, dtype=np.int64)
    words: list[list[str]] = []
    for name in names:
        encoded = table.column(name).combine_chunks().dictionary_encode()
        words.append(encoded.dictionary.to_pylist())
        codes = codes * len(words[-1]) + encoded.indices.to_numpy(zero_copy_only=False)
    distinct = np.unique(codes)
    if len(distinct) == 1:
        yield _words(int(distinct[0]), words), columns
        return
    order = np.argsort(codes, kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    ends = np.searchsorted(codes, distinct, side="right", sorter=order).tolist()
    spans = {
        _words(code, words): (start, end)
        for code, start, end in zip(distinct.tolist(), [0, *ends[:-1]], ends, strict=True)
    }
    for key in sorted(spans):
        start, end = spans[key]
        yield key, {name: column[start:end] for name, column in columns.items()}


def is_constant(texts: pa.ChunkedArray) -> bool:
    """Returns True where all texts are the same. There must be at least one."""
    if texts.null_count:
        return False
    first = texts[0]
    return texts[-1] == first and all(pc.all(pc.equal(chunk, first)).as_py() for chunk in texts.chunks)


def _words(code: int, words: list[list[str]]) -> tuple[str, ...]:
    made: list[str] = []
    for column in reversed(words):
        code, at = divmod(code, len(column))
        made.append(column[at])
    return tuple(reversed(made))


def messages(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Returns the first row of each message.

    :param columns: those that are wanted
    """
    table = table.select(columns)
    offsets = table.column("k_offset").to_numpy()
    starts = np.nonzero(np.concatenate([[True], offsets[1:] != offsets[:-1]]))[0]
    return table if len(starts) == len(offsets) else table.take(starts)
