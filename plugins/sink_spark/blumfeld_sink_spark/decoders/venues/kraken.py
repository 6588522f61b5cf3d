"""Kraken: ``trade``, ``book`` and ``spread`` of the v1 API (arrays), ``trade``, ``book`` and ``ticker`` of v2
(objects).

v1 numbers nothing, and gives each level a time of its own: a message's time is the latest of its levels', so that
the hours-old levels of a snapshot stay together. v2 numbers trades, consecutively for each pair. The CRC32 of the
ten best levels of each side, which both versions send with a book, is in ``flags`` of the message's levels.

A client gets the best levels alone, as many as it asked for, and has to cut the book to them. v1 names the depth in the
channel: it is in ``depth`` of the levels. v2 says it in no message of a book.

Numbers of v2 are JSON numbers: they are read as decimals from their digits, not as floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld.spi.decoders import Continuity
from blumfeld_sink_spark.decoders.tables import columns as co
from blumfeld_sink_spark.decoders.tables import levels as lv
from blumfeld_sink_spark.decoders.tables.columns import BadMessageError, Batch, Times
from blumfeld_sink_spark.decoders.tables.exact import JSON_NUMBER, exact, narrowed
from blumfeld_sink_spark.decoders.tables.json_table import JsonDecoder, Kind, Parts, guess_by_prefix
from blumfeld_sink_spark.decoders.tables.parts import REPEATED, book_part, quote_part, trade_part
from blumfeld_sink_spark.decoders.venues.coinbase import side_of
from blumfeld_sink_spark.tables import BBO, BOOK_DELTAS, TRADES

PASSED_OVER = frozenset(
    {"heartbeat", "systemStatus", "subscriptionStatus", "pong", "status", "ohlc", "instrument"}
)
"""Events (v1) and channels (v2) that give no row and no rejection; so do v1's ``ticker`` and ``ohlc``, and v2's
answers to requests (``{"method":…,"success":true}``, ``{"method":"pong"}``).
"""

_STRING, _LONG = pa.string(), pa.int64()
_LEVELS = pa.list_(pa.list_(pa.string()))
_SIDES = ("bs", "b", "as", "a")
_BOOK = "book-"
"""The channel of v1's books, before the depth."""


def _as_objects(values: Any) -> Any:
    """``[42,{…},"book-10","XBT/USD"]`` as ``{"x":{…},"n":"book-10","p":"XBT/USD"}``; the two objects of a message
    that changes both sides as one.
    """
    values = pc.replace_substring(values, '},{"b":', ',"b":')
    values = pc.replace_substring_regex(values, r"^\[[0-9]+,", '{"x":')
    return pc.replace_substring_regex(values, r',"([^"\\]+)","([^"\\]+)"\]$', r',"n":"\1","p":"\2"}')


def _v1_book(batch: Batch) -> Parts:
    _named(batch, _BOOK)
    data = batch.fields("x")
    lists = {name: data.columns[name].fill_null([]) for name in _SIDES}
    there = {name: data.columns[name].is_valid().to_numpy(zero_copy_only=False) for name in _SIDES}
    whole = there["as"] | there["bs"]
    if (whole & (there["a"] | there["b"])).any() or not (whole | there["a"] | there["b"]).all():
        raise BadMessageError("is neither a snapshot (as, bs) nor an update (a, b)")
    times = np.zeros(len(batch), np.int64)
    for name in _SIDES:
        counts, values, begins = lv.tuples(lists[name], name, 3)
        message = np.repeat(np.arange(len(batch)), counts)
        np.maximum.at(times, message, co.seconds_ns(lv.at(values, begins, 2)))
    timeless = times == 0  # an empty snapshot
    bids = pc.if_else(pa.array(whole), lists["bs"], lists["b"])
    asks = pc.if_else(pa.array(whole), lists["as"], lists["a"])
    return book_part(
        batch,
        stream="",
        ts_event=Times(np.where(timeless, batch.stamps, times), timeless),
        symbol=batch.symbols("p"),
        levels=lv.levels(bids, asks),
        is_snapshot=whole,
        flags=_crc(data.columns["c"], "c"),
        depth=pc.utf8_slice_codeunits(batch.need("n"), len(_BOOK)).cast(pa.int32()),
    )


def _crc(column: Any, name: str) -> Any:
    """CRC32s as signed int32; null where there is none."""
    sums = column.cast(_LONG)
    low, high = pc.min(sums).as_py(), pc.max(sums).as_py()
    if low is not None and (low < 0 or high >= 1 << 32):
        raise BadMessageError(f"{name} is no CRC32")
    signed = np.asarray(sums.fill_null(0)).astype(np.uint32).astype(np.int32)
    return pa.array(signed, mask=np.asarray(sums.is_null()))


def _named(batch: Batch, prefix: str) -> None:
    if not co.every(pc.starts_with(batch.need("n"), prefix)):
        raise BadMessageError(f"the channel is not {prefix}")


def _v1_trades(batch: Batch) -> Parts:
    batch.constant("n", "trade")
    counts, values, begins = lv.tuples(batch.columns["x"], "trades", 4)
    message = np.repeat(np.arange(len(batch)), counts)
    items = Batch({}, batch.rows[message], batch.stamps[message], batch.keys, batch.venue)
    side = lv.at(values, begins, 3)
    buys = pc.equal(side, "b")
    if not co.every(pc.or_(buys, pc.equal(side, "s"))):
        raise BadMessageError("a trade's side is neither b nor s")
    return trade_part(
        items,
        stream="",
        ts_event=co.seconds_ns(lv.at(values, begins, 2)),
        symbol=batch.symbols("p").take(pa.array(message)),
        trade_id=None,
        side=np.where(buys.to_numpy(zero_copy_only=False), 1, -1).astype(np.int8),
        price=exact(lv.at(values, begins, 0)),
        size=exact(lv.at(values, begins, 1)),
    )


def _v1_spread(batch: Batch) -> Parts:
    batch.constant("n", "spread")
    lists = batch.need("x")
    widths, values = co.list_counts(lists), lists.flatten()
    if values.null_count or (widths != 5).any():
        raise BadMessageError("a spread is bid, ask, time, bid size and ask size")
    begins = np.arange(len(batch)) * 5
    bid, ask, bid_size, ask_size = (exact(lv.at(values, begins, nth)) for nth in (0, 1, 3, 4))
    sides = (*co.null_if_zero(bid, bid_size), *co.null_if_zero(ask, ask_size))
    times = co.seconds_ns(lv.at(values, begins, 2))
    return quote_part(batch, "", times, batch.symbols("p"), None, sides)


def _v2_book(batch: Batch) -> Parts:
    batch.constant("channel", "book")
    kind = batch.need("type")
    whole = pc.equal(kind, "snapshot")
    if not co.every(pc.or_(whole, pc.equal(kind, "update"))):
        raise BadMessageError("type is neither snapshot nor update")
    items, message = batch.exploded("data")
    return book_part(
        items,
        stream="",
        ts_event=co.iso_ns(items.need("timestamp"), "timestamp")
        if items.has("timestamp")
        else items.received(),
        symbol=items.symbols("symbol"),
        levels=lv.levels_of_objects(items.need("bids"), items.need("asks")),
        is_snapshot=whole.to_numpy(zero_copy_only=False)[message],
        flags=_crc(items.columns["checksum"], "checksum"),
    )


def _v2_trades(batch: Batch) -> Parts:
    batch.constant("channel", "trade")
    items, _ = batch.exploded("data")
    kind = batch.need("type")
    if not co.every(pc.is_in(kind, pa.array(["snapshot", "update"]))):
        raise BadMessageError("type is neither snapshot nor update")
    repeated = pc.equal(kind, "snapshot").to_numpy(zero_copy_only=False)
    if repeated.any() and not repeated.all():
        raise BadMessageError("snapshots beside updates")  # parted by halving
    return trade_part(
        items,
        stream="" if repeated.any() else "trade",
        ts_event=co.iso_ns(items.need("timestamp"), "timestamp"),
        symbol=items.symbols("symbol"),
        trade_id=items.integers("trade_id"),
        side=side_of(items.need("side"), "side"),
        price=narrowed(items.need("price")),
        size=narrowed(items.need("qty")),
        flags=REPEATED if repeated.any() else 0,
    )


def _v2_ticker(batch: Batch) -> Parts:
    batch.constant("channel", "ticker")
    items, _ = batch.exploded("data")
    times = co.iso_ns(items.need("timestamp"), "timestamp") if items.has("timestamp") else items.received()
    sides = (
        *co.null_if_zero(narrowed(items.need("bid")), narrowed(items.need("bid_qty"))),
        *co.null_if_zero(narrowed(items.need("ask")), narrowed(items.need("ask_qty"))),
    )
    return quote_part(items, "", times, items.symbols("symbol"), None, sides)


def _v1(name: str, x: Any, read: Any) -> Kind:
    fields = pa.schema([("x", x), ("n", _STRING), ("p", _STRING)])
    return Kind(name, fields, read, rewrite=_as_objects, closed=True)


def _v2(name: str, read: Any, *fields: Any) -> Kind:
    element = pa.struct([("symbol", _STRING), ("timestamp", _STRING), *fields])
    schema = pa.schema([("channel", _STRING), ("type", _STRING), ("data", pa.list_(element))])
    return Kind(name, schema, read, has_numbers=True)


_LEVEL = pa.list_(pa.struct([("price", JSON_NUMBER), ("qty", JSON_NUMBER)]))
_KINDS = (
    _v1("book", pa.struct([*((name, _LEVELS) for name in _SIDES), ("c", _STRING)]), _v1_book),
    _v1("trade", _LEVELS, _v1_trades),
    _v1("spread", pa.list_(_STRING), _v1_spread),
    _v2("v2 book", _v2_book, ("bids", _LEVEL), ("asks", _LEVEL), ("checksum", _LONG)),
    _v2(
        "v2 trade",
        _v2_trades,
        ("side", _STRING),
        ("price", JSON_NUMBER),
        ("qty", JSON_NUMBER),
        ("trade_id", _LONG),
    ),
    _v2("v2 ticker", _v2_ticker, *((name, JSON_NUMBER) for name in ("bid", "bid_qty", "ask", "ask_qty"))),
)
_V1_SUFFIXES = {"book": 0, "trade": 1, "spread": 2}
_V2_CHANNELS = {"book": 3, "trade": 4, "ticker": 5}


class Kraken(JsonDecoder):
    """``kraken``."""

    name = "kraken"
    tables: Sequence[str] = (TRADES, BOOK_DELTAS, BBO)
    kinds = _KINDS
    continuity = {"trade": Continuity.CONSECUTIVE}  # noqa: RUF012 -- nobody writes to it

    def guess(self, values: Any) -> Any:
        """v1 by the array's third part, v2 by ``{"channel":"…"``."""
        codes = guess_by_prefix(
            values, {f'{{"channel":"{name}"': code for name, code in _V2_CHANNELS.items()}
        )
        arrays = pc.fill_null(pc.starts_with(values, "["), False).to_numpy(zero_copy_only=False)
        if arrays.any():
            for code, mark in enumerate((',"book-', ',"trade","', ',"spread","')):
                matches = pc.fill_null(pc.match_substring(values, mark), False)
                codes[arrays & matches.to_numpy(zero_copy_only=False)] = code
        return codes

    def kind_of(self, message: Any, text: bytes) -> int | str:
        """Return the kind by the channel, wherever its version puts it."""
        if isinstance(message, list):
            return _v1_kind(message)
        if not isinstance(message, dict):
            raise BadMessageError("is neither a JSON array nor an object")
        word = message.get("event", message.get("channel"))
        if isinstance(word, str) and word in PASSED_OVER:
            return word
        method = message.get("method")
        if method == "pong":
            return "pong"
        if message.get("success") is True and method is not None:
            return "result"
        if not isinstance(word, str) or word not in _V2_CHANNELS or "event" in message:
            raise BadMessageError(f"unknown kind {str(word)[:40]!r}")
        return _V2_CHANNELS[word]


def _v1_kind(message: list[Any]) -> int | str:
    word = message[-2] if len(message) >= 4 and isinstance(message[-2], str) else ""
    name = word.partition("-")[0]
    if name in ("ohlc", "ticker"):
        return name
    if name not in _V1_SUFFIXES:
        raise BadMessageError(f"unknown kind {word[:40]!r} of an array")
    return _V1_SUFFIXES[name]
