"""Rows by the folder that they belong in: the UTC date of their time and their symbol. No Python for a row."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.tables import Table

DAY_NS = 86_400_000_000_000


@attrs.frozen
class Part:
    """Rows of one date and symbol, in the order in which they came."""

    date: str
    symbol: str | None
    """``None`` where the table isn't partitioned by symbol."""
    rows: pa.Table


def split(table: Table, rows: pa.Table) -> Iterator[Part]:
    """The parts of ``rows``, by date and symbol; none for no rows. Within a part the order stays."""
    if not rows.num_rows:
        return
    bounds = pc.min_max(rows[table.time_column])
    first, last = bounds["min"].as_py() // DAY_NS, bounds["max"].as_py() // DAY_NS
    symbols = rows["symbol"] if table.by_symbol else None
    if first == last and (symbols is None or pc.all(pc.equal(symbols, symbols[0])).as_py()):
        yield Part(_date(first), None if symbols is None else symbols[0].as_py(), rows)
        return
    yield from _split_mixed(table, rows.combine_chunks())


def _split_mixed(table: Table, rows: pa.Table) -> Iterator[Part]:
    days = rows[table.time_column].to_numpy() // DAY_NS
    names, codes = _symbols(table, rows)
    keys = (days - days.min()) * len(names) + codes
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    in_place = bool((keys[1:] >= keys[:-1]).all())  # as at midnight: nothing to move
    taken = rows if in_place else rows.take(pa.array(order))
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
        row = order[start]
        yield Part(_date(int(days[row])), names[codes[row]], taken.slice(start, end - start))


def _symbols(table: Table, rows: pa.Table) -> tuple[list[str | None], np.ndarray]:
    """Symbols in the order of their text, and for each row the place of its own."""
    if not table.by_symbol:
        return [None], np.zeros(rows.num_rows, dtype=np.int64)
    encoded = rows["symbol"].combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    names = encoded.dictionary.to_pylist()
    ranks = np.argsort(np.array(names, dtype=object), kind="stable")
    place = np.empty(len(names), dtype=np.int64)
    place[ranks] = np.arange(len(names))
    return [names[rank] for rank in ranks], place[encoded.indices.to_numpy()]


def date_of(ns: int) -> str:
    """Returns the UTC date of a time, ``YYYY-MM-DD``."""
    return _date(ns // DAY_NS)


def _date(day: int) -> str:
    return str(np.datetime64(day, "D"))
