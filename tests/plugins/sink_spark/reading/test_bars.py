"""Bars equal those of a slow reader of the same trades, and follow from the committed trades alone."""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld_sink_spark.apply import decode_rows
from blumfeld_sink_spark.decoders.dbn.decoder import DbnDecoder
from blumfeld_sink_spark.decoders.tables.parts import AGGREGATE, NOT_MARKET
from blumfeld_sink_spark.errors import SettingsError
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.reading.market import bars
from blumfeld_sink_spark.reading.market.intervals import interval_ns, name_of
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.tables import TRADES
from blumfeld_sink_spark.testing.decoder_messages import batch
from tests.everyday import examples
from tests.plugins.sink_spark import dbn_files
from tests.plugins.sink_spark.archive_tools import archive, captured
from tests.plugins.sink_spark.command import rows_said, said
from tests.plugins.sink_spark.results import table_of

pytestmark = pytest.mark.archive

SECOND = 10**9
SETTINGS = ArchiveSettings(topics=("ticks",))


def slow(rows: pa.Table, interval: int) -> list[dict[str, Any]]:
    made: dict[tuple[str, int], dict[str, Any]] = {}
    turnover: dict[tuple[str, int], Decimal] = {}
    order = sorted(rows.to_pylist(), key=lambda row: (row["ts_event"], row["k_partition"], row["k_offset"]))
    seen = set()
    for row in order:
        same = tuple(row[name] for name in ("venue", "trade_id", "ts_event", "side", "price", "size"))
        if same in seen and row["trade_id"] is not None:
            continue
        seen.add(same)
        key = (row["venue"], row["ts_event"] // interval * interval)
        price, size = row["price"], row["size"]
        bar = made.setdefault(
            key,
            {
                "ts": key[1],
                "interval_ns": interval,
                "venue": row["venue"],
                "symbol": row["symbol"],
                "open": price,
                "high": price,
                "low": price,
                "volume": Decimal(0),
                "buy_volume": Decimal(0),
                "trades": 0,
            },
        )
        bar["high"], bar["low"], bar["close"] = max(bar["high"], price), min(bar["low"], price), price
        bar["volume"] += size
        bar["buy_volume"] += size if row["side"] > 0 else 0
        bar["trades"] += 1
        turnover[key] = turnover.get(key, Decimal(0)) + price * size
        bar["vwap"] = float(turnover[key] / bar["volume"])
    return [made[key] for key in sorted(made)]


@settings(deadline=None, max_examples=examples(60))
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "ts_event": st.integers(0, 20),
                "trade_id": st.none() | st.integers(-3, 3),
                "venue": st.sampled_from(["a", "b"]),
                "side": st.sampled_from([1, -1, 0]),
                "price": st.decimals("0.000000000000000001", 10**9, places=18, allow_nan=False),
                "size": st.decimals("0.000000000000000001", 10**9, places=18, allow_nan=False),
            }
        ),
        max_size=40,
    ),
    st.integers(1, 30),
    st.randoms(),
)
def test_bars_are_those_of_a_slow_reader(rows: list[dict[str, Any]], interval: int, shuffled: Any) -> None:
    """Equal to the last digit (the VWAP to a float's precision), with doubled trades, with ids that are neither unique
    nor in order, and with rows in any order.
    """
    table = table_of(TRADES, rows + rows[:3])
    table = table.take(pa.array(shuffled.sample(range(table.num_rows), table.num_rows), pa.int64()))
    made = bars.bars_of(table, interval).to_pylist()
    with localcontext(prec=80):
        wanted = slow(table, interval)
    assert [bar.pop("vwap") for bar in made] == pytest.approx([bar.pop("vwap") for bar in wanted])
    assert made == wanted


def test_what_is_off_the_market_makes_no_bar() -> None:
    """Nor do Binance's aggregates among single trades, as older archives have them; alone they do. Trades without ids
    all count, and so do other venues' trades that stand for several.
    """
    trade = {"ts_event": 5, "venue": "binance-usdm"}
    table = table_of(
        TRADES,
        [trade, trade, {**trade, "flags": NOT_MARKET, "price": 0}, {**trade, "flags": AGGREGATE, "size": 2}],
    )
    assert bars.bars_of(table, SECOND).column("trades").to_pylist() == [2]
    assert bars.bars_of(table.slice(3), SECOND).column("volume").to_pylist() == [Decimal(2)]
    assert bars.bars_of(table.slice(2, 1), SECOND).num_rows == 0
    several = table_of(
        TRADES, [{**trade, "venue": "okx"}, {**trade, "venue": "okx", "flags": AGGREGATE, "size": 2}]
    )
    assert bars.bars_of(several, SECOND).column("trades").to_pylist() == [2]


def test_trades_of_one_packet_are_several() -> None:
    """A sequence number that trades share is no id of theirs, and a hash says nothing of the order."""
    packet = [{"ts_event": 5, "trade_id": 77, "price": price, "size": size} for price, size in PACKET]
    (bar,) = bars.bars_of(table_of(TRADES, [*packet, packet[0]]), SECOND).to_pylist()
    assert [bar[name] for name in ("open", "high", "low", "close", "volume", "trades")] == [2, 3, 1, 1, 12, 3]
    hashed = [{**row, "trade_id": 900 - nth} for nth, row in enumerate(packet)]
    (bar,) = bars.bars_of(table_of(TRADES, hashed), SECOND).to_pylist()
    assert (bar["open"], bar["close"]) == (2, 1)


PACKET = [(Decimal(2), Decimal(3)), (Decimal(3), Decimal(4)), (Decimal(1), Decimal(5))]


def test_databentos_trades_make_bars() -> None:
    """Its own bits aren't taken for ours: 129 has the bit of trades off the market. Its packets have no ids."""
    applied = decode_rows([DbnDecoder()], batch([dbn_files.trade(), dbn_files.trade()]), SETTINGS)
    (bar,) = bars.bars_of(applied.tables["trades"], SECOND).to_pylist()
    assert (bar["trades"], bar["volume"]) == (2, 10)


@pytest.fixture
def root(small_archive: Path) -> Path:
    return small_archive


def asked(query: str) -> list[Any]:
    with duckdb.connect() as connection:
        rows: list[Any] = connection.sql(query).fetchall()
        return rows


def test_bars_equal_what_duckdb_says(root: Path) -> None:
    assert "the end of the date" in said("bars", root, "--interval", "10s", "--through")
    ours = asked(
        f"SELECT ts, open, high, low, close, volume, buy_volume, trades FROM '{root}/bars/*/*/10s.parquet' ORDER BY ts"
    )
    theirs = asked(f"""
        SELECT ts_event // {10 * SECOND} * {10 * SECOND} AS ts, arg_min(price, trade_id), max(price), min(price),
               arg_max(price, trade_id), sum(size), coalesce(sum(size) FILTER (side = 1), 0), count(*)
        FROM '{root}/trades/*/*/*.parquet' GROUP BY 1 ORDER BY 1""")
    assert len(ours) == 4
    assert ours == theirs


def test_made_again_the_files_are_the_same(root: Path) -> None:
    runs = [
        list(bars.make(Committed.open(str(root)), interval_ns("1s"), symbols=["BTCUSDT"])) for _ in range(2)
    ]
    first = {path: path.read_bytes() for path in sorted(root.glob("bars/*/*/1s.parquet"))}
    assert runs[0] == runs[1]
    list(bars.make(Committed.open(str(root)), interval_ns("1s")))
    assert {path: path.read_bytes() for path in sorted(root.glob("bars/*/*/1s.parquet"))} == first
    assert [
        bar_file.date for bar_file in bars.make(Committed.open(str(root)), SECOND, start="2024-08-09")
    ] == ["2024-08-09"]
    assert [bar_file.date for bar_file in bars.make(Committed.open(str(root)), SECOND, end="2024-08-08")] == [
        "2024-08-08"
    ]


def test_a_bar_that_may_still_change_is_left_out(root: Path) -> None:
    """The last event is 19.2 s after midnight: 10 s bars are closed up to 10 s, and all of the day before."""
    made = list(bars.make(Committed.open(str(root)), interval_ns("10s")))
    assert [(bar_file.date, bar_file.bars, bar_file.whole) for bar_file in made] == [
        ("2024-08-08", 2, True),
        ("2024-08-09", 1, False),
    ]
    assert made[1].trades == 20
    last = pq.read_table(root / made[1].path).column("ts").to_pylist()
    assert last == [1_723_161_600 * SECOND]


def test_a_script_gets_a_line_for_each_file_and_people_are_told_of_none(root: Path) -> None:
    files = rows_said("bars", root, "--interval", "10s")
    assert [(file["date"], file["bars"]) for file in files] == [("2024-08-08", 2), ("2024-08-09", 1)]
    assert "no trades are archived for that" in said("bars", root, "--from", "2030-01-01")


def test_the_command_counts_the_trades_that_make_the_bars(tmp_path: Path) -> None:
    trade = {"e": "trade", "E": 1723161600000, "T": 1723161600000, "s": "BTCUSDT", "m": False}
    values = [
        json.dumps({**trade, "t": 1, "p": "2", "q": "3", "X": "MARKET"}),
        json.dumps({**trade, "t": 2, "p": "0", "q": "0", "X": "NA"}),
    ]
    (tmp_path / "capture").write_text("".join(f"{10**18} {value}\n" for value in values))
    archive(
        tmp_path / "archive", captured([tmp_path / "capture"], "t"), decoders=("binance-usdm",), skew_ms=0
    )
    (made,) = bars.make(Committed.open(str(tmp_path / "archive")), SECOND, through=True)
    assert (made.bars, made.trades) == (1, 1)


@pytest.mark.parametrize(
    ("span", "name"),
    [("1ms", "1ms"), ("250ms", "250ms"), ("60s", "1m"), ("1440m", "1d"), ("24h", "1d"), ("90s", "90s")],
)
def test_an_interval_has_one_name_so_that_it_has_one_file(span: str, name: str) -> None:
    assert name_of(interval_ns(span)) == name


@pytest.mark.parametrize("span", ["7m", "1w", "0s", "", "2d", "m"])
def test_intervals_divide_a_day(span: str) -> None:
    with pytest.raises(SettingsError, match="allowed: an interval that divides a day"):
        interval_ns(span)
