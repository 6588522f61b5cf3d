"""DBN: exact values, names of the day, refused messages; and Databento's own files."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow.compute as pc
import pytest

from blumfeld.spi.decoders import Decoded
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.compression.payload import compress
from blumfeld_sink_spark.apply import Applied, decode_rows
from blumfeld_sink_spark.book.ladder import Ladder
from blumfeld_sink_spark.book.sync import Sync
from blumfeld_sink_spark.decoders.dbn.decoder import DbnDecoder
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.tables import RESTART
from blumfeld_sink_spark.testing.decoder_messages import FIRST_OFFSET, STAMP_US, batch, rejections_of
from tests.plugins.sink_spark import dbn_files as dbn
from tests.shared_facts import shared_path

SETTINGS = ArchiveSettings(topics=("ticks",))
STATED = {"k_partition": 0, "k_offset": 1000}


def applied(*values: bytes) -> Applied:
    return decode_rows([DbnDecoder()], batch(list(values)), SETTINGS)


def rows(name: str, *values: bytes) -> list[dict[str, Any]]:
    row_dicts: list[dict[str, Any]] = applied(*values).tables[name].to_pylist()
    return row_dicts


def decoded(*values: bytes) -> Decoded:
    return DbnDecoder().decode(batch(list(values)))


def test_a_trade_alone_is_exact() -> None:
    """The price is exact to the ninth digit, receipt comes from the record, venue and symbol from its ids."""
    assert rows("trades", dbn.trade(price=3_720_250_000_001)) == [
        {
            "ts_event": dbn.EVENT_NS,
            "ts_recv": dbn.RECEIVED_NS,
            "ts_sent": None,
            "ts_event_is_recv": False,
            "venue": "publisher-1",
            "symbol": "5482",
            "trade_id": None,
            "side": -1,
            "price": Decimal("3720.250000001"),
            "size": Decimal(5),
            "flags": 129 << 8,
            **STATED,
        }
    ]


@pytest.mark.parametrize("price", [0, -1, 1, 2**63 - 2, -(2**63)])
def test_prices_of_any_size_and_sign(price: int) -> None:
    """Spreads trade below zero; the greatest number but one is a price."""
    (row,) = rows("trades", dbn.trade(price=price))
    assert row["price"] == Decimal(price).scaleb(-9)


@pytest.mark.parametrize(("letter", "side"), [("A", -1), ("B", 1), ("N", 0)])
def test_the_side_of_a_trade_is_the_aggressors(letter: str, side: int) -> None:
    assert [row["side"] for row in rows("trades", dbn.trade(side=letter))] == [side]


def test_an_empty_side_of_the_book_is_null() -> None:
    quote = dbn.event(1, action="A", levels=[(dbn.UNDEF_PRICE, dbn.BOOK[1], 0, 11)])
    (row,) = rows("bbo", quote)
    assert (row["bid"], row["bid_size"], row["ask"], row["ask_size"]) == (
        None,
        None,
        Decimal("3720.5"),
        Decimal(11),
    )


def test_a_quote_that_trades_is_a_trade_too() -> None:
    made = applied(dbn.quote(0x01, action="T"), dbn.quote(0x01, action="A"))
    assert made.tables["bbo"].num_rows == 2
    assert made.tables["trades"].column("k_offset").to_pylist() == [1000]


def test_a_sampled_quote_is_of_its_instant() -> None:
    """Its own time is that of the last trade, and there may have been none."""
    (row,) = rows("bbo", dbn.quote(0xC3, event_ns=dbn.UNDEF_TIME))
    assert row["ts_event"] == row["ts_recv"] == dbn.RECEIVED_NS


def test_ten_levels_are_a_snapshot_without_the_empty_ones() -> None:
    levels = rows("book_deltas", dbn.ten_levels())
    assert [row["side"] for row in levels] == [1] * 6 + [-1] * 10
    assert [row["size"] for row in levels[:6]] == [Decimal(24 + nth) for nth in range(6)]
    assert levels[6]["price"] == Decimal("3720.5")
    assert all(row["is_snapshot"] and row["first_id"] == row["last_id"] == 7 for row in levels)
    assert {row["prev_id"] for row in levels} == {RESTART}


def test_each_book_of_ten_levels_is_the_book() -> None:
    """Also where records have the number of one packet, or a number below that of another publisher's."""
    books = [dbn.ten_levels(sequence=number, first=nth) for nth, number in enumerate((7, 7, 3))]
    deltas = applied(*books).tables["book_deltas"]
    for count in (1, 2, 3):
        ladder = Ladder()
        ladder.take(Sync().feed(deltas.filter(pc.less(deltas["k_offset"], FIRST_OFFSET + count))))
        (bid,) = ladder.side(1, 1).column("size").to_pylist()
        assert bid == 24 + count - 1


def test_orders_keep_what_was_done_with_them() -> None:
    """One that trades is a trade too; a clear has no price."""
    made = applied(dbn.order("A", "B"), dbn.order("T", "A"), dbn.order("R", "N", dbn.UNDEF_PRICE))
    orders = made.tables["orders"].to_pylist()
    assert [(row["action"], row["side"], row["price"]) for row in orders] == [
        ("add", 1, Decimal("3722.75")),
        ("trade", -1, Decimal("3722.75")),
        ("clear", 0, None),
    ]
    assert [row["side"] for row in made.tables["trades"].to_pylist()] == [-1]


def test_a_bar_has_no_time_of_receipt_of_its_own() -> None:
    """So it gets the message's. Its volume is unsigned."""
    (row,) = rows("ohlcv", dbn.bar())
    assert row["ts_recv"] == STAMP_US * 1000
    assert (row["interval_ns"], row["open"], row["volume"]) == (60 * 10**9, Decimal(1), Decimal(2**63 + 1))


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("by_id", [False, True])
def test_a_file_says_venue_and_symbol(version: int, by_id: bool) -> None:
    """Whichever way its symbols were asked for; on another day the instrument has no name."""
    tomorrow = dbn.EVENT_NS + 86_400 * 10**9
    late = dbn.trade(event_ns=tomorrow, received_ns=tomorrow)
    value = dbn.file_of(dbn.trade() + late, version, by_id=by_id)
    trades = rows("trades", compress(Codec.ZSTD, value) if version == 2 else value)
    assert [(row["venue"], row["symbol"]) for row in trades] == [("GLBX.MDP3", "ESH1"), ("GLBX.MDP3", "5482")]


def test_two_files_in_a_batch_keep_their_own_names() -> None:
    values = dbn.file_of(dbn.trade(), symbol="ESH1"), dbn.trade(), dbn.file_of(dbn.trade(), symbol="OTHER")
    assert [row["symbol"] for row in rows("trades", *values)] == ["ESH1", "5482", "OTHER"]


def test_records_of_many_kinds_stay_in_order() -> None:
    value = b"".join(dbn.trade(price=nth) if nth % 3 else dbn.quote(1, "T", price=nth) for nth in range(200))
    assert [row["price"] * 10**9 for row in rows("trades", value)] == list(range(200))


def test_a_record_may_be_longer_than_its_struct() -> None:
    """A live feed adds the time at which it sent it."""
    sent = dbn.trade(more=bytes(8))
    trades = rows("trades", sent, sent + dbn.trade(size=9))
    assert [row["size"] for row in trades] == [5, 5, 9]


def test_sequences_are_told_for_each_message() -> None:
    """The lowest and the highest of each instrument and schema, with the latest times."""
    value = (
        dbn.trade(sequence=5)
        + dbn.trade(sequence=9, received_ns=dbn.RECEIVED_NS + 1)
        + dbn.quote(1, "A", sequence=6)
    )
    sequence_rows = applied(dbn.trade(sequence=4), value).sequences.to_pylist()
    assert [
        (row["offset"], row["stream"], row["first_id"], row["last_id"], row["ts_recv"])
        for row in sequence_rows
    ] == [
        (1000, "trades", 4, 4, dbn.RECEIVED_NS),
        (1001, "trades", 5, 9, dbn.RECEIVED_NS + 1),
        (1001, "mbp-1", 6, 6, dbn.RECEIVED_NS),
    ]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"", "an empty message"),
        (dbn.trade()[:-4], "cut off"),
        (dbn.trade() + b"\x0c", "cut off"),
        (dbn.trade() + dbn.status(), "no table holds status records"),
        (dbn.header(0x77, 16), "rtype 0x77 is no record"),
        (dbn.header(0x00, 16), "which needs 48"),
        (bytes(16), "which needs 48"),
        (dbn.trade(side="x"), "side is none of A, B, N"),
        (dbn.trade(price=dbn.UNDEF_PRICE), "without a price"),
        (dbn.trade(event_ns=2**63), "whose time is no time"),
        (dbn.trade(event_ns=dbn.UNDEF_TIME, received_ns=dbn.UNDEF_TIME), "whose time is no time"),
        (dbn.order("?"), "action is none of"),
        (dbn.order(order_id=2**63), "order_id needs more"),
        (b"DBN\x04" + bytes(100), "version 4 of DBN; known: 1 to 3"),
        (dbn.file_of(b"")[:-1], "cut off or damaged"),
        (b"DBN", "cut off or damaged"),
        (b"\x28\xb5\x2f\xfd\x00\x00", "damaged zstd data"),
        (compress(Codec.ZSTD, b"no records, whatever they are"), "no record of DBN"),
    ],
)
def test_what_is_refused_says_why(value: bytes, error: str) -> None:
    """Whole: the good trade beside it in the message is refused too, the message beside it isn't."""
    made = decoded(dbn.trade(), value)
    ((row, refusal),) = rejections_of(made)
    assert row == 1
    assert error in refusal
    assert made.tables["trades"].column("row").to_pylist() == [0]


def test_the_session_is_skipped() -> None:
    made = decoded(
        dbn.system(), dbn.system() + dbn.trade() + dbn.header(0x16, 80) + bytes(64), dbn.file_of(b"")
    )
    assert not made.rejected
    assert made.tables["trades"].column("row").to_pylist() == [1]


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blumfeld_sink_spark.decoders.dbn.walk.DECOMPRESSED_BYTES_MAX", 1 << 20)
    ((_, error),) = rejections_of(decoded(compress(Codec.ZSTD, bytes(1 << 21))))
    assert "more than the 1048576 bytes" in error


COUNTS = {
    "bbo-1m": {"bbo": 4},
    "bbo-1s": {"bbo": 4},
    "cbbo-1s": {"bbo": 2},
    "cmbp-1": {"bbo": 2},
    "definition": {"quarantine": 1},
    "imbalance": {"quarantine": 1},
    "mbo": {"orders": 2},
    "mbp-1": {"bbo": 2},
    "mbp-10": {"bbo": 2, "book_deltas": 40},
    "ohlcv-1d": {},
    "ohlcv-1h": {"ohlcv": 2},
    "ohlcv-1m": {"ohlcv": 2},
    "ohlcv-1s": {"ohlcv": 2},
    "statistics": {"quarantine": 1},
    "status": {"quarantine": 1},
    "tbbo": {"bbo": 2, "trades": 2},
    "trades": {"trades": 2},
}


@pytest.mark.parametrize("schema", COUNTS)
def test_databentos_own_files(schema: str) -> None:
    """Version 2 plain and version 3 compressed give the same rows, of ESH1 on 28 December 2020."""
    folder = shared_path("market-data/dbn")
    plain = applied((folder / f"test_data.{schema}.dbn").read_bytes()).tables
    newer = applied((folder / f"test_data.{schema}.v3.dbn.zst").read_bytes()).tables
    assert {name: table.num_rows for name, table in plain.items()} == COUNTS[schema]
    for name in set(plain) - {"quarantine"}:
        assert plain[name].equals(newer[name])
        assert set(plain[name].column("venue").to_pylist()) == {"GLBX.MDP3"}
        assert set(plain[name].column("symbol").to_pylist()) == {"ESH1"}


def test_the_first_trades_of_databentos_file() -> None:
    trades = rows("trades", (shared_path("market-data/dbn") / "test_data.trades.dbn").read_bytes())
    assert [(row["ts_event"], row["price"], row["size"], row["side"], row["flags"]) for row in trades] == [
        (1_609_160_400_098_821_953, Decimal("3720.25"), Decimal(5), -1, 129 << 8),
        (1_609_160_400_107_665_963, Decimal("3720.25"), Decimal(21), -1, 129 << 8),
    ]
