"""The messages of each venue, and the rows that they become."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from blumfeld_sink_spark.decoders import catalog
from tests.plugins.sink_spark.decoding import STAMP_US, errors, rows_in, rows_of
from tests.plugins.sink_spark.results import changed
from tests.plugins.sink_spark.venue_messages import MESSAGES, VENUES, enveloped

STAMP = STAMP_US * 1_000
MS = 1_000_000
D = Decimal
TABLES = {
    "trades": ("ts_event", "symbol", "trade_id", "side", "price", "size", "flags"),
    "agg_trades": ("ts_event", "symbol", "trade_id", "side", "price", "size", "flags"),
    "bbo": ("ts_event", "symbol", "update_id", "bid", "bid_size", "ask", "ask_size"),
    "book_deltas": (
        "ts_event", "symbol", "first_id", "last_id", "prev_id", "side", "price", "size", "is_snapshot", "flags",
    ),
}  # fmt: skip
"""The columns that :data:`ROWS` has of each table."""
AT = {
    "bitstamp": 1_641_343_721_243_000_000,
    "coinbase": 1_618_677_817_270_697_000,
    "kraken": 1_534_614_057_321_597_000,
}
"""Times in ns of some messages."""


def decoded(name: str, message: str | bytes, key: bytes | None = b"BTCUSDT") -> Any:
    """Returns one message decoded; asserts that it isn't rejected."""
    result = catalog.find(name).decode(rows_of([message], key))
    assert not errors(result)
    return result


def plain(result: Any, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row.get(column) for column in columns or TABLES[table]) for row in rows_in(result, table)]


def numbered(result: Any) -> list[tuple[Any, ...]]:
    """Returns symbol, stream, first, last and previous id of each sequence."""
    if result.sequences is None:
        return []
    columns = ("symbol", "stream", "first_id", "last_id", "prev_id")
    return [tuple(row[column] for column in columns) for row in result.sequences.to_pylist()]


def levels(
    at: int,
    symbol: str,
    ids: tuple[Any, ...],
    *sides: tuple[Any, ...],
    whole: bool = False,
    flags: Any = None,
) -> Any:
    """Returns rows of a book: ``ids`` are first, last and previous id, each of ``sides`` is side, price and size."""
    return [(at, symbol, *ids, side, D(price), D(size), whole, flags) for side, price, size in sides]


NO_IDS = (None, None, None)
BINANCE = ((1, "1.5", 2), (1, "1.4", 0), (-1, "1.6", 3))
ROWS: dict[tuple[str, str], tuple[str, list[tuple[Any, ...]], list[tuple[Any, ...]]]] = {
    ("binance-spot", "trade"): (
        "trades", [(19 * MS, "BTCUSDT", 9, -1, D("0.1"), D(3), 0)], [("BTCUSDT", "trade", 9, 9, None)]
    ),
    ("binance-spot", "aggTrade"): (
        "agg_trades", [(19 * MS, "X", 7, 1, D("7.6"), D(137), 2)], [("X", "aggTrade", 7, 7, None)]
    ),
    ("binance-spot", "depth"): (
        "book_deltas", levels(20 * MS, "X", (5, 7, None), *BINANCE), [("X", "depth", 5, 7, None)]
    ),
    ("binance-spot", "bookTicker"): (
        "bbo", [(STAMP, "X", 4, D("1.5"), D(2), None, None)], [("X", "bookTicker", 4, 4, None)]
    ),
    ("binance-usdm", "trade"): (
        "trades", [(19 * MS, "X", 9, 1, D("61.8"), D("0.5"), 0)], [("X", "trade", 9, 9, None)]
    ),
    ("binance-usdm", "aggTrade"): (
        "agg_trades", [(19 * MS, "X", 7, 1, D("7.6"), D(137), 2)], [("X", "aggTrade", 7, 7, None)]
    ),
    ("binance-usdm", "depth"): (
        "book_deltas", levels(19 * MS, "X", (5, 7, 3), *BINANCE), [("X", "depth", 5, 7, 3)]
    ),
    ("binance-usdm", "next depth"): (
        "book_deltas", levels(19 * MS, "X", (8, 9, 7), *BINANCE), [("X", "depth", 8, 9, 7)]
    ),
    ("binance-usdm", "bookTicker"): (
        "bbo", [(19 * MS, "X", 4, D("1.5"), D(2), D("1.6"), D(3))], [("X", "bookTicker", 4, 4, None)]
    ),
    ("bitstamp", "trade"): (
        "trades", [(AT["bitstamp"], "ETHUSD", 21, -1, D("3800.75"), D("0.6"), 0)], [("ETHUSD", "trade", 21, 21, None)]
    ),
    ("bitstamp", "diff"): ("book_deltas", levels(AT["bitstamp"], "ETHUSD", NO_IDS, (1, 1, 2)), []),
    ("bitstamp", "book"): ("book_deltas", levels(AT["bitstamp"], "ETHUSD", NO_IDS, (1, 1, 2), whole=True), []),
    ("coinbase", "match"): (  # it names the maker's side, so the aggressor is the other
        "trades", [(AT["coinbase"], "SKL-GBP", 8, 1, D("0.5762"), D(335), 0)], [("SKL-GBP", "match", 8, 8, None)]
    ),
    ("coinbase", "last_match"): ("trades", [(AT["coinbase"], "SKL-GBP", 8, 1, D("0.5762"), D(335), 4)], []),
    ("coinbase", "snapshot"): (
        "book_deltas", levels(STAMP, "A-B", NO_IDS, (1, 1, 4), (-1, 2, 3), whole=True), []
    ),
    ("coinbase", "l2update"): ("book_deltas", levels(1500 * MS, "A-B", NO_IDS, (-1, 2, 0), (1, 1, 5)), []),
    ("coinbase", "ticker"): (
        "bbo", [(1000 * MS, "A-B", 6, D(1), None, D(2), None)], [("A-B", "ticker", 6, 6, None)]
    ),
    ("coinbase", "ticker without a time"): (
        "bbo", [(STAMP, "A-B", 6, D(1), None, D(2), None)], [("A-B", "ticker", 6, 6, None)]
    ),
    ("hyperliquid", "trades"): ("trades", [(15 * MS, "BTC", 9, -1, D(105056), D("0.1"), 0)], []),
    ("hyperliquid", "l2Book"): (
        "book_deltas", levels(15 * MS, "BTC", NO_IDS, (1, 2, 3), (-1, 4, 1), whole=True), []
    ),
    ("hyperliquid", "bbo"): ("bbo", [(15 * MS, "BTC", None, D(2), D(3), None, None)], []),
    ("kraken", "v1 bids"): (  # the latest time of its levels; the checksum's 32 bits as flags
        "book_deltas", levels(1500 * MS, "A/B", NO_IDS, (1, "0.5", 0), (1, "0.4", 1), flags=-1), []
    ),
    ("kraken", "v1 both sides"): (
        "book_deltas", levels(2500 * MS, "A/B", NO_IDS, (1, 2, 1), (-1, 3, 1), flags=7), []
    ),
    ("kraken", "v1 snapshot"): (
        "book_deltas", levels(2000 * MS, "A/B", NO_IDS, (1, 2, 1), (-1, 3, 1), whole=True), []
    ),
    ("kraken", "v1 trades"): (
        "trades",
        [(AT["kraken"], "X/U", None, -1, D("5541.2"), D("0.1"), 0), (3500 * MS, "X/U", None, 1, D(1), D(2), 0)],
        [],
    ),
    ("kraken", "v1 spread"): ("bbo", [(2250 * MS, "X/U", None, D("1.5"), D(7), D("1.6"), D(8))], []),
    ("kraken", "v2 book"): (  # numbers by their digits
        "book_deltas",
        levels(1500 * MS, "A/B", NO_IDS, (1, "0.1", "1e-8"), (-1, "12345678901234567.123456789", 0), flags=7),
        [],
    ),
    ("kraken", "v2 snapshot"): ("book_deltas", levels(1000 * MS, "X", NO_IDS, (1, 1, 2), whole=True, flags=1), []),
    ("kraken", "v2 snapshot without a time"): (
        "book_deltas", levels(STAMP, "X", NO_IDS, (1, 1, 2), whole=True, flags=1), []
    ),
    ("kraken", "v2 trades"): (
        "trades",
        [(1000 * MS, "A/B", 41, -1, D("1.5"), D(2), 0), (1000 * MS, "A/B", 42, 1, D("1.6"), D(3), 0)],
        [("A/B", "trade", 41, 41, None), ("A/B", "trade", 42, 42, None)],
    ),
    ("kraken", "v2 trades of a snapshot"): (
        "trades",
        [(1000 * MS, "A/B", 41, -1, D("1.5"), D(2), 4), (1000 * MS, "A/B", 42, 1, D("1.6"), D(3), 4)],
        [],
    ),
    ("kraken", "v2 ticker"): ("bbo", [(STAMP, "A/B", None, D("1.5"), D(2), D("1.6"), D(3))], []),
    ("okx", "trades"): (
        "trades", [(1500 * MS, "X", 12, 1, D("1.5"), D(2), 2)], [("X", "trades", 10, 12, None)]
    ),
    ("okx", "books"): (
        "book_deltas",
        levels(1500 * MS, "BTC-USDT", (None, 9, -1), (1, 2, 0), (-1, 3, 1), whole=True, flags=-67),
        [("BTC-USDT", "books", None, 9, -1)],
    ),
    ("okx", "older books"): (
        "book_deltas", levels(1500 * MS, "BTC-USDT", NO_IDS, (1, 2, 0), (-1, 3, 1), flags=-67), []
    ),
    ("okx", "books5"): ("book_deltas", levels(5 * MS, "X", (None, 8, -1), (1, 2, 7), whole=True), []),
    ("okx", "bbo-tbt"): ("bbo", [(5 * MS, "X", 8, D(2), D(7), None, None)], [("X", "bbo-tbt", 8, 8, None)]),
    ("okx", "tickers"): ("bbo", [(5 * MS, "X", None, None, None, D(3), D(4))], []),
}  # fmt: skip
"""Table, rows and sequences of each message of :data:`MESSAGES`. A price of 0 in a quote is an empty side."""
TIMELESS = [
    ("binance-spot", "bookTicker"),
    ("coinbase", "snapshot"),
    ("coinbase", "ticker without a time"),
    ("kraken", "v2 snapshot without a time"),
    ("kraken", "v2 ticker"),
]
"""Messages that name no time of the venue."""
EVERY = [(venue, kind) for venue, messages in MESSAGES.items() for kind in messages]
ENVELOPED = [(venue, kind) for venue, kind in EVERY if venue.startswith("binance")]


def check(venue: str, kind: str, result: Any) -> None:
    table, rows, sequences = ROWS[venue, kind]
    assert list(result.tables) == [table]
    assert plain(result, table) == rows
    assert {row[0] for row in plain(result, table, "venue")} == {venue}
    assert numbered(result) == sequences


@pytest.mark.parametrize(("venue", "kind"), EVERY)
def test_a_message_becomes_its_rows_and_its_sequence(venue: str, kind: str) -> None:
    """A row says where its time isn't the venue's. In the real spot capture the two clocks are 1.27 s apart."""
    result = decoded(venue, MESSAGES[venue][kind])
    check(venue, kind, result)
    for table in (*result.tables.values(), result.sequences):
        stamped = set(table.column("ts_event_is_recv").to_pylist()) if table is not None else set()
        assert stamped <= {(venue, kind) in TIMELESS}


@pytest.mark.parametrize(("venue", "kind"), ENVELOPED)
def test_a_message_in_the_envelope_of_a_combined_stream_becomes_the_same(venue: str, kind: str) -> None:
    check(venue, kind, decoded(venue, enveloped(MESSAGES[venue][kind])))


@pytest.mark.parametrize(("venue", "kind"), TIMELESS)
def test_a_records_time_beyond_int64_is_held_at_the_last_that_fits(venue: str, kind: str) -> None:
    """Kafka's ms may hold µs by a mistake of the producer: as ns they don't fit, and once wrapped around to 1772."""
    rows = rows_of([MESSAGES[venue][kind]])
    beyond = changed(rows, timestamp=[1_746_194_730_000_000 * 1000])
    [table] = catalog.find(venue).decode(beyond).tables.values()
    assert set(table.column("ts_event").to_pylist()) == {9_223_372_036_854_775_000}


@pytest.mark.parametrize(("word", "flags"), [("MARKET", 0), ("INSURANCE_FUND", 1), ("NA", 1)])
def test_usdm_trades_that_are_none_of_the_market_are_flagged(word: str, flags: int) -> None:
    message = f'{{"e":"trade","E":20,"T":19,"s":"X","t":9,"p":"0","q":"0","X":"{word}","m":true}}'
    assert plain(decoded("binance-usdm", message), "trades", "flags", "price") == [(flags, D(0))]


def test_a_depth_message_without_levels_is_numbered_all_the_same() -> None:
    result = decoded("binance-spot", '{"e":"depthUpdate","E":20,"s":"X","U":5,"u":7,"b":[],"a":[]}')
    assert result.tables == {}
    assert numbered(result) == [("X", "depth", 5, 7, None)]


SNAPSHOT = '{"lastUpdateId":9,%s"bids":[["1.5","2"]],"asks":[["1.6","3"]]}'


@pytest.mark.parametrize(
    ("venue", "message", "at"),
    [("binance-spot", SNAPSHOT % "", STAMP), ("binance-usdm", SNAPSHOT % '"E":20,"T":19,', 19 * MS)],
)
def test_a_snapshot_by_rest_takes_its_symbol_from_the_key_or_is_rejected(
    venue: str, message: str, at: int
) -> None:
    result = decoded(venue, message, key=b"btcusdt")
    wanted = levels(at, "BTCUSDT", (None, 9, None), (1, "1.5", 2), (-1, "1.6", 3), whole=True)
    assert (plain(result, "book_deltas"), numbered(result)) == (wanted, [])
    for key in (None, b"", b" ", b"\xff"):
        assert list(errors(catalog.find(venue).decode(rows_of([message], key)))) == [0]


def test_bitstamps_book_by_rest_takes_its_symbol_from_the_key() -> None:
    rest = '{"timestamp": "1", "microtimestamp": "1641343721243000", "bids": [["1", "2"]], "asks": []}'
    book = plain(decoded("bitstamp", rest, b"ethusd"), "book_deltas", "symbol", "is_snapshot")
    assert book == [("ETHUSD", True)]


def test_microseconds_are_known_by_their_size() -> None:
    message = '{"e":"trade","E":1,"s":"X","t":9,"p":"1","q":"3","T":%d,"m":true,"M":true}'
    values = [message % 1_723_161_256_321, message % 1_723_161_256_321_987]
    times = plain(catalog.find("binance-spot").decode(rows_of(values)), "trades", "ts_event")
    assert times == [(1_723_161_256_321_000_000,), (1_723_161_256_321_987_000,)]


def test_trades_of_a_snapshot_beside_others_keep_their_flag() -> None:
    values = [MESSAGES["kraken"][kind] for kind in ("v2 trades of a snapshot", "v2 trades")]
    result = catalog.find("kraken").decode(rows_of(values))
    assert plain(result, "trades", "row", "flags") == [(0, 4), (0, 4), (1, 0), (1, 0)]


def test_krakens_first_channel_says_the_depth() -> None:
    """v2 says it in no message of a book."""
    for kind, depths in (("v1 snapshot", [(25,)] * 2), ("v2 snapshot", [(None,)])):
        assert plain(decoded("kraken", MESSAGES["kraken"][kind]), "book_deltas", "depth") == depths


_PARTIAL = '{"stream":"%s","data":{"e":"depthUpdate","E":20,"T":19,"s":"X","U":5,"u":7,"pu":3,"b":[["1","2"]],"a":[]}}'


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("binance-spot", '{"result":null,"id":1}'),
        ("binance-spot", '{"stream":"x@kline_1m","data":{"e":"kline","s":"X"}}'),
        ("binance-usdm", '{"stream":"!ticker@arr","data":[{"e":"24hrTicker"}]}'),
        ("coinbase", '{"type":"subscriptions","channels":[]}'),
        ("kraken", '{"event":"heartbeat"}'),
        ("kraken", '{"method":"subscribe","success":true}'),
        ("kraken", '[1,{"a":[]},"ticker","A/B"]'),
        ("okx", '{"event":"subscribe","arg":{"channel":"books","instId":"X"}}'),
        ("bitstamp", '{"event":"bts:subscription_succeeded","channel":"live_trades_ethusd","data":{}}'),
        ("hyperliquid", '{"channel":"subscriptionResponse","data":{}}'),
        ("hyperliquid", "Websocket connection established."),
        ("okx", '{"event":"notice","code":"64008","msg":"The connection will soon be closed"}'),
        *((venue, text) for venue in VENUES for text in ("ping", "pong", '"pong"', "pong\n")),
        (
            "kraken",
            '{"method":"pong","req_id":7,"time_in":"2023-09-24T14:10:23Z","time_out":"2023-09-24T14:10:23Z"}',
        ),
        ("kraken", '{"event":"pong","reqid":7}'),
        ("bitstamp", '{"event":"bts:heartbeat","channel":"","data":{"status":"success"}}'),
        (
            "coinbase",
            '{"type":"heartbeat","last_trade_id":0,"product_id":"A-B","sequence":90,"time":"2022-08-04T15:25:05Z"}',
        ),
        ("binance-spot", '{"stream":"x@depth5","data":{"lastUpdateId":1,"bids":[["1","2"]],"asks":[]}}'),
        *(
            ("binance-usdm", _PARTIAL % stream)
            for stream in ("x@depth5", "x@depth10@100ms", "x@depth20@500ms")
        ),
        (
            "binance-usdm",
            '{"data":{"e":"depthUpdate","E":20,"T":19,"s":"X","U":5,"u":7,"pu":3,"b":[],"a":[]},"stream":"x@depth5"}',
        ),
    ],
)
def test_answers_and_kinds_that_no_table_holds_are_passed_over(name: str, message: str) -> None:
    result = decoded(name, message)
    assert (result.tables, result.sequences) == ({}, None)
    assert [passed.row for passed in result.passed_over] == [0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("binance-spot", '{"code":2,"msg":"Invalid request"}'),
        ("coinbase", '{"type":"error","message":"no"}'),
        (
            "coinbase",
            '{"type":"l2update","product_id":"A","changes":[["up","1","2"]],"time":"1970-01-01T00:00:01Z"}',
        ),
        (
            "coinbase",
            '{"type":"l2update","product_id":"A","changes":[["buy","1"]],"time":"1970-01-01T00:00:01Z"}',
        ),
        ("coinbase", '{"type":"l2update","product_id":"A","changes":[],"time":"yesterday"}'),
        ("kraken", '[1,{"c":"7"},"book-10","A/B"]'),
        ("kraken", '[1,{"a":[["3","1"]]},"book-10","A/B"]'),
        ("kraken", '[1,{"a":[["3","1","2.0"]]},"zz":5,"book-10","A/B"]'),
        ("kraken", '[1,{"a":[["3","1","2.0"]],"c":"4294967296"},"book-10","A/B"]'),
        ("okx", '{"event":"error","code":"60012","msg":"no"}'),
        (
            "okx",
            '{"arg":{"channel":"trades","instId":"X"},"data":[{"tradeId":"x","px":"1","sz":"2","side":"buy","ts":"5"}]}',
        ),
        ("okx", '{"arg":{"channel":"funding-rate","instId":"X"},"data":[]}'),
        ("bitstamp", '{"event":"bts:nothing","channel":5}x'),
        (
            "bitstamp",
            '{"event":"data","channel":"diff_order_book_","data":{"microtimestamp":"1","bids":[],"asks":[]}}',
        ),
        ("hyperliquid", '{"channel":"l2Book","data":{"coin":"BTC","levels":[[]],"time":15}}'),
        ("hyperliquid", '{"channel":"error","data":"no"}'),
    ],
)
def test_a_text_that_is_no_message_of_the_venue_is_rejected(name: str, message: str) -> None:
    assert list(errors(catalog.find(name).decode(rows_of([message])))) == [0]
