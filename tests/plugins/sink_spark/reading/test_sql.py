"""DuckDB views of the committed files."""

from __future__ import annotations

from decimal import Decimal, localcontext
from pathlib import Path

import duckdb
import pytest

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.reading.views import Rows, connect, polars_rows, script
from blumfeld_sink_spark.tables import tables
from tests.plugins.sink_spark.archive_tools import archive, captured, write_capture
from tests.plugins.sink_spark.command import rows_said, said

pytestmark = pytest.mark.archive


@pytest.fixture
def root(small_archive: Path) -> Path:
    return small_archive


def asked(root: Path, query: str) -> list[tuple[str | None, ...]]:
    with connect(Committed.open(str(root))) as connection:
        return list(Rows(connection, query))


def test_every_table_has_a_view_with_its_columns(root: Path) -> None:
    with connect(Committed.open(str(root))) as connection:
        for name, table in tables().items():
            columns = connection.execute(f"SELECT * FROM {name} LIMIT 0").description
            assert [column[0] for column in columns] == [*table.schema.names, "date"], name
        empty = connection.execute("SELECT * FROM quarantine").fetchall()
    assert empty == []


def test_dates_are_pruned_and_symbols_keep_their_text(root: Path) -> None:
    answer_rows = asked(root, "SELECT date, symbol, count(*) FROM trades GROUP BY ALL ORDER BY date")
    assert answer_rows == [("2024-08-08", "BTCUSDT", "20"), ("2024-08-09", "BTCUSDT", "20")]


def test_answers_are_exact(root: Path) -> None:
    answer_rows = asked(
        root, "SELECT price, ts(ts_recv), ns('2024-08-08 23:59:40.3') FROM trades ORDER BY k_offset LIMIT 1"
    )
    assert answer_rows == [("60000.200000000000000000", "2024-08-08 23:59:40.3", "1723161580300000000")]
    ((recv,),) = asked(root, "SELECT ts(max(ts_recv)) FROM book_deltas")
    assert recv == "2024-08-09 00:00:19.200000123"


def test_macros(root: Path) -> None:
    answer_rows = asked(
        root, "SELECT mid(bid, ask), round(spread_bps(bid, ask), 6) FROM bbo ORDER BY k_offset LIMIT 1"
    )
    assert answer_rows == [("60000.149999999994", "0.016667")]
    bars = asked(root, "SELECT bar, open, high, trades FROM bars_of('BTCUSDT', INTERVAL 1 MINUTE)")
    assert [(bar, Decimal(str(high)), trades) for bar, _, high, trades in bars] == [
        ("2024-08-08 23:59:00", Decimal("60006.2"), "20"),
        ("2024-08-09 00:00:00", Decimal("60006.2"), "20"),
    ]
    assert asked(root, "SELECT text(key) FROM raw LIMIT 1") == [("BTCUSDT",)]


@pytest.mark.parametrize(
    ("price", "size"),
    [
        ("61800.20", "2.909"),
        ("0.0000000123", "123456789.5"),
        ("99999.999999999", "1234567890.123456789"),
        ("-37.5", "0.000000000001"),
        ("0.000000000000125", "8000000000000.001"),
    ],
)
def test_price_times_size_is_exact(root: Path, price: str, size: str) -> None:
    """DuckDB's own product of two decimals of 38 digits fails at ordinary prices."""
    pair = f"(SELECT {price}::DECIMAL(38, 18) AS p, {size}::DECIMAL(38, 18) AS s)"
    ((product,),) = asked(root, f"SELECT sum(notional(p, s)) FROM {pair}")
    with localcontext(prec=80):
        assert Decimal(str(product)) == Decimal(price) * Decimal(size)


def test_price_times_size_is_told_where_it_cannot_be_exact(root: Path) -> None:
    for price, size in (("0.0000000000001", "0.0000000001"), ("99999999999999", "99999999999999")):
        with pytest.raises(ArchiveError, match=r"notional: .* needs more than"):
            asked(root, f"SELECT notional({price}::DECIMAL(38, 18), {size}::DECIMAL(38, 18))")
    assert asked(root, "SELECT notional(NULL::DECIMAL(38, 18), 1::DECIMAL(38, 18))") == [(None,)]


def test_bars_of_has_the_last_trade_of_a_message_as_its_close(root: Path) -> None:
    """Trades of one message have one offset; their places in it count."""
    with connect(Committed.open(str(root))) as connection:
        connection.execute(
            "CREATE OR REPLACE TEMP VIEW trades AS SELECT 7 AS ts_event, 'v' AS venue, 'S' AS symbol, "
            "CAST(NULL AS BIGINT) AS trade_id, 1 AS side, price, 1::DECIMAL(38, 18) AS size, 0 AS flags, "
            "4 AS k_offset FROM unnest([5, 9, 3, 6]::DECIMAL(38, 18)[]) AS prices(price)"
        )
        bar_rows = connection.execute(
            "SELECT open, high, low, close FROM bars_of('S', INTERVAL 1 MINUTE)"
        ).fetchall()
    assert bar_rows == [(5, 9, 3, 6)]


def test_files_that_no_record_names_are_not_seen(root: Path, tmp_path: Path) -> None:
    """A batch that is cut short between its files and its record leaves such a file."""
    entry = Committed.open(str(root)).files("trades")[0]
    stray = root / entry.path.replace("+00000+", "+00009+")
    stray.write_bytes((root / entry.path).read_bytes())
    try:
        assert asked(root, "SELECT count(*) FROM trades") == [("40",)]
    finally:
        stray.unlink()


def test_the_script_works_in_anybodys_duckdb_and_follows_new_commits(tmp_path: Path) -> None:
    rows = captured([write_capture(tmp_path / "feed.gz")], "ticks")
    archive(tmp_path / "a", rows.slice(0, 80), decoders=("binance-usdm",), query="first")
    text = script(Committed.open(str(tmp_path / "a")))
    with duckdb.connect() as connection:
        connection.execute(text)
        before = connection.execute("SELECT count(*) FROM bbo").fetchall()
        archive(tmp_path / "a", rows.slice(80), decoders=("binance-usdm",), query="second")
        connection.execute(text)
        after = connection.execute("SELECT count(*) FROM bbo").fetchall()
    assert (before, after) == ([(40,)], [(80,)])


def test_polars_answers_from_the_same_files(root: Path) -> None:
    frame = polars_rows(
        Committed.open(str(root)), "SELECT symbol, COUNT(*) AS n, SUM(size) AS v FROM trades GROUP BY symbol"
    )
    ((total,),) = asked(root, "SELECT sum(size) FROM trades")
    assert frame.rows() == [("BTCUSDT", 40, Decimal(str(total)))]


def test_mistakes_are_told_in_a_line(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"duckdb: Catalog Error.*nothing") as caught:
        asked(root, "SELECT * FROM nothing")
    assert "answer_row" not in str(caught.value)
    with pytest.raises(ArchiveError, match="no archive is there"):
        Committed.open(str(tmp_path))


def test_the_command_prints_rows_csv_json_and_the_script(root: Path) -> None:
    query = "SELECT ts_event, price, NULL AS nothing FROM trades ORDER BY k_offset LIMIT 2"
    assert said("sql", root, query, "--csv").splitlines()[:2] == [
        "ts_event,price,nothing",
        "1723161580209000000,60000.200000000000000000,",
    ]
    assert rows_said("sql", root, query)[0] == {
        "ts_event": 1723161580209000000,
        "price": 60000.2,
        "nothing": None,
    }
    assert "60000.2 │ NULL" in said("sql", root, query)
    assert said("sql", root, "SELECT * FROM gaps").endswith("no rows\n")
    assert "the first 1 rows" in said("sql", root, query, "--limit", "1")
    assert "SHOW" not in said("sql", root, "SHOW TABLES")
    assert said("sql", root).startswith("SET VARIABLE archive = '")
    assert said("sql", root, "SELECT COUNT(*) AS n FROM trades", "--engine", "polars", "--csv") == "n\n40\n"
