"""Files as other tools read them: by folder, with the columns and values that were written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from blumfeld_sink_spark.files import file_names
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
    task.write({"trades": ROWS, "raw": tools.raw(300), "book_deltas": tools.book_deltas(400, levels=20)})
    for file in task.close():
        symbol = file.symbol if file.table != "raw" else None
        path = root / file_names.path_of(file.table, file.date, symbol, "t", 0, 0, COUNT)
        path.parent.mkdir(parents=True, exist_ok=True)
        (root / file.staged).rename(path)
    return root


ROWS = tools.trades(COUNT, symbols=SYMBOLS, start=tools.MIDNIGHT - COUNT // 2 * 10**9)
Facts = tuple[int, Decimal, list[str], list[str]]
"""The number of rows, the sum of prices, the symbols and the dates of the trades."""
EXPECTED: Facts = (
    COUNT,
    sum(ROWS["price"].to_pylist(), Decimal(0)),
    sorted(SYMBOLS),
    ["2024-08-08", "2024-08-09"],
)


def facts(count: int, prices: Iterable[Decimal], symbols: Iterable[str], dates: Iterable[object]) -> Facts:
    return count, sum(prices, Decimal(0)), sorted(set(symbols)), sorted(set(map(str, dates)))


def with_pyarrow(root: Path) -> Iterator[Facts]:
    for trades_table in (
        pq.read_table(root / "trades"),
        ds.dataset(root / "trades", partitioning="hive").to_table(),
        pq.read_table(root / "trades", filters=[("symbol", "in", SYMBOLS)]),
    ):
        assert (trades_table["symbol"].type, trades_table["price"].type) == (
            pa.string(),
            pa.decimal128(38, 18),
        )
        columns = [trades_table[name].to_pylist() for name in ("price", "symbol", "date")]
        yield facts(trades_table.num_rows, *columns)
    symbol_rows = pq.read_table(root / "trades", filters=[("symbol", "=", "XBT/USD")])
    assert set(symbol_rows["symbol"].to_pylist()) == {"XBT/USD"}
    assert [pq.read_table(root / table).num_rows for table in ("book_deltas", "raw")] == [400, 300]


def with_pandas(root: Path) -> Iterator[Facts]:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(root / "trades")
    yield facts(len(frame), frame["price"], frame["symbol"], frame["date"])
    assert [len(pandas.read_parquet(root / table)) for table in ("book_deltas", "raw")] == [400, 300]


def with_duckdb(root: Path) -> Iterator[Facts]:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        source = f"'{root}/trades/**/*.parquet'"
        rows = connection.execute(f"SELECT price, symbol, date FROM {source}").fetchall()
        yield facts(len(rows), *zip(*rows, strict=True))
        described = connection.execute(
            f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {source})"
        )
        kinds = dict(described.fetchall())
        raw = f"SELECT count(*), count(value), count(headers) FROM '{root}/raw/**/*.parquet'"
        assert connection.execute(raw).fetchall() == [(300, 300 - 27, 150)]
    assert (kinds["price"], kinds["ts_event"], kinds["side"]) == ("DECIMAL(38,18)", "BIGINT", "TINYINT")
    assert (kinds["symbol"], kinds["date"]) == ("VARCHAR", "DATE")


def with_polars(root: Path) -> Iterator[Facts]:
    polars = pytest.importorskip("polars")
    for frame in (
        polars.read_parquet(root / "trades"),
        polars.read_parquet(f"{root}/trades/**/*.parquet", hive_partitioning=True),
        polars.scan_parquet(root / "trades").collect(),
    ):
        yield facts(frame.height, frame["price"], frame["symbol"], frame["date"])
    assert [polars.read_parquet(root / table).height for table in ("book_deltas", "raw")] == [400, 300]


@pytest.mark.parametrize("read", [with_pyarrow, with_pandas, with_duckdb, with_polars])
def test_the_readers_default_calls_give_what_was_written(
    root: Path, read: Callable[[Path], Iterator[Facts]]
) -> None:
    """The date comes from the folders, the symbol from the files."""
    for summary in read(root):
        assert summary == EXPECTED


@pytest.mark.spark
def test_spark_reads_them(root: Path) -> None:
    """Symbols beyond ASCII and of digits alone are right with the default call, because they come from the files."""
    sql = pytest.importorskip("pyspark.sql")
    digits = sum(row["symbol"] == "005930" and row["ts_event"] >= tools.MIDNIGHT for row in ROWS.to_pylist())
    builder = sql.SparkSession.builder.master("local[1]").appName("readers")
    for key, value in SPARK.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        frame = session.read.parquet(f"{root}/trades")
        totals = frame.selectExpr("count(*)", "sum(price)", "collect_set(symbol)").collect()[0]
        kinds = dict(frame.dtypes)
        dates = sorted(str(each[0]) for each in frame.select("date").distinct().collect())
        count = frame.where("symbol = '005930' AND date = '2024-08-09'").count()
        pruned = frame.where(f"ts_event >= {tools.MIDNIGHT}").count()
        levels = session.read.parquet(f"{root}/book_deltas").selectExpr("count(*)", "sum(size)").collect()[0]
        raw = session.read.parquet(f"{root}/raw").selectExpr("count(*)", "count(headers)").collect()[0]
    finally:
        session.stop()
    assert (totals[0], totals[1], sorted(totals[2]), dates) == EXPECTED
    assert (kinds["symbol"], kinds["date"]) == ("string", "date")
    assert count == digits
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
