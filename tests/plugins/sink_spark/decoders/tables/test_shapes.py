"""Columns that the short way gives equal the parser's."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld_sink_spark.decoders.tables import levels as lv
from blumfeld_sink_spark.decoders.tables import shapes
from blumfeld_sink_spark.decoders.tables.columns import BadMessageError
from blumfeld_sink_spark.decoders.tables.digits import NotPlainError, plain_decimals, plain_integers
from blumfeld_sink_spark.decoders.tables.exact import DECIMAL
from blumfeld_sink_spark.decoders.tables.json_table import Kind, _by_parser
from blumfeld_sink_spark.decoders.venues.binance import BinanceSpot, BinanceUsdm
from blumfeld_sink_spark.decoders.venues.coinbase import Coinbase
from tests.everyday import examples

pytestmark = pytest.mark.archive

TRADE, ENVELOPED_TRADE = BinanceUsdm.kinds[0], BinanceUsdm.kinds[4]
DEPTH, ENVELOPED_DEPTH = BinanceUsdm.kinds[2], BinanceUsdm.kinds[6]
TICKER, SNAPSHOT, COINBASE = BinanceSpot.kinds[3], BinanceSpot.kinds[8], Coinbase.kinds[2]

TRADES = '{"e":"trade","E":%s,"T":%s,"s":"%s","t":%s,"p":"%s","q":"%s","X":"%s","m":%s}'
DEPTHS = '{"e":"depthUpdate","E":%s,"T":%s,"s":"%s","U":%s,"u":2,"pu":1,"b":%s,"a":%s}'


def enveloped(message: str) -> str:
    return f'{{"stream":"x@y","data":{message}}}'


def plain(columns: dict[str, Any]) -> dict[str, Any]:
    """Columns as lists; two sides of a book as one list of (message, side, price, size)."""
    lists = {}
    names = [name for name, column in columns.items() if isinstance(column, lv.Side) or _is_levels(column)]
    if names:
        bids, asks = sorted(names, reverse=True)
        levels = lv.levels(columns[bids], columns[asks])
        lists["levels"] = list(
            zip(
                levels.message.tolist(), levels.side.to_pylist(), levels.price.to_pylist(), levels.size.to_pylist(),
                strict=True,
            )
        )  # fmt: skip
    for name, column in columns.items():
        if name not in names:
            lists[name] = (column if isinstance(column, pa.Array) else column.strings()).to_pylist()
    return lists


def _is_levels(column: Any) -> bool:
    return isinstance(column, pa.Array) and pa.types.is_list(column.type)


def agree(messages: list[str] | list[bytes], kind: Kind) -> bool:
    """Returns True where the short way read the messages. Then the parser must read the same."""
    values = pa.array([m.encode() if isinstance(m, str) else m for m in messages], pa.binary())
    read_columns = shapes.read(values, kind.schema, kind.inside)
    if read_columns is not None:
        assert plain(read_columns) == plain(_by_parser(values, kind))
    return read_columns is not None


def test_a_feed_is_read_by_its_shape() -> None:
    trades = [TRADES % (10, n, "BTCUSDT", n * 7, f"{n}.25", "0.006", "MARKET", "true") for n in (1, 99, 1234)]
    assert agree(trades, TRADE)
    assert agree([enveloped(trade) for trade in trades], ENVELOPED_TRADE)
    levels = ["[]", '[["1.5","2"]]', '[["61800.20","0.001"],["7","8.25"],["1e3","123456789012.5"]]']
    depths = [DEPTHS % (1, 2, "X", 3, bids, asks) for bids in levels for asks in levels]
    assert agree(depths, DEPTH)
    assert agree([enveloped(depth) for depth in depths], ENVELOPED_DEPTH)
    assert agree(depths[:1] * 4, DEPTH)
    assert agree(
        [f'{{"u":4,"s":"{name}","b":"1.5","B":"2","a":"0.00","A":"0"}}' for name in ("X", "LONGER", "")],
        TICKER,
    )
    assert agree(['{"lastUpdateId":9,"bids":[["1.5","2"]],"asks":[["1.6","3"]]}'] * 3, SNAPSHOT)
    assert agree(
        ['{"type":"snapshot","product_id":"A","asks":[["2","3"],["3","1"]],"bids":[["1","4"]]}'] * 2, COINBASE
    )


@pytest.mark.parametrize(
    "message",
    [
        '{"e":"trade",,"T":1,"s":"X"}',
        '{"e":"trade","T":1,}',
        '{"e":"trade","T":01}',
        '{"e":"trade","T":-1}',
        '{"e":"trade","T":1}}',
        '{"e":"trade" ,"T":1}',
        '{"e":"trade","T":1,"T":2}',
        '{"e":"tr\\u0061de","T":1}',
        '{"e":"trade","T":[1]}',
        '{"e":"tradé","T":1}',
        '{"e":"trade","T":"1"}',
        '{"e":5,"T":1}',
        '{"m":"true"}',
        '{"T":true}',
        '{"T":9223372036854775808}',
        '"e"',
        "[]",
        "",
    ],
)
def test_what_has_no_plain_shape_is_left_to_the_parser(message: str) -> None:
    assert not agree([message] * 4, TRADE)


@pytest.mark.parametrize(
    "other",
    [
        DEPTHS % (1, 2, "X", 3, '[["1","2"]]', '[["1","2"],["3"]]'),
        DEPTHS % (1, 2, "X", 3, '[["1","2"]]', '[["1","2"],["3","4","5"]]'),
        DEPTHS % (1, 2, "X", 3, '[["1","2"]]', '[["1","2"] ,["3","4"]]'),
        DEPTHS % (1, 2, "X", 3, '[["1","2"]]', '[["1","2"]["3","4"]]'),
        DEPTHS % (1, 2, "X", 3, '[["1","2"]]', '[["1","2"] ["3","4"]]'),
        DEPTHS % (1, 2, "X", 3, '[["1","2"]]', '[["1";"2"],["3","4"]]'),
        DEPTHS % (1, 2, "X", 3, '[["1","2"]]', '[["1",2,"3","4"]]'),
        DEPTHS % (1, 2, "X", 3, '[["1","2"],["a","2"]]', "[]"),
        DEPTHS % (1, 2, "X", 3, '[["1","2"]],"c":[["1","2"]]', "[]"),
        DEPTHS % (1, 2, "X", 3, "[[]]", "[]"),
        DEPTHS % (1, 2, "X", 3, '"b"', '"a"'),
        DEPTHS % (1, 2, "X", 3, "[]", "[]") + "]}",
        (DEPTHS % (1, 2, "X", 3, "[]", "[]"))[:-1],
        (DEPTHS % (1, 2, "X", 3, "[]", "[]"))[:-5],
        '{"e":"depthUpdate"}',
    ],
)
@pytest.mark.parametrize("at", [0, 1, 3])
def test_one_message_of_another_shape_leaves_all_to_the_parser(other: str, at: int) -> None:
    good = [DEPTHS % (1, 2, "X", 3, '[["1","2"]]', '[["3","4"],["5","6"]]')] * 3
    assert agree(good, DEPTH)
    assert not agree([*good[:at], other, *good[at:]], DEPTH)


def test_runs_are_compared_to_their_end() -> None:
    trade = enveloped(TRADES % (1, 2, "X", 3, "1.5", "2", "MARKET", "true"))
    assert not agree([trade, trade.replace('{"e":', '{"f":'), trade, trade], ENVELOPED_TRADE)


def test_lists_under_another_key_are_not_taken_for_the_book() -> None:
    stray = '{"data":{"e":"depthUpdate","T":2,"s":"X"},"x":{"b":[["1","2"]],"a":[["3","4"]]}}'
    assert not agree([stray] * 4, ENVELOPED_DEPTH)
    doubled = '{"e":"depthUpdate","a":"1","b":[["1","2"]],"a":[["3","4"]]}'
    assert not agree([doubled] * 4, DEPTH)


PIECES = st.sampled_from(
    [
        "",
        "0",
        "7",
        "01",
        "-1",
        "1.5",
        ".5",
        "5.",
        "1e3",
        "true",
        "null",
        "123456789",
        "61800.30",
        " ",
        '"',
        "a",
        ",",
        "}",
        "é",
        "\\",
    ]
)
LEVELS = st.lists(st.tuples(PIECES, PIECES), max_size=3).map(
    lambda pairs: "[" + ",".join(f'["{price}","{size}"]' for price, size in pairs) + "]"
)


@given(
    rows=st.lists(
        st.tuples(*[PIECES] * 7, st.sampled_from(["true", "false", "null", "1"])), min_size=1, max_size=4
    )
)
@settings(max_examples=examples(40), deadline=None)
def test_it_never_reads_a_trade_that_the_parser_reads_otherwise(rows: list[tuple[str, ...]]) -> None:
    _agree_or_both_refuse([TRADES % row for row in rows], TRADE)


@given(rows=st.lists(st.tuples(*[PIECES] * 4, LEVELS, LEVELS), min_size=1, max_size=4))
@settings(max_examples=examples(40), deadline=None)
def test_it_never_reads_a_book_that_the_parser_reads_otherwise(rows: list[tuple[str, ...]]) -> None:
    _agree_or_both_refuse([DEPTHS % row for row in rows], DEPTH)


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    text = bytearray((DEPTHS % (1, 2, "X", 3, '[["1","2"]]', '[["3","4"],["5.5","6"]]')).encode())
    at = draw(st.integers(0, len(text) - 1))
    text[at : at + draw(st.integers(0, 2))] = draw(
        st.sampled_from([b"", b"]", b"[", b'"', b",", b"}", b"1", b"a", b":"])
    )
    return bytes(text)


@given(damaged=st.lists(_damaged(), min_size=1, max_size=3), same=st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_it_never_reads_what_the_parser_refuses(damaged: list[bytes], same: bool) -> None:
    good = (DEPTHS % (1, 2, "X", 3, '[["1","2"]]', "[]")).encode()
    _agree_or_both_refuse(damaged * 2 if same else [good, *damaged, good], DEPTH)


def _agree_or_both_refuse(messages: Any, kind: Kind) -> None:
    values = pa.array([m.encode() if isinstance(m, str) else m for m in messages], pa.binary())
    read_columns = shapes.read(values, kind.schema, kind.inside)
    if read_columns is None:
        return
    try:
        expected = plain(_by_parser(values, kind))
    except (pa.ArrowException, BadMessageError):
        with pytest.raises((pa.ArrowException, BadMessageError)):
            plain(read_columns)  # a level that is no number is found when it is asked for
        return
    assert plain(read_columns) == expected


def _laid_out(texts: list[str]) -> tuple[Any, Any, Any, Any]:
    """Bytes, words, begins and ends of texts one after the other."""
    heap = b" " * 24 + b"|".join(text.encode() for text in texts) + b" " * 24
    data = np.frombuffer(heap, np.uint8)
    words = np.ndarray((len(data) - 7,), "<u8", heap, strides=(1,))
    sizes = np.array([len(text) for text in texts], np.int32)
    begins = (24 + np.cumsum(sizes + 1) - sizes - 1).astype(np.int32)
    return data, words, begins, begins + sizes


def _digits(texts: list[str]) -> list[Decimal]:
    made = plain_decimals(*_laid_out(texts))
    buffers = [None, pa.py_buffer(np.ascontiguousarray(made))]
    numbers: list[Decimal] = pa.Array.from_buffers(DECIMAL, len(texts), buffers).to_pylist()
    return numbers


@given(texts=st.lists(st.from_regex(r"[0-9]{1,16}", fullmatch=True), min_size=1, max_size=20))
@settings(max_examples=examples(60), deadline=None)
def test_plain_integers_are_exact(texts: list[str]) -> None:
    assert plain_integers(*_laid_out(texts)[1:]).tolist() == [int(text) for text in texts]


@pytest.mark.parametrize("text", ["", "-1", "1.5", "a", "1 ", "12345678901234567", "1234567x90123456"])
def test_integers_that_are_not_plain_are_not_taken(text: str) -> None:
    with pytest.raises(NotPlainError):
        plain_integers(*_laid_out(["12", text, "1234567890"])[1:])


PLAIN = st.from_regex(r"[0-9]{1,8}(\.[0-9]{0,8})?", fullmatch=True)


@given(texts=st.lists(PLAIN, min_size=1, max_size=20))
@settings(max_examples=examples(60), deadline=None)
def test_plain_numbers_are_exact(texts: list[str]) -> None:
    assert _digits(texts) == [Decimal(text) for text in texts]


@pytest.mark.parametrize(
    "text", ["", ".", ".5", "-1", "+1", "1e3", "1.2.3", "a", "1 ", "123456789", "1.123456789", "1/2", "1:2"]
)
def test_numbers_that_are_not_plain_are_not_taken(text: str) -> None:
    for texts in ([text], ["1.5", text], [text, "1"]):
        with pytest.raises(NotPlainError):
            _digits(texts)


def test_many_numbers_are_read_piece_by_piece() -> None:
    texts = [f"{n % 77_777}.{n % 1000:03}" for n in range(40_000)]
    assert _digits(texts) == [Decimal(text) for text in texts]
