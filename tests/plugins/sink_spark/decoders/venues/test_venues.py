"""Small messages of our own for each venue, and the rows that they become."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from blumfeld_sink_spark.decoders import catalog
from tests.plugins.sink_spark import venue_messages
from tests.plugins.sink_spark.decoding import STAMP_US, errors, rows_in, rows_of

STAMP = STAMP_US * 1_000
D = Decimal


def one(name: str, message: str | bytes, key: bytes | None = b"BTCUSDT") -> Any:
    """One message decoded; not rejected."""
    decoded = catalog.find(name).decode(rows_of([message], key))
    assert not errors(decoded)
    return decoded


def plain(decoded: Any, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """These columns of a table."""
    return [tuple(row.get(column) for column in columns) for row in rows_in(decoded, table)]


def numbered(decoded: Any) -> list[tuple[Any, ...]]:
    """Sequences: symbol, stream, first, last, prev."""
    if decoded.sequences is None:
        return []
    return [
        (row["symbol"], row["stream"], row["first_id"], row["last_id"], row["prev_id"])
        for row in decoded.sequences.to_pylist()
    ]


TRADE = ("ts_event", "venue", "symbol", "trade_id", "side", "price", "size", "flags")
LEVEL = (
    "ts_event",
    "symbol",
    "first_id",
    "last_id",
    "prev_id",
    "side",
    "price",
    "size",
    "is_snapshot",
    "flags",
)
QUOTE = ("ts_event", "symbol", "update_id", "bid", "bid_size", "ask", "ask_size")
MS = 1_000_000


_PARTIAL = '{"stream":"%s","data":{"e":"depthUpdate","E":20,"T":19,"s":"X","U":5,"u":7,"pu":3,"b":[["1","2"]],"a":[]}}'


def wrapped(stream: str, message: str) -> list[str]:
    """Bare, and in the envelope of a combined stream."""
    return [message, f'{{"stream":"{stream}","data":{message}}}']


@pytest.mark.parametrize("where", [0, 1])
def test_binance_spot_trade(where: int) -> None:
    message = wrapped(
        "btcusdt@trade",
        '{"e":"trade","E":20,"s":"BTCUSDT","t":9,"p":"0.10000000","q":"3","T":19,"m":true,"M":true}',
    )[where]
    decoded = one("binance-spot", message)
    assert plain(decoded, "trades", *TRADE) == [
        (19 * MS, "binance-spot", "BTCUSDT", 9, -1, D("0.1"), D(3), 0)
    ]
    assert numbered(decoded) == [("BTCUSDT", "trade", 9, 9, None)]


@pytest.mark.parametrize("where", [0, 1])
@pytest.mark.parametrize("name", ["binance-spot", "binance-usdm"])
def test_binance_aggregate_trade_has_a_table_of_its_own(name: str, where: int) -> None:
    message = wrapped(
        "x@aggTrade",
        '{"e":"aggTrade","E":20,"a":7,"s":"X","p":"7.6","q":"137","f":5,"l":6,"T":19,"m":false}',
    )[where]
    decoded = one(name, message)
    assert list(decoded.tables) == ["agg_trades"]
    assert plain(decoded, "agg_trades", *TRADE) == [(19 * MS, name, "X", 7, 1, D("7.6"), D(137), 2)]
    assert numbered(decoded) == [("X", "aggTrade", 7, 7, None)]


@pytest.mark.parametrize(("word", "flags"), [("MARKET", 0), ("INSURANCE_FUND", 1), ("NA", 1)])
def test_usdm_trades_that_are_none_of_the_market_are_flagged(word: str, flags: int) -> None:
    message = f'{{"e":"trade","E":20,"T":19,"s":"X","t":9,"p":"0","q":"0","X":"{word}","m":true}}'
    assert plain(one("binance-usdm", message), "trades", "flags", "price") == [(flags, D(0))]


@pytest.mark.parametrize("where", [0, 1])
def test_binance_depth_gives_bids_then_asks(where: int) -> None:
    message = '{"e":"depthUpdate","E":20,%s"s":"X","U":5,"u":7,%s"b":[["1.5","2"],["1.4","0.000"]],"a":[["1.6","3"]]}'
    spot = one("binance-spot", wrapped("x@depth", message % ("", ""))[where])
    usdm = one("binance-usdm", wrapped("x@depth", message % ('"T":19,', '"pu":3,'))[where])
    for decoded, prev, at in ((spot, None, 20 * MS), (usdm, 3, 19 * MS)):
        assert plain(decoded, "book_deltas", *LEVEL) == [
            (at, "X", 5, 7, prev, 1, D("1.5"), D(2), False, None),
            (at, "X", 5, 7, prev, 1, D("1.4"), D(0), False, None),
            (at, "X", 5, 7, prev, -1, D("1.6"), D(3), False, None),
        ]
        assert numbered(decoded) == [("X", "depth", 5, 7, prev)]


def test_a_depth_message_without_levels_is_numbered_all_the_same() -> None:
    decoded = one("binance-spot", '{"e":"depthUpdate","E":20,"s":"X","U":5,"u":7,"b":[],"a":[]}')
    assert decoded.tables == {}
    assert numbered(decoded) == [("X", "depth", 5, 7, None)]


@pytest.mark.parametrize("where", [0, 1])
def test_binance_book_ticker_takes_the_record_s_time_on_spot_and_a_price_of_0_as_an_empty_side(
    where: int,
) -> None:
    spot = one(
        "binance-spot", wrapped("x@bookTicker", '{"u":4,"s":"X","b":"1.5","B":"2","a":"0.00","A":"0"}')[where]
    )
    assert plain(spot, "bbo", *QUOTE) == [(STAMP, "X", 4, D("1.5"), D(2), None, None)]
    usdm = one(
        "binance-usdm",
        wrapped(
            "x@bookTicker",
            '{"e":"bookTicker","u":4,"s":"X","b":"1.5","B":"2","a":"1.6","A":"3","T":19,"E":20}',
        )[where],
    )
    assert plain(usdm, "bbo", *QUOTE) == [(19 * MS, "X", 4, D("1.5"), D(2), D("1.6"), D(3))]
    assert numbered(spot) == numbered(usdm) == [("X", "bookTicker", 4, 4, None)]


def test_a_depth_snapshot_takes_its_symbol_from_the_key_or_is_rejected() -> None:
    message = '{"lastUpdateId":9,%s"bids":[["1.5","2"]],"asks":[["1.6","3"]]}'
    spot = one("binance-spot", message % "", key=b"btcusdt")
    assert plain(spot, "book_deltas", *LEVEL) == [
        (STAMP, "BTCUSDT", None, 9, None, 1, D("1.5"), D(2), True, None),
        (STAMP, "BTCUSDT", None, 9, None, -1, D("1.6"), D(3), True, None),
    ]
    usdm = one("binance-usdm", message % '"E":20,"T":19,')
    assert plain(usdm, "book_deltas", "ts_event") == [(19 * MS,)] * 2
    assert numbered(spot) == numbered(usdm) == []
    for key in (None, b"", b" ", b"\xff"):
        found = errors(catalog.find("binance-spot").decode(rows_of([message % ""], key)))
        assert list(found) == [0]


def test_microseconds_are_known_by_their_size() -> None:
    message = '{"e":"trade","E":1,"s":"X","t":9,"p":"1","q":"3","T":%d,"m":true,"M":true}'
    values = [message % 1_723_161_256_321, message % 1_723_161_256_321_987]
    found = rows_in(catalog.find("binance-spot").decode(rows_of(values)), "trades")
    assert [row["ts_event"] for row in found] == [1_723_161_256_321_000_000, 1_723_161_256_321_987_000]


def test_coinbase_match_names_the_maker_s_side_so_the_aggressor_is_the_other() -> None:
    message = (
        '{"type":"%s","trade_id":8,"maker_order_id":"f","taker_order_id":"d","side":"sell","size":"335",'
        '"price":"0.5762","product_id":"SKL-GBP","sequence":2,"time":"2021-04-17T16:43:37.270697Z"}'
    )
    at = 1_618_677_817_270_697_000
    match, last = one("coinbase", message % "match"), one("coinbase", message % "last_match")
    assert plain(match, "trades", *TRADE) == [(at, "coinbase", "SKL-GBP", 8, 1, D("0.5762"), D(335), 0)]
    assert numbered(match) == [("SKL-GBP", "match", 8, 8, None)]
    assert plain(last, "trades", *TRADE) == [(at, "coinbase", "SKL-GBP", 8, 1, D("0.5762"), D(335), 4)]
    assert numbered(last) == []


def test_coinbase_books_and_ticker() -> None:
    snapshot = one("coinbase", '{"type":"snapshot","product_id":"A-B","asks":[["2","3"]],"bids":[["1","4"]]}')
    assert plain(snapshot, "book_deltas", *LEVEL) == [
        (STAMP, "A-B", None, None, None, 1, D(1), D(4), True, None),
        (STAMP, "A-B", None, None, None, -1, D(2), D(3), True, None),
    ]
    update = one(
        "coinbase",
        '{"type":"l2update","product_id":"A-B","changes":[["sell","2","0.0"],["buy","1","5"]],'
        '"time":"1970-01-01T00:00:01.5Z"}',
    )
    assert plain(update, "book_deltas", "ts_event", "side", "price", "size", "is_snapshot") == [
        (1_500_000_000, -1, D(2), D(0), False),
        (1_500_000_000, 1, D(1), D(5), False),
    ]
    ticker = one(
        "coinbase",
        '{"type":"ticker","sequence":6,"product_id":"A-B","price":"1","best_bid":"1","best_ask":"2","side":"buy",'
        '"time":"1970-01-01T00:00:01Z","trade_id":8,"last_size":"335"}',
    )
    assert plain(ticker, "bbo", *QUOTE) == [(1_000_000_000, "A-B", 6, D(1), None, D(2), None)]
    assert numbered(ticker) == [("A-B", "ticker", 6, 6, None)]


def test_kraken_v1_book_takes_the_latest_time_of_its_levels_and_the_checksum_as_flags() -> None:
    update = one(
        "kraken", '[1920,{"b":[["0.5","0.0","1.5","r"],["0.4","1","1.25"]],"c":"4294967295"},"book-10","A/B"]'
    )
    assert plain(update, "book_deltas", *LEVEL) == [
        (1_500_000_000, "A/B", None, None, None, 1, D("0.5"), D(0), False, -1),
        (1_500_000_000, "A/B", None, None, None, 1, D("0.4"), D(1), False, -1),
    ]
    both = one("kraken", '[1,{"a":[["3","1","2.0"]]},{"b":[["2","1","2.5"]],"c":"7"},"book-10","A/B"]')
    assert plain(both, "book_deltas", "ts_event", "side", "flags") == [
        (2_500_000_000, 1, 7),
        (2_500_000_000, -1, 7),
    ]
    whole = one("kraken", '[1,{"as":[["3","1","2.0"]],"bs":[["2","1","1.0"]]},"book-10","A/B"]')
    assert plain(whole, "book_deltas", "ts_event", "side", "is_snapshot", "flags") == [
        (2_000_000_000, 1, True, None),
        (2_000_000_000, -1, True, None),
    ]


def test_kraken_v1_trades_and_spread() -> None:
    trades = one(
        "kraken",
        '[0,[["5541.2","0.1","1534614057.321597","s","l",""],["1","2","3.5","b","m",""]],"trade","XBT/USD"]',
    )
    assert plain(trades, "trades", *TRADE) == [
        (1_534_614_057_321_597_000, "kraken", "XBT/USD", None, -1, D("5541.2"), D("0.1"), 0),
        (3_500_000_000, "kraken", "XBT/USD", None, 1, D(1), D(2), 0),
    ]
    spread = one("kraken", '[0,["1.5","1.6","2.25","7","8"],"spread","XBT/USD"]')
    assert plain(spread, "bbo", *QUOTE) == [(2_250_000_000, "XBT/USD", None, D("1.5"), D(7), D("1.6"), D(8))]


def test_kraken_v2_reads_numbers_by_their_digits() -> None:
    book = one(
        "kraken",
        '{"channel":"book","type":"update","data":[{"symbol":"A/B","bids":[{"price":0.1,"qty":1e-8}],"asks":'
        '[{"price":12345678901234567.123456789,"qty":0}],"checksum":7,"timestamp":"1970-01-01T00:00:01.5Z"}]}',
    )
    assert plain(book, "book_deltas", *LEVEL) == [
        (1_500_000_000, "A/B", None, None, None, 1, D("0.1"), D("1e-8"), False, 7),
        (1_500_000_000, "A/B", None, None, None, -1, D("12345678901234567.123456789"), D(0), False, 7),
    ]
    message = (
        '{"channel":"trade","type":"%s","data":[{"symbol":"A/B","side":"sell","price":1.5,"qty":2,"ord_type":"limit",'
        '"trade_id":41,"timestamp":"1970-01-01T00:00:01Z"},{"symbol":"A/B","side":"buy","price":1.6,"qty":3,'
        '"ord_type":"limit","trade_id":42,"timestamp":"1970-01-01T00:00:01Z"}]}'
    )
    trades = one("kraken", message % "update")
    assert plain(trades, "trades", "trade_id", "side", "price", "flags") == [
        (41, -1, D("1.5"), 0),
        (42, 1, D("1.6"), 0),
    ]
    assert numbered(trades) == [("A/B", "trade", 41, 41, None), ("A/B", "trade", 42, 42, None)]
    mixed = catalog.find("kraken").decode(rows_of([message % "snapshot", message % "update"]))
    assert plain(mixed, "trades", "row", "flags") == [(0, 4), (0, 4), (1, 0), (1, 0)]
    ticker = one(
        "kraken",
        '{"channel":"ticker","type":"update","data":[{"symbol":"A/B","bid":1.5,"bid_qty":2,"ask":1.6,"ask_qty":3}]}',
    )
    assert plain(ticker, "bbo", *QUOTE) == [(STAMP, "A/B", None, D("1.5"), D(2), D("1.6"), D(3))]


def test_okx_books_are_chained_and_older_ones_aren_t_numbered() -> None:
    message = (
        '{"arg":{"channel":"books","instId":"BTC-USDT"},"action":"%s","data":[{"asks":[["3","1","0","1"]],'
        '"bids":[["2","0","0","0"]],"ts":"1500"%s,"checksum":-67}]}'
    )
    new = one("okx", message % ("snapshot", ',"seqId":9,"prevSeqId":-1'))
    assert plain(new, "book_deltas", *LEVEL) == [
        (1500 * MS, "BTC-USDT", None, 9, -1, 1, D(2), D(0), True, -67),
        (1500 * MS, "BTC-USDT", None, 9, -1, -1, D(3), D(1), True, -67),
    ]
    assert numbered(new) == [("BTC-USDT", "books", None, 9, -1)]
    assert numbered(one("okx", message % ("update", ""))) == []


def test_okx_trades_quotes_and_whole_books() -> None:
    trade = one(
        "okx",
        '{"arg":{"channel":"trades","instId":"X"},"data":[{"instId":"X","tradeId":"12","px":"1.5","sz":"2",'
        '"side":"buy","ts":"1500","count":"3"}]}',
    )
    assert plain(trade, "trades", *TRADE) == [(1500 * MS, "okx", "X", 12, 1, D("1.5"), D(2), 2)]
    assert numbered(trade) == [("X", "trades", 10, 12, None)]
    best = one(
        "okx",
        '{"arg":{"channel":"bbo-tbt","instId":"X"},"data":[{"asks":[],"bids":[["2","7","0","1"]],"ts":"5","seqId":8}]}',
    )
    assert plain(best, "bbo", *QUOTE) == [(5 * MS, "X", 8, D(2), D(7), None, None)]
    ticker = one(
        "okx",
        '{"arg":{"channel":"tickers","instId":"X"},"data":[{"askPx":"3","askSz":"4","bidPx":"","bidSz":"","ts":"5"}]}',
    )
    assert plain(ticker, "bbo", *QUOTE) == [(5 * MS, "X", None, None, None, D(3), D(4))]
    five = one(
        "okx",
        '{"arg":{"channel":"books5","instId":"X"},"data":[{"asks":[],"bids":[["2","7","0","1"]],"ts":"5","seqId":8}]}',
    )
    assert plain(five, "book_deltas", "side", "last_id", "prev_id", "is_snapshot") == [(1, 8, -1, True)]


_TICKER = '{"type":"ticker","sequence":6,"product_id":"X","best_bid":"1","best_ask":"2"%s}'
_KRAKEN = (
    '{"channel":"book","type":"snapshot","data":[{"symbol":"X","bids":[{"price":1,"qty":2}],"asks":[],'
    '"checksum":1%s}]}'
)
_TIME = ',"time":"1970-01-01T00:00:01Z"'
_STAMP = ',"timestamp":"1970-01-01T00:00:01Z"'
TIMELESS = [
    ("binance-spot", '{"u":4,"s":"X","b":"1.5","B":"2","a":"2","A":"1"}'),
    ("binance-spot", '{"lastUpdateId":6,"bids":[["1","2"]],"asks":[]}'),
    ("binance-usdm", '{"lastUpdateId":6,"bids":[["1","2"]],"asks":[]}'),
    ("coinbase", '{"type":"snapshot","product_id":"X","asks":[["2","3"]],"bids":[]}'),
    ("coinbase", _TICKER % ""),
    ("kraken", _KRAKEN % ""),
    (
        "kraken",
        '{"channel":"ticker","type":"update","data":[{"symbol":"X","bid":1,"bid_qty":2,"ask":2,"ask_qty":3}]}',
    ),
]


@pytest.mark.parametrize(("name", "message"), TIMELESS)
def test_a_message_without_a_time_of_the_venue_says_so(name: str, message: str) -> None:
    """Its ``ts_event`` is another clock's: in the real spot capture 1.27 s from that of the trades beside it."""
    decoded = one(name, message)
    found = [row["ts_event_is_recv"] for table in decoded.tables.values() for row in table.to_pylist()]
    assert found == [True]
    if decoded.sequences is not None:
        assert decoded.sequences.column("ts_event_is_recv").to_pylist() == [True]


@pytest.mark.parametrize("name", venue_messages.VENUES)
def test_a_message_with_a_time_of_the_venue_says_so(name: str) -> None:
    """Each of the messages, but those that name none."""
    timeless = {text for _, text in TIMELESS} | {
        '{"u":400900217,"s":"BNBUSDT","b":"25.35190000","B":"31.21","a":"25.3652","A":"40.66"}',
        '{"type":"snapshot","product_id":"A-B","asks":[["2","3"]],"bids":[["1","4"]]}',
        '{"channel":"ticker","type":"update","data":[{"symbol":"A/B","bid":1.5,"bid_qty":2,"ask":1.6,"ask_qty":3}]}',
    }
    for message in venue_messages.of(name):
        tables = one(name, message).tables.values()
        found = {row["ts_event_is_recv"] for table in tables for row in table.to_pylist()}
        assert found == {message.decode() in timeless}, message


def test_the_same_message_with_and_without_its_time() -> None:
    for name, message, time in (("coinbase", _TICKER, _TIME), ("kraken", _KRAKEN, _STAMP)):
        ((at, is_recv),) = plain(one(name, message % time), *_TABLE[name], "ts_event", "ts_event_is_recv")
        assert (at, is_recv) == (1_000 * MS, False)


_TABLE = {"coinbase": ("bbo",), "kraken": ("book_deltas",)}


def test_krakens_first_channel_says_the_depth() -> None:
    """v2 says it in no message of a book."""
    first = one("kraken", '[1,{"as":[["3","1","2.0"]],"bs":[["2","1","1.0"]]},"book-25","A/B"]')
    assert plain(first, "book_deltas", "side", "depth") == [(1, 25), (-1, 25)]
    assert plain(one("kraken", _KRAKEN % ""), "book_deltas", "depth") == [(None,)]


@pytest.mark.parametrize(("name", "message"), TIMELESS)
def test_a_record_s_time_beyond_int64_is_held_at_the_last_that_fits(name: str, message: str) -> None:
    """Kafka's ms may hold µs by a mistake of the producer: as ns they don't fit, and once wrapped around to 1772."""
    rows = rows_of([message])
    at = rows.schema.get_field_index("timestamp")
    beyond = pa.array([1_746_194_730_000_000 * 1000], pa.int64()).cast(rows.schema.field(at).type)
    decoded = catalog.find(name).decode(rows.set_column(at, rows.schema.field(at), beyond))
    [table] = decoded.tables.values()
    assert table.column("ts_event").to_pylist() == [9_223_372_036_854_775_000]


def test_bitstamp() -> None:
    trade = one(
        "bitstamp",
        '{"data":{"id":21,"timestamp":"1641343721","amount":0.6,"amount_str":"0.60000000","price":3800.75,"price_str":'
        '"3800.75","type":1,"microtimestamp":"1641343721243000"},"channel":"live_trades_ethusd","event":"trade"}',
    )
    at = 1_641_343_721_243_000_000
    assert plain(trade, "trades", *TRADE) == [(at, "bitstamp", "ETHUSD", 21, -1, D("3800.75"), D("0.6"), 0)]
    book = (
        '{"data":{"timestamp":"1","microtimestamp":"1641343721243000","bids":[["1","2"]],"asks":[]},'
        '"channel":"%s_ethusd","event":"data"}'
    )
    for channel, whole in (("diff_order_book", False), ("order_book", True)):
        found = plain(one("bitstamp", book % channel), "book_deltas", "ts_event", "symbol", "is_snapshot")
        assert found == [(at, "ETHUSD", whole)]
    rest = '{"timestamp": "1", "microtimestamp": "1641343721243000", "bids": [["1", "2"]], "asks": []}'
    assert plain(one("bitstamp", rest, b"ethusd"), "book_deltas", "symbol", "is_snapshot") == [
        ("ETHUSD", True)
    ]


def test_hyperliquid() -> None:
    trade = one(
        "hyperliquid",
        '{"channel":"trades","data":[{"coin":"BTC","side":"A","px":"105056.0","sz":"0.1","time":15,"hash":"0","tid":9}]}',
    )
    assert plain(trade, "trades", *TRADE) == [(15 * MS, "hyperliquid", "BTC", 9, -1, D(105056), D("0.1"), 0)]
    book = one(
        "hyperliquid",
        '{"channel":"l2Book","data":{"coin":"BTC","levels":[[{"n":5,"px":"2","sz":"3"}],[{"n":1,"px":"4","sz":"1"}]],"time":15}}',
    )
    assert plain(book, "book_deltas", "side", "price", "is_snapshot") == [(1, D(2), True), (-1, D(4), True)]
    best = one(
        "hyperliquid",
        '{"channel":"bbo","data":{"coin":"BTC","time":15,"bbo":[{"n":5,"px":"2","sz":"3"},null]}}',
    )
    assert plain(best, "bbo", *QUOTE) == [(15 * MS, "BTC", None, D(2), D(3), None, None)]


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
        *((venue, text) for venue in venue_messages.VENUES for text in ("ping", "pong", '"pong"', "pong\n")),
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
def test_answers_and_kinds_that_nobody_asked_for_are_passed_over(name: str, message: str) -> None:
    decoded = one(name, message)
    assert (decoded.tables, decoded.sequences) == ({}, None)
    assert [passed.row for passed in decoded.passed_over] == [0]


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
def test_what_is_none_of_a_venue_s_messages_is_rejected(name: str, message: str) -> None:
    assert list(errors(catalog.find(name).decode(rows_of([message])))) == [0]
