"""Exports, read back by the formats' own rules."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blumfeld_sink_spark.errors import ArchiveError, SettingsError
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.reading.exports import hftbacktest, nautilus, numbers, plain, tardis
from blumfeld_sink_spark.reading.exports.selection import Exported, Selection
from blumfeld_sink_spark.reading.market import bars
from blumfeld_sink_spark.reading.views import connect
from tests.plugins.sink_spark.archive_tools import MIDNIGHT_S, archive, captured, write_capture
from tests.plugins.sink_spark.command import rows_said
from tests.shared_facts import shared_path

pytestmark = pytest.mark.archive

NS = 10**9
MIDNIGHT = MIDNIGHT_S * NS


@pytest.fixture(scope="module")
def small(small_archive: Path) -> Committed:
    return Committed.open(str(small_archive))


@pytest.fixture(scope="module")
def spot_files(spot: Committed, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [
        export_file.path
        for export_file in hftbacktest.export(Selection(spot), tmp_path_factory.mktemp("events"))
    ]


@pytest.fixture(scope="module")
def spot(tmp_path_factory: pytest.TempPathFactory) -> Committed:
    """The real spot capture's first minutes: its REST snapshot is older than changes before it, and the consumer's
    clock is more than a second behind.
    """
    file = shared_path("market-data/hftbacktest/spot/btcusdt_20240808.gz")
    folder = tmp_path_factory.mktemp("spot")
    rows = captured([file], "spot", limit=6_000, recv_header="ns")
    archive(folder / "archive", rows, decoders=("binance-spot",), recv_header="ns", batch_rows=2_500)
    return Committed.open(str(folder / "archive"))


def written(files: Iterator[Exported]) -> dict[str, int]:
    return {export_file.path.name: export_file.rows for export_file in files}


def lines_of(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def test_numbers_are_exact() -> None:
    values = [
        "61800.300000000000000000",
        "0.001000000000000000",
        "5.000000000000000000",
        "0E-18",
        "100",
        "1E-8",
        None,
    ]
    column = pa.array(
        [None if number is None else Decimal(number) for number in values], pa.decimal128(38, 18)
    )
    assert numbers.texts(column).to_pylist() == ["61800.3", "0.001", "5", "0", "100", "0.00000001", None]
    assert numbers.floats(column[:3]).tolist() == [61800.3, 0.001, 5.0]
    assert (numbers.places(column[:5]), numbers.places(column)) == (3, 8)
    assert [
        int.from_bytes(fixed_bytes, "little") for fixed_bytes in numbers.fixed(column[:3], 16).to_pylist()
    ] == [
        618003 * 10**15,
        10**13,
        5 * 10**16,
    ]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Committed:
    """Three trades of the market, one of the insurance fund, and one message of no trade; the last two share a time."""
    folder = tmp_path_factory.mktemp("mixed")
    kinds = [
        ("2.00", "MARKET"),
        ("0", "NA"),
        ("1.90", "INSURANCE_FUND"),
        ("2.04", "MARKET"),
        ("2.02", "MARKET"),
    ]
    lines = [
        f'{MIDNIGHT + nth} {{"e":"trade","E":1,"T":{MIDNIGHT_S * 1000 + min(nth, 3)},"s":"XRPUSDT","t":{9 - nth},'
        f'"p":"{price}","q":"{0 if price == "0" else 3}","X":"{word}","m":false}}\n'
        for nth, (price, word) in enumerate(kinds)
    ]
    (folder / "feed").write_text("".join(lines))
    archive(
        folder / "archive", captured([folder / "feed"], "ticks"), decoders=("binance-usdm",), batch_rows=2
    )
    return Committed.open(str(folder / "archive"))


def test_exports_and_bars_have_the_trades_of_the_market_in_the_logs_order(
    mixed: Committed, tmp_path: Path
) -> None:
    assert sum(entry.rows for entry in mixed.files("trades")) == 5
    for form in (tardis, plain, hftbacktest, nautilus):
        (tmp_path / form.__name__).mkdir()
    files = {
        form: [export_file.path for export_file in form.export(Selection(mixed), tmp_path / form.__name__)]
        for form in (tardis, plain, hftbacktest, nautilus)
    }
    prices = {
        "tardis": [line.split(",")[6] for line in lines_of(files[tardis][0])[1:]],
        "csv": [row["price"] for row in csv.DictReader(lines_of(files[plain][0]))],
        "hftbacktest": [f"{price:.2f}" for price in np.load(files[hftbacktest][0])["data"]["px"]],
        "nautilus": [
            f"{int.from_bytes(price, 'little') / 10**16:.2f}"
            for price in pq.read_table(files[nautilus][0])["price"].to_pylist()
        ],
    }
    assert prices == {
        "tardis": ["2", "2.04", "2.02"],
        "csv": ["2", "2.04", "2.02"],
        "hftbacktest": ["2.00", "2.04", "2.02"],
        "nautilus": ["2.00", "2.04", "2.02"],
    }
    with connect(mixed) as connection:
        query = "SELECT open, high, low, close, volume, trades FROM bars_of('XRPUSDT', INTERVAL 1 MINUTE)"
        (bar,) = connection.execute(query).fetchall()
    assert bar == (Decimal(2), Decimal("2.04"), Decimal(2), Decimal("2.02"), Decimal(9), 3)
    assert [bar_file.bars for bar_file in bars.make(mixed, 60 * NS, through=True)] == [1]


def test_tardis_files_by_day_of_receipt(small: Committed, tmp_path: Path) -> None:
    rows_by_file = written(tardis.export(Selection(small), tmp_path))
    assert rows_by_file == {
        "binance-futures_trades_2024-08-08_BTCUSDT.csv.gz": 20,
        "binance-futures_trades_2024-08-09_BTCUSDT.csv.gz": 20,
        "binance-futures_incremental_book_L2_2024-08-08_BTCUSDT.csv.gz": 40 + 20 * 3,
        "binance-futures_incremental_book_L2_2024-08-09_BTCUSDT.csv.gz": 20 * 3,
        "binance-futures_quotes_2024-08-08_BTCUSDT.csv.gz": 40,
        "binance-futures_quotes_2024-08-09_BTCUSDT.csv.gz": 40,
    }
    trades = lines_of(tmp_path / "binance-futures_trades_2024-08-08_BTCUSDT.csv.gz")
    assert trades[:2] == [
        "exchange,symbol,timestamp,local_timestamp,id,side,price,amount",
        "binance-futures,BTCUSDT,1723161580209000,1723161580300000,1,buy,60000.2,0.001",
    ]
    book = lines_of(tmp_path / "binance-futures_incremental_book_L2_2024-08-08_BTCUSDT.csv.gz")
    assert book[0] == "exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount"
    assert book[1] == "binance-futures,BTCUSDT,1723161580000000,1723161580000005,true,bid,60000.1,1.25"
    assert book[40].split(",")[4:] == ["true", "ask", "60019.2", "21.5"]
    assert book[41].split(",")[2:] == [
        "1723161580140000",
        "1723161580200000",
        "false",
        "bid",
        "60000.1",
        "1.125",
    ]
    quotes = lines_of(tmp_path / "binance-futures_quotes_2024-08-09_BTCUSDT.csv.gz")
    assert quotes[0] == "exchange,symbol,timestamp,local_timestamp,ask_amount,ask_price,bid_price,bid_amount"
    assert quotes[1].split(",")[4:] == ["0.7", "60006.2", "60006.1", "1.5"]


def test_an_export_that_begins_later_begins_with_the_book_of_that_time(
    small: Committed, tmp_path: Path
) -> None:
    rows_by_file = written(
        tardis.export(Selection(small, start_ns=MIDNIGHT, end_ns=MIDNIGHT + 5 * NS), tmp_path)
    )
    (name,) = [name for name in rows_by_file if "book" in name]
    rows = [line.split(",") for line in lines_of(tmp_path / name)[1:]]
    opening = [row for row in rows if row[4] == "true"]
    assert rows[: len(opening)] == opening
    assert {row[2] for row in opening} == {str(MIDNIGHT // 1000)}
    levels = {(row[5], row[6]): row[7] for row in opening}
    assert levels["bid", "59995.1"] == "20.125"  # of the last change before midnight
    assert ("bid", "59992.1") not in levels  # it took that one away
    assert [Decimal(row[6]) for row in opening if row[5] == "bid"] == sorted(
        (Decimal(row[6]) for row in opening if row[5] == "bid"), reverse=True
    )
    assert len(rows) - len(opening) == 5 * 3


def test_plain_csv_has_every_column_as_it_is(small: Committed, tmp_path: Path) -> None:
    rows_by_file = written(plain.export(Selection(small), tmp_path))
    assert rows_by_file == {
        "trades_BTCUSDT.csv.gz": 40,
        "book_deltas_BTCUSDT.csv.gz": 160,
        "bbo_BTCUSDT.csv.gz": 80,
    }
    frame = polars.read_csv(tmp_path / "trades_BTCUSDT.csv.gz")
    assert frame["ts_recv"].to_list() == [(MIDNIGHT_S - 20 + nth) * NS + 300_000_000 for nth in range(40)]
    assert frame.columns[-2:] == ["k_partition", "k_offset"]


def events_of(files: list[Path]) -> Any:
    """Returns all events as hftbacktest's reader takes them: from the member ``data`` of an npz."""
    return np.concatenate([np.load(path)["data"] for path in files])


def test_hftbacktest_events_are_in_both_orders(spot_files: list[Path]) -> None:
    files = spot_files
    assert [path.name for path in files] == ["binance-spot_BTCUSDT_20240808.npz"]
    with np.load(files[0]) as archived:
        assert archived.files == ["data"]
    events = events_of(files)
    assert (events.dtype, events.dtype.itemsize) == (hftbacktest.EVENT, 64)
    at_exchange = events[events["ev"] & hftbacktest.AT_EXCHANGE != 0]
    at_local = events[events["ev"] & hftbacktest.AT_LOCAL != 0]
    assert (np.diff(at_exchange["exch_ts"]) >= 0).all()
    assert (np.diff(at_local["local_ts"]) >= 0).all()
    assert len(at_exchange) == len(at_local) < len(events)
    assert (events["local_ts"] >= events["exch_ts"]).all()
    assert sorted(at_exchange["px"].tolist()) == sorted(at_local["px"].tolist())


def test_an_event_without_a_time_of_the_exchange_is_at_both_sides_at_once(spot_files: list[Path]) -> None:
    """The consumer's clock is behind. A snapshot's time is that clock's, so it is moved as the others are: it would lie
    more than a second before changes that it has.
    """
    events = events_of(spot_files)
    of_snapshot = np.isin(events["ev"] & 0xFF, (hftbacktest.SNAPSHOT, hftbacktest.CLEAR))
    snapshot, others = events[of_snapshot], events[~of_snapshot]
    assert len(snapshot)
    assert (snapshot["exch_ts"] == snapshot["local_ts"]).all()
    assert (others["exch_ts"] < others["local_ts"]).mean() > 0.99
    assert not events["ival"].any()


def test_hftbacktest_trades_are_all_there_with_their_sides(spot: Committed, spot_files: list[Path]) -> None:
    events = events_of(spot_files)
    local = events[(events["ev"] & hftbacktest.AT_LOCAL != 0) & (events["ev"] & 0xFF == hftbacktest.TRADE)]
    trades = pa.concat_tables(
        pq.read_table(spot.open_file(entry), columns=["side", "price", "size"])
        for entry in spot.files("trades")
    )
    assert len(local) == trades.num_rows
    assert local["px"].tolist() == [float(price) for price in trades["price"].to_pylist()]
    assert np.where(local["ev"] & hftbacktest.BUY != 0, 1, -1).tolist() == trades["side"].to_pylist()


@pytest.mark.parametrize("flag", [hftbacktest.AT_LOCAL, hftbacktest.AT_EXCHANGE])
def test_a_book_of_hftbacktest_events_is_never_crossed(
    spot: Committed, spot_files: list[Path], flag: int
) -> None:
    """At the consumer's side and at the exchange's; and at its end it is what the exchange quoted."""
    events = events_of(spot_files)
    book: tuple[dict[float, float], dict[float, float]] = ({}, {})
    kinds = (hftbacktest.DEPTH, hftbacktest.SNAPSHOT, hftbacktest.CLEAR)
    mine = events[(events["ev"] & flag != 0) & np.isin(events["ev"] & 0xFF, kinds)]
    ends = np.append(np.diff(mine["exch_ts" if flag == hftbacktest.AT_EXCHANGE else "local_ts"]) > 0, [True])
    for event, is_last in zip(mine, ends, strict=True):
        side = book[0] if event["ev"] & hftbacktest.BUY else book[1]
        if event["ev"] & 0xFF == hftbacktest.CLEAR:
            side.clear()
        elif event["qty"]:
            side[event["px"]] = event["qty"]
        else:
            side.pop(event["px"], None)
        assert not is_last or max(book[0]) < min(book[1])
    bids = pq.read_table(spot.open_file(spot.files("bbo")[-1]), columns=["bid"])["bid"].to_pylist()[-60:]
    assert float(min(bids)) <= max(book[0]) <= float(max(bids))


def test_events_that_were_overtaken_are_there_twice(tmp_path: Path) -> None:
    day = hftbacktest.DayFile(0)
    rows = np.zeros(6, hftbacktest.EVENT)
    rows["exch_ts"], rows["local_ts"] = [10, 30, 20, 30, 40, 5], [50, 51, 52, 53, 54, 55]
    rows["ev"] = hftbacktest.TRADE
    day.add(rows[:2])
    day.add(rows[2:])
    events = events_of([day.finish(tmp_path / "day.npz").path])
    at_exchange = events[events["ev"] & hftbacktest.AT_EXCHANGE != 0]
    at_local = events[events["ev"] & hftbacktest.AT_LOCAL != 0]
    assert at_exchange["exch_ts"].tolist() == [5, 10, 20, 30, 30, 40]
    assert at_local["local_ts"].tolist() == [50, 51, 52, 53, 54, 55]
    assert len(events) == 8


def test_a_nautilus_catalog_has_its_layout_and_schema(small: Committed, tmp_path: Path) -> None:
    files = [export_file.path for export_file in nautilus.export(Selection(small), tmp_path)]
    assert [str(path.relative_to(tmp_path)) for path in files] == [
        f"data/{kind}/BTCUSDT-PERP.BINANCE/2024-08-08T23-59-40-{first}Z_2024-08-09T00-00-19-{last}Z.parquet"
        for kind, first, last in (
            ("trade_tick", "300000000", "300000000"),
            ("quote_tick", "000000000", "000001000"),
            ("order_book_delta", "000005000", "200000123"),
        )
    ]
    tables = [pq.read_table(path) for path in files]
    for table in tables:
        assert table.schema.metadata[b"instrument_id"] == b"BTCUSDT-PERP.BINANCE"
        assert table.schema.metadata[b"price_precision"] == b"1"
        assert table.schema.metadata[b"size_precision"] == b"3"
        assert not any(field.nullable for field in table.schema)
        stamps = table["ts_init"].to_numpy()
        assert (np.diff(stamps.astype(np.int64)) >= 0).all()
    trades, quotes, deltas = tables
    first = trades.slice(0, 1).to_pylist()[0]
    assert int.from_bytes(first["price"], "little") == 600002 * 10**15
    assert (first["aggressor_side"], first["trade_id"], first["ts_event"]) == (1, "1", 1723161580209000000)
    assert quotes.num_rows == 80
    assert deltas["action"].to_pylist()[:2] == [nautilus.CLEAR, nautilus.ADD]
    assert deltas["flags"].to_pylist()[:2] == [nautilus.F_SNAPSHOT] * 2
    assert deltas["flags"].to_pylist()[40] == nautilus.F_SNAPSHOT | nautilus.F_LAST
    assert deltas["action"].to_pylist()[41:44] == [nautilus.UPDATE, nautilus.DELETE, nautilus.UPDATE]
    assert deltas["flags"].to_pylist()[41:44] == [0, 0, nautilus.F_LAST]


def test_instruments_as_nautilus_names_them() -> None:
    assert nautilus.instrument_of("BTCUSDT", "binance-usdm") == "BTCUSDT-PERP.BINANCE"
    assert nautilus.instrument_of("XBT/USD", "kraken") == "XBTUSD.KRAKEN"


def test_a_symbol_of_two_venues_needs_a_choice(tmp_path: Path) -> None:
    feed = write_capture(tmp_path / "feed.gz", 3)
    rows = pa.concat_tables([captured([feed], "perp"), captured([feed], "spot")])
    archive(tmp_path / "a", rows, decoders=("perp=binance-usdm", "spot=binance-spot"))
    opened_archive = Committed.open(str(tmp_path / "a"))
    with pytest.raises(SettingsError, match="binance-spot, binance-usdm"):
        list(hftbacktest.export(Selection(opened_archive), tmp_path / "x"))
    with pytest.raises(ArchiveError, match="nothing of ETHUSDT; symbols: BTCUSDT"):
        list(tardis.export(Selection(opened_archive, ["ETHUSDT"]), tmp_path / "x"))
    (tmp_path / "y").mkdir()
    names = written(tardis.export(Selection(opened_archive), tmp_path / "y"))
    assert {name.split("_")[0] for name in names} == {"binance", "binance-futures"}


def test_the_command(small: Committed, tmp_path: Path) -> None:
    words = ("--format", "tardis", "--out", str(tmp_path / "t"), "--to", "2024-08-09")
    assert [row["rows"] for row in rows_said("export", small.store.root, *words)] == [20, 100, 40]
