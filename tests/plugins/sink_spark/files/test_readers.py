"""Files as those see them who never heard of us: by folder, with the columns and values that were written."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from blumfeld_sink_spark.files import naming
from blumfeld_sink_spark.files.writer import TaskWriter
from tests.plugins.sink_spark.files import tools

pytestmark = pytest.mark.archive

SYMBOLS = ("BTCUSDT", "XBT/USD", "005930", "币安", "A B%C")
"""With a slash, all digits, beyond ASCII, and signs that mean something in a URL."""
COUNT = 2000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trades of two dates and five symbols, levels and raw rows, under their published names."""
    root = tmp_path_factory.mktemp("archive")
    task = TaskWriter(tools.FolderStore(root), tools.settings(row_group_rows=300), "t", 0)
    trades = tools.trades(COUNT, symbols=SYMBOLS, start=tools.MIDNIGHT - COUNT // 2 * 10**9)
    task.write({"trades": trades, "raw": tools.raw(300), "book_deltas": tools.book_deltas(400, levels=20)})
    for file in task.close():
        symbol = file.symbol if file.table != "raw" else None
        path = root / naming.path_of(file.table, file.date, symbol, "t", 0, 0, COUNT)
        path.parent.mkdir(parents=True, exist_ok=True)
        (root / file.staged).rename(path)
    return root


@pytest.fixture(scope="module")
def expected(root: Path) -> tuple[int, Decimal, list[str]]:
    """Rows, sum of the prices, symbols."""
    rows = tools.trades(COUNT, symbols=SYMBOLS, start=tools.MIDNIGHT - COUNT // 2 * 10**9)
    return COUNT, sum(rows["price"].to_pylist(), Decimal(0)), sorted(SYMBOLS)


def test_pyarrow_reads_them(root: Path, expected: tuple[int, Decimal, list[str]]) -> None:
    """Symbols are in path and file: as text, the path's type must be told, or 005930 is a number."""
    flavour = pa.schema([("date", pa.string()), ("symbol", pa.string())])
    found = ds.dataset(root / "trades", partitioning=ds.partitioning(flavour, flavor="hive")).to_table()
    assert facts(found) == expected
    assert sorted(set(found["date"].to_pylist())) == ["2024-08-08", "2024-08-09"]
    assert found["price"].type == pa.decimal128(38, 18)
    one = ds.dataset(root / "trades", partitioning=ds.partitioning(flavour, flavor="hive")).to_table(
        filter=ds.field("symbol") == "XBT/USD"
    )
    assert set(one["symbol"].to_pylist()) == {"XBT/USD"}


def facts(found: pa.Table) -> tuple[int, Decimal, list[str]]:
    prices = found["price"].to_pylist()
    return found.num_rows, sum(prices, Decimal(0)), sorted(set(found["symbol"].to_pylist()))


def test_duckdb_reads_them(root: Path, expected: tuple[int, Decimal, list[str]]) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        source = (
            f"read_parquet('{root}/trades/**/*.parquet', hive_partitioning = true, "
            "hive_types = {'date': DATE, 'symbol': VARCHAR})"
        )
        count, total, dates = connection.execute(
            f"SELECT count(*), sum(price), list_sort(list(DISTINCT date::VARCHAR)) FROM {source}"
        ).fetchall()[0]
        symbols = connection.execute(f"SELECT DISTINCT symbol FROM {source} ORDER BY 1").fetchall()
        kinds = dict(
            connection.execute(
                f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {source})"
            ).fetchall()
        )
        raw = connection.execute(
            f"SELECT count(*), count(value), count(headers) FROM read_parquet('{root}/raw/**/*.parquet')"
        ).fetchall()[0]
    assert (count, total, sorted(symbol for (symbol,) in symbols)) == expected
    assert dates == ["2024-08-08", "2024-08-09"]
    assert (kinds["price"], kinds["ts_event"], kinds["side"]) == ("DECIMAL(38,18)", "BIGINT", "TINYINT")
    assert raw == (300, 300 - 27, 150)


def test_polars_reads_them(root: Path, expected: tuple[int, Decimal, list[str]]) -> None:
    polars = pytest.importorskip("polars")
    schema = {"date": polars.String, "symbol": polars.String}
    frame = polars.scan_parquet(f"{root}/trades/**/*.parquet", hive_partitioning=True, hive_schema=schema)
    found = frame.select(polars.len(), polars.col("price").sum()).collect().row(0)
    symbols = frame.select(polars.col("symbol").unique().sort()).collect()["symbol"].to_list()
    assert (*found, sorted(symbols)) == expected
    levels = polars.read_parquet(f"{root}/book_deltas/**/*.parquet")
    assert levels.height == 400
    assert levels["is_snapshot"].sum() == 0


@pytest.mark.spark
def test_spark_reads_them(root: Path, expected: tuple[int, Decimal, list[str]]) -> None:
    """By the folders' names, or without them. Spark takes each %XX of a name for a letter of its own, so a symbol
    beyond ASCII is only right in the files' column, which ``recursiveFileLookup`` gives.
    """
    sql = pytest.importorskip("pyspark.sql")
    builder = sql.SparkSession.builder.master("local[1]").appName("readers")
    for key, value in SPARK.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        frame = session.read.option("basePath", f"{root}/trades").parquet(f"{root}/trades")
        by_name = frame.selectExpr("count(*)", "sum(price)", "collect_set(symbol)").collect()[0]
        files = session.read.option("recursiveFileLookup", "true").parquet(f"{root}/trades")
        by_file = files.selectExpr("count(*)", "sum(price)", "collect_set(symbol)").collect()[0]
        dates = sorted(str(each[0]) for each in frame.select("date").distinct().collect())
        pruned = frame.where(f"ts_event >= {tools.MIDNIGHT}").count()
        levels = session.read.parquet(f"{root}/book_deltas").selectExpr("count(*)", "sum(size)").collect()[0]
        raw = session.read.parquet(f"{root}/raw").selectExpr("count(*)", "count(headers)").collect()[0]
    finally:
        session.stop()
    assert (by_file[0], by_file[1], sorted(by_file[2])) == expected
    assert tuple(by_name)[:2] == expected[:2]
    assert set(expected[2]) - set(by_name[2]) == {"币安"}
    assert dates == ["2024-08-08", "2024-08-09"]
    assert pruned == COUNT // 2
    assert tuple(levels) == (400, Decimal(sum(range(400))))
    assert tuple(raw) == (300, 150)


SPARK: dict[str, Any] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}


def test_row_groups_are_passed_over_by_time(root: Path) -> None:
    """A reader that wants the last rows reads one row group of each file."""
    path = next((root / "trades/date=2024-08-09/symbol=BTCUSDT").iterdir())
    metadata = pq.ParquetFile(path).metadata
    column = metadata.schema.names.index("ts_event")
    bounds = [
        (
            metadata.row_group(group).column(column).statistics.min,
            metadata.row_group(group).column(column).statistics.max,
        )
        for group in range(metadata.num_row_groups)
    ]
    assert bounds == sorted(bounds)
    assert all(before[1] < after[0] for before, after in pairwise(bounds))
