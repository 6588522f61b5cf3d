"""The selection of the rows for a picture of one symbol."""

from __future__ import annotations

from collections import Counter

import attrs
import pyarrow.compute as pc

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.files.file_names import encode_symbol
from blumfeld_sink_spark.files.parquet import opened
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.reading.plots import style


@attrs.frozen
class Window:
    """One symbol of one venue and topic, and a time."""

    venue: str
    symbol: str
    topic: str
    start_ns: int
    end_ns: int
    """Exclusive."""

    @property
    def span(self) -> str:
        """The time as text, for people."""
        return style.span_of([self.start_ns, self.end_ns - 1])

    @property
    def file_name(self) -> str:
        """The symbol as part of a file's name."""
        return encode_symbol(self.symbol)


def window_of(
    archive: Committed, table: str, symbol: str, start_ns: int | None, end_ns: int | None
) -> Window:
    """Returns the time that a table's files of a symbol cover, cut to the given bounds.

    If several topics have the symbol, the one with the most rows is taken; of several venues the most frequent.

    :raises ArchiveError: there are no rows of the symbol in that time
    """
    entries = archive.select(table, symbol=symbol, start_ns=start_ns, end_ns=end_ns)
    if not entries:
        known = archive.symbols(table)
        if symbol in known:
            raise ArchiveError(f"{table} has no rows of {symbol} in that time")
        raise ArchiveError(f"{table} has no rows of {symbol}; it has {', '.join(known[:20]) or 'nothing'}")
    rows: Counter[str] = Counter()
    for entry in entries:
        rows[entry.topic] += entry.rows
    topic = max(sorted(rows), key=rows.__getitem__)
    entries = [entry for entry in entries if entry.topic == topic]
    first, last = min(entry.ts_min for entry in entries), max(entry.ts_max for entry in entries)
    with archive.open_file(entries[0]) as source:
        venues = opened(source).read(columns=["venue"])["venue"]
    venue = max(pc.value_counts(venues).to_pylist(), key=lambda venue_count: venue_count["counts"])["values"]
    return Window(
        venue,
        symbol,
        topic,
        first if start_ns is None else max(first, start_ns),
        last + 1 if end_ns is None else min(last + 1, end_ns),
    )
