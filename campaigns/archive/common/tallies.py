"""Tallies of an archive's files by four readers that know nothing of the archive. Spark has a process of its own:
``python -m campaigns.archive.common.tallies ROOT`` prints its tallies as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from campaigns.archive.common.expected_tallies import SUMMED, Tallies, Tally
from campaigns.archive.common.process import QUICK_START

SPARK_TIMEOUT_S = 180.0
MILLIONS = 1_000_000


def with_duckdb(root: Path) -> Tallies:
    """Returns the tallies by SQL on a glob."""
    import duckdb

    def tally(table: str) -> Tally:
        query = _query(table, f"read_parquet('{root}/{table}/**/*.parquet')", "//")
        return _tally(table, duckdb.sql(query).fetchall()[0])

    return _each(root, tally)


def with_polars(root: Path) -> Tallies:
    """Returns the tallies by a lazy scan of a glob."""
    import polars as pl

    def tally(table: str) -> Tally:
        rows = pl.scan_parquet(f"{root}/{table}/**/*.parquet")
        if table == "book_deltas":
            rows = rows.filter(~pl.col("is_snapshot"))
        sums = [pl.col(column).cast(_wide(pl, column)).sum().alias(f"s_{column}") for column in SUMMED[table]]
        totals = rows.select(pl.len(), (pl.col("ts_event") // MILLIONS).sum().alias("ms"), *sums).collect()
        return _tally(table, totals.row(0))

    return _each(root, tally)


def with_pyarrow(root: Path) -> Tallies:
    """Returns the tallies by a dataset with hive partitions."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    def tally(table: str) -> Tally:
        wanted = None if table != "book_deltas" else ~pc.field("is_snapshot")
        columns = ["ts_event", *SUMMED[table]]
        rows = ds.dataset(root / table, partitioning="hive").to_table(columns, filter=wanted)
        ms = pc.sum(pc.divide(rows["ts_event"], MILLIONS)).as_py()
        return _tally(table, [rows.num_rows, ms, *(pc.sum(rows[column]).as_py() for column in SUMMED[table])])

    return _each(root, tally)


def with_spark(root: Path) -> Tallies:
    """Returns the tallies by Spark, in a process of its own.

    :raises RuntimeError: Spark ended with an error; the message has its last lines
    """
    ran = subprocess.run(
        [sys.executable, "-m", __name__, str(root)],
        capture_output=True,
        text=True,
        timeout=SPARK_TIMEOUT_S,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"Spark can't read it: {ran.stderr[-1500:]}")
    tallies = json.loads(ran.stdout.splitlines()[-1])
    return {
        table: {column: Decimal(value) for column, value in tally.items()} for table, tally in tallies.items()
    }


READERS: dict[str, Callable[[Path], Tallies]] = {
    "duckdb": with_duckdb,
    "polars": with_polars,
    "pyarrow": with_pyarrow,
    "spark": with_spark,
}


def _spark_session() -> Any:
    """Returns a small, quiet Spark session on this machine."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    builder = builder.master("local[2]").appName("tallies")
    for key, value in {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": QUICK_START,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _inside_spark(root: Path) -> Tallies:
    session = _spark_session()

    def tally(table: str) -> Tally:
        session.read.parquet(str(root / table)).createOrReplaceTempView(table)
        return _tally(table, list(session.sql(_query(table, table, "DIV")).collect()[0]))

    try:
        return _each(root, tally)
    finally:
        session.stop()


def _each(root: Path, tally: Callable[[str], Tally]) -> Tallies:
    """Returns the tally of each table. A table without files has no rows."""
    return {
        table: tally(table) if any((root / table).rglob("*.parquet")) else _tally(table, [0] * 9)
        for table in SUMMED
    }


def rows_in(root: Path, table: str) -> int:
    """Returns the number of rows in all files of a table."""
    import pyarrow.parquet as pq

    return sum(int(pq.read_metadata(path).num_rows) for path in (root / table).rglob("*.parquet"))


def _query(table: str, source: str, divided: str) -> str:
    sums = ", ".join(f"sum({column})" for column in SUMMED[table])
    where = " WHERE NOT is_snapshot" if table == "book_deltas" else ""
    return f"SELECT count(*), sum(ts_event {divided} {MILLIONS}), {sums} FROM {source}{where}"


def _tally(table: str, values: Any) -> Tally:
    names = ("rows", "ts_event_ms", *SUMMED[table])
    return {name: Decimal(value or 0) for name, value in zip(names, values, strict=False)}


def _wide(pl: Any, column: str) -> Any:
    """Returns the type to sum a column in. Polars would sum in the column's own, which is too narrow for ``side``."""
    return (
        pl.Int64 if column in ("side", "trade_id", "update_id", "last_id", "k_offset") else pl.Decimal(38, 18)
    )


def main() -> int:
    """Prints Spark's tallies of the given root as a line of JSON."""
    sums = _inside_spark(Path(sys.argv[1]))
    print(json.dumps({table: {name: str(v) for name, v in tally.items()} for table, tally in sums.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
