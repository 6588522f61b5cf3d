"""OKX v5: ``trades``, ``books``, ``books-l2-tbt``, ``books50-l2-tbt``, ``books5``, ``bbo-tbt``, ``tickers``.

Books are chained: ``prevSeqId`` names the ``seqId`` before it, and is -1 for a snapshot. Older captures have neither
key and aren't numbered. ``books5`` sends whole books. A push of ``trades`` may stand for ``count`` trades of one taker
order; its ``tradeId`` is the last of them. So trade ids are consecutive (73 in the real capture, no hole). The checksum
of a book is in ``flags`` of its levels.
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
from blumfeld_sink_spark.decoders.tables.columns import BadMessageError, Batch
from blumfeld_sink_spark.decoders.tables.exact import exact
from blumfeld_sink_spark.decoders.tables.json_table import JsonDecoder, Kind, Parts, guess_by_prefix
from blumfeld_sink_spark.decoders.tables.parts import AGGREGATE, book_part, quote_part, trade_part
from blumfeld_sink_spark.decoders.venues.coinbase import side_of
from blumfeld_sink_spark.tables import BBO, BOOK_DELTAS, RESTART, TRADES

PASSED_OVER = frozenset({"subscribe", "unsubscribe", "login", "channel-conn-count", "notice"})
"""Events that give no row and no rejection. ``error`` is rejected, and so are channels that aren't read."""

_STRING, _LONG = pa.string(), pa.int64()
_LEVELS = pa.list_(pa.list_(pa.string()))
_DEPTH = ("books", "books-l2-tbt", "books50-l2-tbt")


def _elements(batch: Batch, channels: Sequence[str]) -> tuple[Batch, Any, Any, Any]:
    """The elements of ``data``, with each one's message, instrument and channel."""
    arg = batch.fields("arg")
    channel, symbol = arg.need("channel"), arg.symbols("instId")
    if not co.every(pc.is_in(channel, pa.array(channels))):
        raise BadMessageError(f"the channel is none of {', '.join(channels)}")
    elements, message = batch.exploded("data")
    at = pa.array(message)
    return elements, message, symbol.take(at), channel.take(at)


def _trades(batch: Batch) -> Parts:
    items, _, symbol, channel = _elements(batch, ("trades",))
    ids = items.integers("tradeId")
    several = items.integers("count") if items.has("count") else np.ones(len(items), np.int64)
    if len(several) and several.min() < 1:
        raise BadMessageError("count is less than 1")
    return trade_part(
        items,
        stream=channel,
        ts_event=items.time_ns("ts"),
        symbol=symbol,
        trade_id=ids,
        first_id=ids - several + 1,
        side=side_of(items.need("side"), "side"),
        price=items.decimals("px"),
        size=items.decimals("sz"),
        flags=np.where(several > 1, AGGREGATE, 0),
    )


def _book(batch: Batch) -> Parts:
    items, message, symbol, channel = _elements(batch, _DEPTH)
    action = batch.need("action")
    whole = pc.equal(action, "snapshot")
    if not co.every(pc.or_(whole, pc.equal(action, "update"))):
        raise BadMessageError("action is neither snapshot nor update")
    numbered = items.has("seqId")
    return book_part(
        items,
        stream=channel if numbered else "",
        ts_event=items.time_ns("ts"),
        symbol=symbol,
        levels=lv.levels(items.columns["bids"], items.columns["asks"]),
        last_id=items.integers("seqId") if numbered else None,
        prev_id=items.integers("prevSeqId") if numbered else None,
        is_snapshot=whole.to_numpy(zero_copy_only=False)[message],
        flags=items.integers("checksum").astype(np.int32) if items.has("checksum") else None,
    )


def _whole_book(batch: Batch) -> Parts:
    items, _, symbol, _ = _elements(batch, ("books5",))
    levels = lv.levels(items.columns["bids"], items.columns["asks"])
    last = items.integers("seqId") if items.has("seqId") else None
    anew = None if last is None else np.full(len(items), RESTART)
    return book_part(items, "", items.time_ns("ts"), symbol, levels, None, last, anew, is_snapshot=True)


def _best(batch: Batch) -> Parts:
    items, _, symbol, channel = _elements(batch, ("bbo-tbt",))
    sides = (*_first(items, "bids"), *_first(items, "asks"))
    ids = items.integers("seqId") if items.has("seqId") else None
    return quote_part(items, "" if ids is None else channel, items.time_ns("ts"), symbol, ids, sides)


def _first(items: Batch, name: str) -> tuple[Any, Any]:
    """Price and size of the first level of each; null where there is no level."""
    counts, values, begins = lv.tuples(items.columns[name], name, 2)
    at = (np.cumsum(counts) - counts)[counts > 0]
    place = np.zeros(len(items), np.int64)
    place[counts > 0] = begins[at]
    there = pa.array(place, mask=counts == 0)
    after = pa.array(place + 1, mask=counts == 0)
    return exact(values.take(there)), exact(values.take(after))


def _ticker(batch: Batch) -> Parts:
    items, _, symbol, _ = _elements(batch, ("tickers",))
    sides = []
    for name in ("bidPx", "bidSz", "askPx", "askSz"):
        text = items.need(name)
        sides.append(exact(pc.if_else(pc.equal(text, ""), None, text)))
    return quote_part(items, "", items.time_ns("ts"), symbol, None, (sides[0], sides[1], sides[2], sides[3]))


def _schema(**fields: Any) -> Any:
    where = pa.struct([("channel", _STRING), ("instId", _STRING)])
    element = pa.struct([("ts", _STRING), *fields.items()])
    return pa.schema([("arg", where), ("action", _STRING), ("data", pa.list_(element))])


_NUMBERED = {"asks": _LEVELS, "bids": _LEVELS, "seqId": _LONG}
_BOOK = Kind("books", _schema(**_NUMBERED, prevSeqId=_LONG, checksum=pa.int32()), _book)
_KINDS = (
    Kind(
        "trades",
        _schema(tradeId=_STRING, count=_STRING, px=_STRING, sz=_STRING, side=_STRING),
        _trades,
    ),
    _BOOK,
    Kind("books5", _schema(**_NUMBERED), _whole_book),
    Kind("bbo-tbt", _schema(**_NUMBERED), _best),
    Kind("tickers", _schema(bidPx=_STRING, bidSz=_STRING, askPx=_STRING, askSz=_STRING), _ticker),
)
_CHANNELS = {"trades": 0, **dict.fromkeys(_DEPTH, 1), "books5": 2, "bbo-tbt": 3, "tickers": 4}


class Okx(JsonDecoder):
    """``okx``."""

    name = "okx"
    tables: Sequence[str] = (TRADES, BOOK_DELTAS, BBO)
    kinds = _KINDS
    continuity = {  # noqa: RUF012 -- nobody writes to it
        "trades": Continuity.CONSECUTIVE,
        **dict.fromkeys(_DEPTH, Continuity.CHAINED),
        "bbo-tbt": Continuity.MONOTONE,
    }

    def guess(self, values: Any) -> Any:
        """Guess the kinds by ``{"arg":{"channel":"…"``, which comes first."""
        return guess_by_prefix(
            values, {f'{{"arg":{{"channel":"{name}"': code for name, code in _CHANNELS.items()}
        )

    def kind_of(self, message: Any, text: bytes) -> int | str:
        """Return the kind by ``arg.channel``."""
        if not isinstance(message, dict):
            raise BadMessageError("is no JSON object")
        event, arg = message.get("event"), message.get("arg")
        if isinstance(event, str) and event in PASSED_OVER:
            return event
        channel = arg.get("channel") if isinstance(arg, dict) else None
        if event is not None or not isinstance(channel, str) or channel not in _CHANNELS:
            raise BadMessageError(f"unknown kind event={str(event)[:40]!r} channel={str(channel)[:40]!r}")
        return _CHANNELS[channel]
