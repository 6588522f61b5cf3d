"""DuckDB views of an archive's tables, as a script that any duckdb can run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.files.file_names import is_old_place
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.tables import DERIVED, tables

_COMMITTED = """\
CREATE OR REPLACE TEMP TABLE committed AS
WITH records AS (
  SELECT files, removed FROM read_json(
    getvariable('archive') || '/_commits/*/[0-9]*.json',
    columns = {files: 'STRUCT(path VARCHAR, "table" VARCHAR)[]', removed: 'VARCHAR[]'})
), named AS (
  SELECT DISTINCT file.path, file."table" FROM (SELECT unnest(files) AS file FROM records)
)
SELECT * FROM named WHERE path NOT IN (SELECT unnest(removed) FROM records);"""

_MACROS = """\
CREATE OR REPLACE MACRO ts(ns) AS make_timestamp_ns(ns);                -- ts(ts_event): TIMESTAMP_NS, UTC
CREATE OR REPLACE MACRO ns(t) AS epoch_ns(t::TIMESTAMP_NS);             -- WHERE ts_event >= ns('2024-08-09 00:01')
CREATE OR REPLACE MACRO text(bytes) AS decode(bytes);                    -- SELECT text(value) FROM raw
CREATE OR REPLACE MACRO mid(bid, ask) AS (bid::DOUBLE + ask::DOUBLE) / 2;
CREATE OR REPLACE MACRO spread_bps(bid, ask) AS 1e4 * (ask - bid)::DOUBLE / mid(bid, ask);
CREATE OR REPLACE MACRO notional(price, size) AS CASE                   -- sum(notional(price, size)) is exact
  WHEN price = TRY_CAST(price AS DECIMAL(19, 9)) AND size = TRY_CAST(size AS DECIMAL(19, 9))
    THEN price::DECIMAL(19, 9) * size::DECIMAL(19, 9)
  WHEN price = TRY_CAST(price AS DECIMAL(19, 12)) AND size = TRY_CAST(size AS DECIMAL(19, 6))
    THEN price::DECIMAL(19, 12) * size::DECIMAL(19, 6)
  WHEN price = TRY_CAST(price AS DECIMAL(19, 15)) AND size = TRY_CAST(size AS DECIMAL(19, 3))
    THEN price::DECIMAL(19, 15) * size::DECIMAL(19, 3)
  WHEN price = TRY_CAST(price AS DECIMAL(19, 6)) AND size = TRY_CAST(size AS DECIMAL(19, 12))
    THEN price::DECIMAL(19, 6) * size::DECIMAL(19, 12)
  WHEN price IS NOT NULL AND size IS NOT NULL
    THEN error('notional: ' || price || ' * ' || size || ' needs more than DECIMAL(38, 18); take DOUBLE for both')
  END;
CREATE OR REPLACE MACRO bars_of(sym, width) AS TABLE                    -- FROM bars_of('BTCUSDT', INTERVAL 1 MINUTE)
  WITH market AS (                                                      -- as `archive bars`: without what is no trade,
    SELECT *, row_number() OVER () AS nth FROM trades                   -- in the log's order within a time,
    WHERE symbol = sym AND coalesce(flags, 0) & 1 = 0
  ), once AS (                                                          -- and each trade once
    SELECT * FROM market QUALIFY trade_id IS NULL OR
      row_number() OVER (PARTITION BY venue, trade_id, ts_event, side, price, size ORDER BY k_offset, nth) = 1
  )
  SELECT time_bucket(width, ts(ts_event)::TIMESTAMP) AS bar, first(price ORDER BY ts_event, k_offset, nth) AS open,
         max(price) AS high, min(price) AS low, last(price ORDER BY ts_event, k_offset, nth) AS close,
         sum(size) AS volume, sum(price::DOUBLE * size::DOUBLE) / sum(size::DOUBLE) AS vwap, count(*) AS trades
  FROM once GROUP BY bar ORDER BY bar;"""


def script(archive: Committed) -> str:
    """Returns SQL that makes a view of every table. Run it again to see later commits.

    The views read only files that commit records name, so they never show a part of a batch.

    :raises ArchiveError: the archive isn't on this machine
    """
    return "\n".join(_statements(archive)) + "\n"


def _statements(archive: Committed) -> Iterator[str]:
    root = archive.local_root()
    yield f"SET VARIABLE archive = {_quoted(str(root))};"
    yield "SET TimeZone = 'UTC';"
    yield _COMMITTED
    for name in sorted(tables()):
        if not archive.files(name):
            yield _empty(name)
            continue
        yield _list_of(name)
        yield f"CREATE OR REPLACE VIEW {name} AS {_select(archive, name)};"
    yield _MACROS


def _select(archive: Committed, name: str) -> str:
    """Returns a query for all rows of a table, with ``date`` and with columns that files of older archives lack.

    Older archives have folders ``symbol=…``. DuckDB doesn't take them and bare folders for one hive layout. The date is
    then cut out of the files' names, at the price that a condition on it doesn't leave files out.
    """
    files = f"read_parquet(getvariable('files_{name}'), union_by_name = true"
    if any(is_old_place(entry.path) for entry in archive.files(name)):
        date = "regexp_extract(filename, '/date=([0-9-]+)/', 1)::DATE AS date"
        select = (
            f"SELECT * EXCLUDE (filename), {date} FROM {files}, hive_partitioning = false, filename = true)"
        )
        return f"{_no_rows(archive.schema(name))} UNION ALL BY NAME {select}"
    return f"SELECT * FROM {files}, hive_partitioning = true, hive_types = {{date: DATE}})"


def _list_of(name: str) -> str:
    if name in DERIVED:
        file_list = f"(SELECT list(file) FROM glob(getvariable('archive') || '/{name}/*/*/*.parquet'))"
    else:
        path = "getvariable('archive') || '/' || path"
        file_list = f"(SELECT list({path} ORDER BY path) FROM committed WHERE \"table\" = '{name}')"
    return f"SET VARIABLE files_{name} = {file_list};"


def _empty(name: str) -> str:
    """Returns a view for a table without files: no rows, the right columns."""
    return f"CREATE OR REPLACE VIEW {name} AS {_no_rows(tables()[name].schema)};"


def _no_rows(schema: Any) -> str:
    columns = ", ".join(f"NULL::{_duckdb_type(field.type)} AS {field.name}" for field in schema)
    return f"SELECT {columns}, NULL::DATE AS date WHERE false"


def _duckdb_type(arrow: Any) -> str:
    text = str(arrow)
    if text.startswith("decimal128"):
        return text.replace("decimal128", "DECIMAL")
    if text.startswith("list"):
        return 'STRUCT("key" VARCHAR, "value" BLOB)[]'
    return {
        "int8": "TINYINT",
        "int32": "INTEGER",
        "int64": "BIGINT",
        "double": "DOUBLE",
        "string": "VARCHAR",
        "binary": "BLOB",
        "bool": "BOOLEAN",
    }[text]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def connect(archive: Committed) -> Any:
    """Returns a DuckDB connection in memory that has the views.

    For an object store they are views of Arrow datasets: DuckDB's own way needs an extension that it would download.
    """
    import duckdb

    connection = duckdb.connect()
    if archive.is_local:
        connection.execute(script(archive))
        return connection
    connection.execute("SET TimeZone = 'UTC';")
    for name in sorted(tables()):
        if archive.files(name):
            connection.register(name, archive.dataset(name))
        else:
            connection.execute(_empty(name))
    connection.execute(_MACROS)
    return connection


class Rows:
    """The rows of an answer as text, with exact decimals and nanoseconds; NULL is None.

    Rows are fetched in chunks, so memory is bounded where DuckDB's plan allows.

    :raises ArchiveError: DuckDB refuses the query
    """

    def __init__(self, connection: Any, query: str, *, as_json: bool = False) -> None:
        import duckdb

        query = query.strip().rstrip(";")
        shown = "to_json(answer_row)::VARCHAR AS row" if as_json else "CAST(COLUMNS(*) AS VARCHAR)"
        try:
            try:
                self._cursor = connection.execute(f"SELECT {shown} FROM ({query}) AS answer_row")
            except duckdb.ParserException:  # SET, CREATE, EXPLAIN… can't stand in brackets
                self._cursor = connection.execute(query)
        except duckdb.Error as error:
            raise _refused(error) from error
        self.columns = [column[0] for column in self._cursor.description or ()]

    def __iter__(self) -> Iterator[tuple[str | None, ...]]:
        import duckdb

        try:
            while rows := self._cursor.fetchmany(1000):
                yield from rows
        except duckdb.Error as error:
            raise _refused(error) from error


def _refused(error: Exception) -> ArchiveError:
    """Returns an error of DuckDB's without its picture of the place, which shows our query around the given one."""
    return ArchiveError(f"duckdb: {str(error).partition(chr(10) * 2)[0]}")


def polars_rows(archive: Committed, query: str) -> Any:
    """Returns the answer of Polars' own SQL as a frame. The tables are lazy scans of the committed files.

    :raises ArchiveError: Polars refuses the query
    """
    import polars

    frames = {name: _frame(archive, name) for name in sorted(tables()) if archive.files(name)}
    try:
        return polars.SQLContext(frames).execute(query, eager=True)
    except polars.exceptions.PolarsError as error:
        raise ArchiveError(f"polars: {error}") from error


def _frame(archive: Committed, name: str) -> Any:
    import polars

    if not archive.is_local:
        return polars.scan_pyarrow_dataset(archive.dataset(name)).drop("date")
    root = archive.local_root()
    paths = [str(root / entry.path) for entry in archive.files(name)]
    schema = polars.from_arrow(archive.schema(name).empty_table()).schema
    return polars.scan_parquet(paths, schema=schema, hive_partitioning=False, missing_columns="insert")
