"""Binance spot and USD-M futures: ``trade``, ``aggTrade``, ``depthUpdate``, ``bookTicker``, bare or in the envelope
of combined streams, and depth snapshots as the REST API gives them.

Facts the rules stand on. Trade ids of both venues are consecutive in the real captures (spot 19,904 trades over a
midnight, USD-M 21,313; USD-M numbers trades of the insurance fund and ADL in the same row and sends them, with
another ``X``). Spot depth is consecutive (``U`` is the ``u`` before plus one), USD-M depth is chained (``pu`` is
the ``u`` before). ``u`` of ``bookTicker`` only grows.

The time of an event is ``T``, the matching engine's, where there is one, else ``E``, else that of receipt (spot
``bookTicker`` and spot snapshots carry none). Where there are both, ``E``, the sender's, is ``ts_sent``.

Aggregate trades (``aggTrade``) go to a table of their own: each is made of trades that the stream ``trade`` has too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld.spi.decoders import Continuity
from blumfeld_sink_spark.decoders.tables import columns as co
from blumfeld_sink_spark.decoders.tables import levels as lv
from blumfeld_sink_spark.decoders.tables.columns import BadMessageError, Batch
from blumfeld_sink_spark.decoders.tables.json_table import UNKNOWN, JsonDecoder, Kind, Parts
from blumfeld_sink_spark.decoders.tables.parts import AGGREGATE, NOT_MARKET, book_part, quote_part, trade_part
from blumfeld_sink_spark.tables import AGG_TRADES, BBO, BOOK_DELTAS, TRADES

PASSED_OVER = frozenset(
    {
        "kline",
        "continuous_kline",
        "24hrTicker",
        "24hrMiniTicker",
        "1hTicker",
        "4hTicker",
        "1dTicker",
        "avgPrice",
        "markPriceUpdate",
        "indexPriceUpdate",
        "forceOrder",
        "compositeIndex",
        "contractInfo",
        "assetIndexUpdate",
        "serverShutdown",
    }
)
"""Kinds (``e``) that give no row and no rejection; likewise answers to requests (``{"result":null,"id":1}``)."""
PARTIAL = "partial book"
"""The kind of a push of the best 5, 10 or 20 levels (``@depth5``…). It is passed over: it is neither a change of the
book nor all of it. Only the stream's name tells a futures' push from a change; without the envelope it is read as one.
"""
_PARTIAL_STREAM = r"@depth(5|10|20)(@[0-9]+ms)?$"
_PARTIAL_HEAD = r'^\{"stream": *"[^"]*@depth(5|10|20)[@"]'

_STRING, _LONG, _BOOL = pa.string(), pa.int64(), pa.bool_()
_LEVELS = pa.list_(pa.list_(pa.string()))


def _trades(batch: Batch, word: str, number: str) -> Parts:
    batch.constant("e", word)
    kind = np.full(len(batch), AGGREGATE if word == "aggTrade" else 0, np.int32)
    if "X" in batch.columns:
        market = pc.fill_null(pc.equal(batch.column("X"), "MARKET"), True)
        kind |= np.where(market.to_numpy(zero_copy_only=False), 0, NOT_MARKET).astype(np.int32)
    return trade_part(
        batch,
        stream=word,
        ts_event=batch.time_ns("T"),
        symbol=batch.symbols("s"),
        trade_id=batch.integers(number),
        side=np.where(batch.flags("m"), -1, 1).astype(np.int8),  # the buyer was the maker: somebody sold
        price=batch.decimals("p"),
        size=batch.decimals("q"),
        flags=kind,
        sent=_sent(batch),
        into=AGG_TRADES if word == "aggTrade" else TRADES,
    )


def _sent(batch: Batch) -> Any:
    """``E`` in ns; ``None`` where the messages have none. A relay may leave it out."""
    return batch.time_ns("E") if batch.has("E") else None


def _depth(batch: Batch, usdm: bool) -> Parts:
    batch.constant("e", "depthUpdate")
    return book_part(
        batch,
        stream="depth",
        ts_event=batch.time_ns("T" if usdm else "E"),
        symbol=batch.symbols("s"),
        levels=lv.levels(batch.columns["b"], batch.columns["a"]),
        first_id=batch.integers("U"),
        last_id=batch.integers("u"),
        prev_id=batch.integers("pu") if usdm else None,
        sent=_sent(batch) if usdm else None,
    )


def _ticker(batch: Batch, usdm: bool) -> Parts:
    if usdm or batch.has("e"):  # spot has none; some relays add it
        batch.constant("e", "bookTicker")
    bid, bid_size = co.null_if_zero(batch.decimals("b"), batch.decimals("B"))
    ask, ask_size = co.null_if_zero(batch.decimals("a"), batch.decimals("A"))
    return quote_part(
        batch,
        stream="bookTicker",
        ts_event=batch.time_ns("T") if usdm else batch.received(),
        symbol=batch.symbols("s"),
        update_id=batch.integers("u"),
        sides=(bid, bid_size, ask, ask_size),
        sent=_sent(batch) if usdm else None,
    )


def _snapshot(batch: Batch, usdm: bool) -> Parts:
    timed = usdm and batch.has("T")
    return book_part(
        batch,
        stream="",
        ts_event=batch.time_ns("T") if timed else batch.received(),
        sent=_sent(batch) if timed else None,
        symbol=batch.key_symbols(),
        levels=lv.levels(batch.columns["bids"], batch.columns["asks"]),
        last_id=batch.integers("lastUpdateId"),
        is_snapshot=True,
    )


def _kinds(usdm: bool) -> tuple[Kind, ...]:
    """Returns the kinds in the order of ``_WORDS``: all bare, all enveloped, then the snapshot."""
    engine = [("T", _LONG), ("E", _LONG)] if usdm else []
    chain = [("pu", _LONG)] if usdm else []
    trade = [
        ("e", _STRING),
        ("T", _LONG),
        ("E", _LONG),
        ("s", _STRING),
        ("p", _STRING),
        ("q", _STRING),
        ("m", _BOOL),
    ]
    depth = [
        ("e", _STRING), *(engine or [("E", _LONG)]), ("s", _STRING), ("U", _LONG), ("u", _LONG), *chain,
        ("b", _LEVELS), ("a", _LEVELS),
    ]  # fmt: skip
    ticker = [("e", _STRING), *engine, ("s", _STRING), ("u", _LONG), *((key, _STRING) for key in "bBaA")]
    readers: list[tuple[str, list[Any], Callable[[Batch], Parts]]] = [
        (
            "trade",
            [*trade, ("t", _LONG), *([("X", _STRING)] if usdm else [])],
            partial(_trades, word="trade", number="t"),
        ),
        ("aggTrade", [*trade, ("a", _LONG)], partial(_trades, word="aggTrade", number="a")),
        ("depthUpdate", depth, partial(_depth, usdm=usdm)),
        ("bookTicker", ticker, partial(_ticker, usdm=usdm)),
    ]
    bare = [Kind(name, pa.schema(fields), read) for name, fields, read in readers]
    enveloped = [
        Kind(name, pa.schema([("data", pa.struct(fields))]), read, inside="data")
        for name, fields, read in readers
    ]
    snapshot = [("lastUpdateId", _LONG), *engine, ("bids", _LEVELS), ("asks", _LEVELS)]
    read = partial(_snapshot, usdm=usdm)
    return (*bare, *enveloped, Kind("depth snapshot", pa.schema(snapshot), read))


_WORDS = ("trade", "aggTrade", "depthUpdate", "bookTicker")
_ENVELOPED, _SNAPSHOT, _DEPTH = len(_WORDS), 2 * len(_WORDS), _WORDS.index("depthUpdate")
_BY_LETTER = np.full(256, UNKNOWN, np.int8)
_BY_LETTER[[ord(word[0]) for word in _WORDS]] = range(len(_WORDS))


class _Binance(JsonDecoder):
    """The common part of spot and USD-M."""

    version = 3
    tables: Sequence[str] = (TRADES, AGG_TRADES, BOOK_DELTAS, BBO)

    def guess(self, values: Any) -> Any:
        """Guess the kinds by the letter after ``"e":"``, which comes early; spot's ``bookTicker`` has none."""
        at = pc.fill_null(pc.find_substring(values, '"e":"'), -1).to_numpy(zero_copy_only=False)
        codes = _BY_LETTER[_letters(values, at + 5)]
        codes[at < 0] = UNKNOWN
        nameless = np.flatnonzero(at < 0)
        if len(nameless):
            some = values.take(pa.array(nameless))
            ticker = pc.or_(
                pc.starts_with(some, '{"u":'), pc.match_substring(some, '@bookTicker","data":{"u":')
            )
            codes[nameless[_true(ticker)]] = _WORDS.index("bookTicker")
            codes[nameless[_true(pc.starts_with(some, '{"lastUpdateId":'))]] = _SNAPSHOT
        enveloped = _true(pc.starts_with(values, '{"stream":'))
        codes[enveloped & (codes >= 0) & (codes < _ENVELOPED)] += _ENVELOPED
        depth = np.flatnonzero(codes == _ENVELOPED + _DEPTH)
        if len(depth):
            partial = _true(pc.match_substring_regex(values.take(pa.array(depth)), _PARTIAL_HEAD))
            codes[depth[partial]] = UNKNOWN
        return codes

    def kind_of(self, message: Any, text: bytes) -> int | str:
        """Return the kind by ``e``, or by the keys where there is no ``e``."""
        if isinstance(message, list):
            return _of_list(message)
        if not isinstance(message, dict):
            raise BadMessageError("is no JSON object")
        outer = "data" in message and (text.startswith(b'{"stream":') or not message.keys() & _TELLING)
        inner = message["data"] if outer else message
        if outer and isinstance(inner, list):
            return _of_list(inner)
        if not isinstance(inner, dict):
            raise BadMessageError("data is no JSON object")
        if outer and re.search(_PARTIAL_STREAM, str(message.get("stream"))):
            return PARTIAL
        word = inner.get("e")
        if isinstance(word, str) and word in PASSED_OVER:
            return word
        if word in _WORDS:
            return _WORDS.index(word) + (_ENVELOPED if outer else 0)
        if word is None:
            return self._nameless(inner, outer)
        raise BadMessageError(f"unknown kind e={str(word)[:40]!r}")

    def _nameless(self, inner: dict[str, Any], outer: bool) -> int | str:
        if inner.keys() >= {"lastUpdateId", "bids", "asks"}:
            return PARTIAL if outer else _SNAPSHOT
        if inner.keys() >= set("ubBaA"):
            return _WORDS.index("bookTicker") + (_ENVELOPED if outer else 0)
        if not outer and "id" in inner and "result" in inner:
            return "result"
        raise BadMessageError("unknown kind: no e, and not the keys of bookTicker or a depth snapshot")


def _of_list(items: list[Any]) -> str:
    """Streams of all symbols (``!ticker@arr``)."""
    if items and all(isinstance(item, dict) and item.get("e") in PASSED_OVER for item in items):
        return f"list of {items[0]['e']}"
    raise BadMessageError("unknown kind: a list")


_TELLING = frozenset({"e", "u", "lastUpdateId"})


def _true(flags: Any) -> Any:
    return pc.fill_null(flags, False).to_numpy(zero_copy_only=False)


def _letters(values: Any, at: Any) -> Any:
    """The byte at a place of each value; any byte where the place is outside."""
    _, offsets, data = values.buffers()
    begins = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values)]
    if data is None or not data.size:
        return np.zeros(len(values), np.uint8)
    heap = np.frombuffer(data, np.uint8)
    return heap[np.minimum(begins + at, len(heap) - 1)]


class BinanceSpot(_Binance):
    """``binance-spot``."""

    name = "binance-spot"
    kinds = _kinds(usdm=False)
    continuity = {  # noqa: RUF012 -- nobody writes to it
        "trade": Continuity.CONSECUTIVE,
        "aggTrade": Continuity.CONSECUTIVE,
        "depth": Continuity.CONSECUTIVE,
        "bookTicker": Continuity.MONOTONE,
    }


class BinanceUsdm(_Binance):
    """``binance-usdm``."""

    name = "binance-usdm"
    kinds = _kinds(usdm=True)
    continuity = {  # noqa: RUF012 -- nobody writes to it
        "trade": Continuity.CONSECUTIVE,
        "aggTrade": Continuity.CONSECUTIVE,
        "depth": Continuity.CHAINED,
        "bookTicker": Continuity.MONOTONE,
    }
