"""Files as other tools read them: by folder, with the columns and values that were written."""

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
"""Symbols with a slash, of digits alone, beyond ASCII, and with characters that have a meaning in a URL."""
COUNT = 2000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes trades of two dates and five symbols, levels and raw rows, under their published names."""
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
    rows = tools.trades(COUNT, symbols=SYMBOLS, start=tools.MIDNIGHT - COUNT // 2 * 10**9)
    return COUNT, sum(rows["price"].to_pylist(), Decimal(0)), sorted(SYMBOLS)


Facts = tuple[int, Decimal, list[str]]


def facts(found: pa.Table) -> Facts:
    prices = found["price"].to_pylist()
    return found.num_rows, sum(prices, Decimal(0)), sorted(set(found["symbol"].to_pylist()))


DATES = ["2024-08-08", "2024-08-09"]


def test_pyarrow_reads_them(root: Path, expected: Facts) -> None:
    """The tool's default calls take the date from the folders and the symbol from the files."""
    for found in (
        pq.read_table(root / "trades"),
        ds.dataset(root / "trades", partitioning="hive").to_table(),
        pq.read_table(root / "trades", filters=[("symbol", "in", SYMBOLS)]),
    ):
        assert facts(found) == expected
        assert sorted(set(found["date"].to_pylist())) == DATES
        assert (found["symbol"].type, found["price"].type) == (pa.string(), pa.decimal128(38, 18))
    one = pq.read_table(root / "trades", filters=[("symbol", "=", "XBT/USD")])
    assert set(one["symbol"].to_pylist()) == {"XBT/USD"}
    assert pq.read_table(root / "book_deltas").num_rows == 400
    assert pq.read_table(root / "raw").num_rows == 300


def test_pandas_reads_them(root: Path, expected: Facts) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(root / "trades")
    assert (len(frame), sum(frame["price"], Decimal(0)), sorted(set(frame["symbol"]))) == expected
    assert sorted(set(frame["date"])) == DATES
    assert (len(pandas.read_parquet(root / "book_deltas")), len(pandas.read_parquet(root / "raw"))) == (
        400,
        300,
    )


def test_duckdb_reads_them(root: Path, expected: Facts) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        source = f"'{root}/trades/**/*.parquet'"
        count, total, dates, symbols = connection.execute(
            f"SELECT count(*), sum(price), list_sort(list(DISTINCT date::VARCHAR)), list(DISTINCT symbol) FROM {source}"
        ).fetchall()[0]
        kinds = dict(
            connection.execute(
                f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {source})"
            ).fetchall()
        )
        raw = connection.execute(
            f"SELECT count(*), count(value), count(headers) FROM '{root}/raw/**/*.parquet'"
        ).fetchall()[0]
    assert (count, total, sorted(symbols)) == expected
    assert dates == DATES
    assert (kinds["price"], kinds["ts_event"], kinds["side"]) == ("DECIMAL(38,18)", "BIGINT", "TINYINT")
    assert (kinds["symbol"], kinds["date"]) == ("VARCHAR", "DATE")
    assert raw == (300, 300 - 27, 150)


def test_polars_reads_them(root: Path, expected: Facts) -> None:
    polars = pytest.importorskip("polars")
    frames = (
        polars.read_parquet(root / "trades"),
        polars.read_parquet(f"{root}/trades/**/*.parquet"),
        polars.scan_parquet(root / "trades").collect(),
    )
    for frame in frames:
        symbols = frame["symbol"].unique().sort().to_list()
        assert (frame.height, frame["price"].sum(), sorted(symbols)) == expected
    assert sorted(map(str, frames[0]["date"].unique())) == DATES
    levels = polars.read_parquet(root / "book_deltas")
    assert levels.height == 400
    assert levels["is_snapshot"].sum() == 0
    assert polars.read_parquet(root / "raw").height == 300


@pytest.mark.spark
def test_spark_reads_them(root: Path, expected: Facts) -> None:
    """Symbols beyond ASCII and of digits alone are right with the default call, because they come from the files."""
    sql = pytest.importorskip("pyspark.sql")
    rows = tools.trades(COUNT, symbols=SYMBOLS, start=tools.MIDNIGHT - COUNT // 2 * 10**9).to_pylist()
    digits = sum(row["symbol"] == "005930" and row["ts_event"] >= tools.MIDNIGHT for row in rows)
    builder = sql.SparkSession.builder.master("local[1]").appName("readers")
    for key, value in SPARK.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        frame = session.read.parquet(f"{root}/trades")
        found = frame.selectExpr("count(*)", "sum(price)", "collect_set(symbol)").collect()[0]
        kinds = dict(frame.dtypes)
        dates = sorted(str(each[0]) for each in frame.select("date").distinct().collect())
        one = frame.where("symbol = '005930' AND date = '2024-08-09'").count()
        pruned = frame.where(f"ts_event >= {tools.MIDNIGHT}").count()
        levels = session.read.parquet(f"{root}/book_deltas").selectExpr("count(*)", "sum(size)").collect()[0]
        raw = session.read.parquet(f"{root}/raw").selectExpr("count(*)", "count(headers)").collect()[0]
    finally:
        session.stop()
    assert (found[0], found[1], sorted(found[2])) == expected
    assert (kinds["symbol"], kinds["date"]) == ("string", "date")
    assert dates == DATES
    assert one == digits
    assert pruned == COUNT // 2
    assert tuple(levels) == (400, Decimal(sum(range(400))))
    assert tuple(raw) == (300, 150)


SPARK: dict[str, Any] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
}


def test_row_groups_are_passed_over_by_time(root: Path) -> None:
    path = next((root / "trades/date=2024-08-09/BTCUSDT").iterdir())
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
