"""A good message survives beside any bad one, and the verdict on a message never depends on its neighbours."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld_sink_spark.decoders import catalog
from tests.everyday import examples
from tests.plugins.sink_spark.decoding import errors, rows_in, rows_of

pytestmark = pytest.mark.archive

DECODER = catalog.find("binance-usdm")


def trade(number: int, more: str = "") -> str:
    return (
        '{"stream":"btcusdt@trade","data":{"e":"trade","E":1723161256322,"T":1723161256321,"s":"BTCUSDT",'
        f'"t":{number},"p":"61800.30","q":"0.006","X":"MARKET","m":false{more}}}}}'
    )


def depth(number: int) -> str:
    return (
        '{"stream":"btcusdt@depth@0ms","data":{"e":"depthUpdate","E":1723161256299,"T":1723161256298,'
        f'"s":"BTCUSDT","U":{number},"u":{number},"pu":{number - 1},'
        '"b":[["58710.20","0.014"],["61496.50","0"]],"a":[["61800.20","2.507"]]}}'
    )


GOOD = trade(7)
BAD: dict[str, str | bytes] = {
    "truncated": GOOD[:-20],
    "truncated where an object ends": GOOD[:-1],
    "empty": "",
    "spaces alone": "  \n ",
    "no JSON": "hello",
    "a word": "null",
    "a number": "12",
    "two objects": GOOD + GOOD,
    "two objects on two lines": GOOD + "\n" + GOOD,
    "a number where a decimal string is expected": GOOD.replace('"61800.30"', "61800.30"),
    "a string where a number is expected": GOOD.replace('"t":7', '"t":"7"'),
    "a fraction where an id is expected": GOOD.replace('"t":7', '"t":7.5'),
    "an id past 64 bits": GOOD.replace('"t":7', '"t":9223372036854775808'),
    "a time past 64 bits of ns": GOOD.replace("1723161256321", "9223372036854775807"),
    "a time before the epoch": GOOD.replace("1723161256321", "-1"),
    "a missing key": GOOD.replace('"q":"0.006",', ""),
    "a null": GOOD.replace('"0.006"', "null"),
    "no data": '{"stream":"btcusdt@trade"}',
    "null data": '{"stream":"btcusdt@trade","data":null}',
    "data that is a word": '{"stream":"btcusdt@trade","data":"x"}',
    "no number": GOOD.replace("61800.30", "dear"),
    "an empty number": GOOD.replace("61800.30", ""),
    "infinity": GOOD.replace("61800.30", "inf"),
    "more digits before the point than fit": GOOD.replace("61800.30", "123456789012345678901.5"),
    "more digits after the point than fit": GOOD.replace("61800.30", "0.1234567890123456789"),
    "an unknown kind": GOOD.replace('"e":"trade"', '"e":"tirade"'),
    "a key that is read, doubled": GOOD.replace('"t":7', '"t":7,"t":8'),
    "a newline inside a string": GOOD.replace("BTCUSDT", "BTC\nUSDT"),
    "an empty symbol": GOOD.replace("BTCUSDT", ""),
    "a lone surrogate": GOOD.replace("BTCUSDT", "\\ud800"),
    "no UTF-8": GOOD.encode().replace(b"BTCUSDT", b"BTC\xff"),
    "no UTF-8 where nothing is read": GOOD.encode().replace(b"MARKET", b"\xc3\x28"),
    "a byte order mark": b"\xef\xbb\xbf" + GOOD.encode(),
    "a very deep one": '{"e":' + "[" * 100_000,
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_message_is_rejected_and_its_neighbours_are_not(name: str) -> None:
    decoded = DECODER.decode(rows_of([trade(1), depth(5), BAD[name], trade(2), depth(6)]))
    assert list(errors(decoded)) == [2]
    assert [(row["row"], row["trade_id"]) for row in rows_in(decoded, "trades")] == [(0, 1), (3, 2)]
    assert [row["row"] for row in rows_in(decoded, "book_deltas")] == [1, 1, 1, 4, 4, 4]
    assert decoded.sequences is not None
    assert decoded.sequences.column("row").to_pylist() == [0, 1, 3, 4]


@pytest.mark.parametrize("name", BAD)
def test_the_words_are_the_same_alone_and_among_many_and_are_one_line(name: str) -> None:
    alone = DECODER.decode(rows_of([BAD[name]]))
    among = DECODER.decode(rows_of([trade(n) for n in range(40)] + [BAD[name]] * 2))
    assert not alone.tables
    assert errors(among) == {40: errors(alone)[0], 41: errors(alone)[0]}
    assert "\n" not in errors(alone)[0]
    assert 5 < len(errors(alone)[0]) <= 300


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("truncated", "no JSON: it is cut off after 133 characters"),
        ("no JSON", "no JSON: Expecting value at 0 of 5, where 'hello' is"),
        ("two objects", 'no JSON: it ends at 153 of 306, and \'{"stream":"btcusdt@t\' follows'),
        ("a byte order mark", "no JSON: it begins with a byte order mark"),
        (
            "a newline inside a string",
            'no JSON: Invalid control character at 90 of 154, where \'\\nUSDT","t":7,"p":"61\' is',
        ),
        ("a string where a number is expected", "trade: data.t is a text and must be a number"),
        ("an id past 64 bits", "trade: t '9223372036854775808' is no whole number that fits"),
        ("no number", "trade: p 'dear' is no decimal number"),
        ("an empty number", "trade: a number is an empty text"),
        (
            "more digits before the point than fit",
            "trade: a number has more digits before the point than the table keeps",
        ),
        ("empty", "the value is empty"),
        ("a missing key", "trade: q is missing or null"),
        (
            "a number where a decimal string is expected",
            "trade: data.p is a number and must be a text",
        ),
        (
            "more digits after the point than fit",
            "trade: a number has more digits behind the point than the table keeps",
        ),
        ("an unknown kind", "unknown kind e='tirade'"),
        ("a key that is read, doubled", "trade: data.t is there twice"),
        ("no UTF-8", "no UTF-8: byte 0xff at 90"),
    ],
)
def test_the_words_say_what_is_wrong(name: str, words: str) -> None:
    assert errors(DECODER.decode(rows_of([BAD[name]]))) == {0: words}


def test_halves_of_a_message_that_would_be_whole_when_joined_are_both_rejected() -> None:
    """Neither a break between tokens nor one after ``}``, with a doubled object to make the count right again."""
    at = GOOD.index('"t":7')
    for head, tail in ((GOOD[:at], GOOD[at:]), (GOOD[:-1], GOOD[-1:])):
        values = [trade(1), head, tail, trade(2) + trade(3), trade(4)]
        decoded = DECODER.decode(rows_of(values))
        assert list(errors(decoded)) == [1, 2, 3]
        assert [row["trade_id"] for row in rows_in(decoded, "trades")] == [1, 4]


def test_a_value_that_ends_where_the_next_goes_on_is_not_joined_to_it() -> None:
    """Two values that are one object together, one that is two: as many objects as values, all wrong."""
    head = '{"stream":"x","e":"trade","data":'
    tail = '{"stream":"y","e":"trade","T":5,"s":"X","t":1,"p":"1","q":"1","m":true}}'
    decoded = DECODER.decode(rows_of([head, tail, GOOD + GOOD]))
    assert (list(errors(decoded)), decoded.tables) == ([0, 1, 2], {})


def test_white_space_between_tokens_is_json_and_does_no_harm() -> None:
    spaced = "\n\t " + trade(2).replace(",", " ,\r\n ").replace(":", " : ") + "\n\n"
    broken = trade(4).replace('"data":{', '"data":{\n')
    decoded = DECODER.decode(rows_of([trade(1), spaced, trade(3), broken, trade(5)]))
    assert not errors(decoded)
    trades = rows_in(decoded, "trades")
    assert [(row["row"], row["trade_id"]) for row in trades] == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    assert len({(row["price"], row["ts_event"], row["symbol"], row["side"]) for row in trades}) == 1


def test_keys_in_another_order_and_keys_that_nobody_reads_are_fine() -> None:
    other = (
        '{"extra":[1,{"e":"depthUpdate"}],"m":true,"q":"1","p":"2","t":3,"s":"X","T":1723161256321,"e":"trade",'
        '"x":NaN,"x":1}'
    )
    decoded = DECODER.decode(rows_of([trade(1), other.replace('"x":NaN,"x":1', '"x":1,"x":2')]))
    assert not errors(decoded)
    assert [(row["symbol"], row["side"]) for row in rows_in(decoded, "trades")] == [("BTCUSDT", 1), ("X", -1)]


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """A good message with a few bytes of it replaced, cut out or put in."""
    text = bytearray(draw(st.sampled_from([trade(7), depth(7)])).encode())
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.integers(0, 6)))
        text[begin:end] = draw(
            st.sampled_from(
                [b"", b"}", b"{", b'"', b"\n", b",", b"[", b"]", b"0", b"\xff", b'"e":', b":", b"\\"]
            )
        )
    return bytes(text)


@given(data=st.data())
@settings(max_examples=examples(80), deadline=None)
def test_good_messages_among_broken_ones_are_all_decoded_and_each_verdict_is_its_own(data: Any) -> None:
    values: list[bytes] = []
    for number in range(data.draw(st.integers(1, 12))):
        good = trade(number) if number % 3 else depth(number)
        values.append(data.draw(st.just(good.encode()) | broken()))
    together = DECODER.decode(rows_of(values))
    for row, value in enumerate(values):
        alone = DECODER.decode(rows_of([value]))
        assert errors(together).get(row) == errors(alone).get(0)
        for table in ("trades", "book_deltas"):
            mine = [{**entry, "row": 0} for entry in rows_in(together, table) if entry["row"] == row]
            assert (
                mine == [dict.fromkeys(mine[0]) | entry for entry in rows_in(alone, table)]
                if mine
                else not rows_in(alone, table)
            )
