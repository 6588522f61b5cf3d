"""Compares the statistics that readers choose files and row groups by with the rows themselves.

A wrong statistic hides rows without an error: a reader passes over the file or row group that has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from blumfeld_sink_spark.files.file_names import parse, values_of
from blumfeld_sink_spark.files.parts import date_of
from blumfeld_sink_spark.records import FileEntry
from blumfeld_sink_spark.tables import tables

TEXT = 60
"""Characters of a value that a line shows."""


def misnamed(entry: FileEntry) -> Iterator[str]:
    """Yields a line for each part of a file's path that its record doesn't repeat. Commands choose files by the record,
    other readers by the path.
    """
    values, name = values_of(entry.path), parse(entry.path)
    said: dict[str, tuple[object, object]] = {
        "table": (entry.table, entry.path.partition("/")[0]),
        "date": (entry.date, values.get("date", "")),
        "symbol": (entry.symbol, values.get("symbol", "")),
    }
    if name is not None:
        said |= {"topic": (entry.topic, name.topic), "partition": (entry.partition, name.partition)}
    for part, (recorded, there) in said.items():
        if recorded != there:
            yield f"{entry.path}: its record says {part} {recorded}, its path says {there}"


def problems(entry: FileEntry, file: pq.ParquetFile) -> Iterator[str]:
    """Yields a line for each statistic that the file's rows contradict:

    * the least and greatest time in the record
    * the date and symbol that the file lies under
    * the least and greatest value and the number of nulls of a column, which the footer has for each row group
    """
    table = tables()[entry.path.partition("/")[0]]
    names = [name for name in (table.time_column, "symbol") if name in file.schema_arrow.names]
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        stated = _statistics(group)
        rows = file.read_row_group(number, columns=sorted({*stated, *names}))
        for name in rows.column_names:
            low, high = _bounds(rows[name])
            if name in stated:
                yield from _footer(entry, number, name, stated[name], rows[name], (low, high))
            if low is not None:
                least[name] = min(least.get(name, low), low)
                greatest[name] = max(greatest.get(name, high), high)
    if table.time_column in least:
        yield from _times(entry, table.time_column, least[table.time_column], greatest[table.time_column])
    for symbol in sorted({least.get("symbol", entry.symbol), greatest.get("symbol", entry.symbol)}):
        if table.by_symbol and symbol != entry.symbol:
            yield f"{entry.path}: has rows of the symbol {symbol} and lies under {entry.symbol}"


def _times(entry: FileEntry, column: str, least: int, greatest: int) -> Iterator[str]:
    if (entry.ts_min, entry.ts_max) != (least, greatest):
        yield (
            f"{entry.path}: its record says {column} from {entry.ts_min} to {entry.ts_max}, its rows have {least} to "
            f"{greatest}"
        )
    for date in sorted({date_of(least), date_of(greatest)} - {entry.date}):
        yield f"{entry.path}: has rows of {date} and lies under {entry.date}"


def _statistics(group: pq.RowGroupMetaData) -> dict[str, pq.Statistics]:
    """Returns the statistics of a row group's columns. Columns within lists have none that a reader prunes by."""
    columns = [group.column(at) for at in range(group.num_columns)]
    return {
        column.path_in_schema: column.statistics
        for column in columns
        if column.is_stats_set and "." not in column.path_in_schema
    }


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    bounds = pc.min_max(column)
    return bounds["min"].as_py(), bounds["max"].as_py()


def _footer(
    entry: FileEntry,
    number: int,
    name: str,
    stated: pq.Statistics,
    column: pa.ChunkedArray,
    bounds: tuple[Any, Any],
) -> Iterator[str]:
    where = f"{entry.path}: row group {number} says"
    if stated.has_min_max and (stated.min, stated.max) != bounds:
        low, high, least, greatest = (repr(bound)[:TEXT] for bound in (stated.min, stated.max, *bounds))
        yield f"{where} {name} from {low} to {high}, its rows have {least} to {greatest}"
    if stated.has_null_count and stated.null_count != column.null_count:
        yield f"{where} {stated.null_count:,} nulls in {name}, its rows have {column.null_count:,}"
