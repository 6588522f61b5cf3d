"""One gzipped CSV file for each symbol and table, with all columns: times in ns, decimals exact.

As in every export, ``trades`` has the trades of the market alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from blumfeld_sink_spark.files.file_names import encode_symbol
from blumfeld_sink_spark.reading.exports import numbers
from blumfeld_sink_spark.reading.exports.selection import Exported, Selection
from blumfeld_sink_spark.reading.exports.tardis import CsvFile
from blumfeld_sink_spark.reading.market.trades import of_market
from blumfeld_sink_spark.tables import AGG_TRADES, BBO, BOOK_DELTAS, TRADES, tables

NAMES = (TRADES, AGG_TRADES, BOOK_DELTAS, BBO)


def export(selection: Selection, out: Path) -> Iterator[Exported]:
    """Writes ``<table>_<symbol>.csv.gz`` of trades, agg_trades, book_deltas and bbo, by the time of receipt.

    :raises ArchiveError: there are no rows
    """
    for symbol in selection.symbols_of(NAMES):
        for name in NAMES:
            if not selection.archive.select(name, symbol=symbol):
                continue
            columns = tables()[name].schema.names
            file = None
            for rows in selection.rows(name, symbol, columns):
                rows = of_market(rows) if name == TRADES else rows
                if not rows.num_rows:
                    continue
                if file is None:
                    file = CsvFile(out / f"{name}_{encode_symbol(symbol)}.csv.gz").__enter__()
                file.write(_plain(rows))
            if file is not None:
                file.__exit__()
                yield Exported(file.path, file.rows)


def _plain(rows: pa.Table) -> pa.Table:
    made = {
        name: numbers.texts(column) if pa.types.is_decimal(column.type) else column
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    }
    return pa.table(made)
