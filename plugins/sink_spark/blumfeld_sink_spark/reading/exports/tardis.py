"""CSV files in the form of tardis.dev's downloads: one for each exchange, kind, UTC day of receipt and symbol.

Columns, names and units are those of its documented data sets ``trades``, ``incremental_book_L2`` and ``quotes``.
Times are µs, cut from the archive's ns. A book begins with a snapshot, see ``books``. ``quotes`` holds the exchange's
own best bid and ask. (tardis computes its ``quotes`` from the book, and calls the exchange's own ``book_ticker``; the
columns are the same.)
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from blumfeld_sink_spark.files.file_names import encode_symbol
from blumfeld_sink_spark.reading.exports import books, numbers
from blumfeld_sink_spark.reading.exports.selection import Exported, Selection
from blumfeld_sink_spark.reading.market.trades import of_market
from blumfeld_sink_spark.tables import BBO, BOOK_DELTAS, TRADES

EXCHANGES = {"binance-spot": "binance", "binance-usdm": "binance-futures", "okx": "okex"}
"""tardis' exchange ids by our venue, where the two differ."""
DAY_US = 86_400 * 10**6
GZIP_LEVEL = 6

_WHERE = ("venue", "symbol", "ts_event", "ts_recv")


@attrs.frozen
class Kind:
    """One data set."""

    name: str
    table: str
    columns: tuple[str, ...]
    """Our columns that it needs beside venue, symbol and times."""
    made: Callable[[pa.Table], dict[str, Any]]
    """Returns tardis' columns."""


def _place(rows: pa.Table) -> dict[str, Any]:
    """Returns the four columns that all data sets have."""
    venues = rows["venue"].combine_chunks().dictionary_encode()
    ids = pa.array([EXCHANGES.get(venue, venue) for venue in venues.dictionary.to_pylist()], pa.string())
    return {
        "exchange": ids.take(venues.indices),
        "symbol": rows["symbol"],
        "timestamp": pc.divide(rows["ts_event"], 1000),
        "local_timestamp": pc.divide(rows["ts_recv"], 1000),
    }


def _trades(rows: pa.Table) -> dict[str, Any]:
    rows = of_market(rows)
    return {
        **_place(rows),
        "id": rows["trade_id"].cast(pa.string()),
        "side": _named(rows["side"], "buy", "sell", "unknown"),
        "price": numbers.texts(rows["price"]),
        "amount": numbers.texts(rows["size"]),
    }


def _book(rows: pa.Table) -> dict[str, Any]:
    return {
        **_place(rows),
        "is_snapshot": pc.if_else(rows["is_snapshot"], "true", "false"),
        "side": _named(rows["side"], "bid", "ask", "unknown"),
        "price": numbers.texts(rows["price"]),
        "amount": numbers.texts(rows["size"]),
    }


def _quotes(rows: pa.Table) -> dict[str, Any]:
    return {
        **_place(rows),
        "ask_amount": numbers.texts(rows["ask_size"]),
        "ask_price": numbers.texts(rows["ask"]),
        "bid_price": numbers.texts(rows["bid"]),
        "bid_amount": numbers.texts(rows["bid_size"]),
    }


KINDS = (
    Kind("trades", TRADES, ("trade_id", "side", "price", "size", "flags"), _trades),
    Kind("incremental_book_L2", BOOK_DELTAS, ("is_snapshot", "side", "price", "size"), _book),
    Kind("quotes", BBO, ("bid", "bid_size", "ask", "ask_size"), _quotes),
)


def export(selection: Selection, out: Path) -> Iterator[Exported]:
    """Writes files ``<exchange>_<kind>_<date>_<symbol>.csv.gz``, and yields each file once it is written.

    :raises ArchiveError: there are no rows
    """
    for symbol in selection.symbols_of([kind.table for kind in KINDS]):
        for kind in KINDS:
            yield from _export(selection, kind, symbol, out)


def _export(selection: Selection, kind: Kind, symbol: str, out: Path) -> Iterator[Exported]:
    files: dict[tuple[str, int], CsvFile] = {}
    with ExitStack() as stack:
        for rows in _rows(selection, kind, symbol):
            table = pa.table(kind.made(rows))
            day = pc.divide(table["local_timestamp"], DAY_US)
            places = (
                pa.table({"exchange": table["exchange"], "day": day})
                .group_by(["exchange", "day"])
                .aggregate([])
            )
            for place in sorted((row["exchange"], row["day"]) for row in places.to_pylist()):
                mine = pc.and_(pc.equal(table["exchange"], place[0]), pc.equal(day, place[1]))
                if place not in files:
                    files[place] = stack.enter_context(CsvFile(out / _name(kind, *place, symbol)))
                files[place].write(table.filter(mine))
    for place in sorted(files):
        yield Exported(files[place].path, files[place].rows)


def _rows(selection: Selection, kind: Kind, symbol: str) -> Iterator[pa.Table]:
    if kind.table != BOOK_DELTAS:
        yield from selection.rows(kind.table, symbol, [*_WHERE, *kind.columns])
        return
    for venue in selection.venues([BOOK_DELTAS], symbol):
        for part in books.parts(selection, symbol, venue):
            at = part.rows.schema.get_field_index("is_snapshot")
            flags = pa.repeat(pa.scalar(part.is_snapshot), part.rows.num_rows)
            yield part.rows.set_column(at, "is_snapshot", flags)


def _named(side: Any, up: str, down: str, neither: str) -> Any:
    return pc.if_else(pc.equal(side, 1), up, pc.if_else(pc.equal(side, -1), down, neither))


def _name(kind: Kind, exchange: str, day: int, symbol: str) -> str:
    date = datetime.fromtimestamp(day * 86_400, UTC).date().isoformat()
    return f"{exchange}_{kind.name}_{date}_{encode_symbol(symbol)}.csv.gz"


class CsvFile:
    """A gzipped CSV file. The gzip header has no name and no time, so the same rows give the same bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self._stack = ExitStack()
        self._writer: Any = None
        self._gzip: Any = None

    def __enter__(self) -> CsvFile:
        raw = self._stack.enter_context(self.path.open("wb"))
        self._gzip = self._stack.enter_context(
            gzip.GzipFile(filename="", mode="wb", compresslevel=GZIP_LEVEL, fileobj=raw, mtime=0)
        )
        return self

    def write(self, rows: pa.Table) -> None:
        """Appends rows. The first call also writes the header line."""
        if self._writer is None:
            options = pa.csv.WriteOptions(quoting_style="none", include_header=False)  # Arrow quotes headers
            self._gzip.write(",".join(rows.column_names).encode() + b"\n")
            self._writer = self._stack.enter_context(
                pa.csv.CSVWriter(self._gzip, rows.schema, write_options=options)
            )
        self._writer.write_table(rows)
        self.rows += rows.num_rows

    def __exit__(self, *error: object) -> None:
        self._stack.close()
