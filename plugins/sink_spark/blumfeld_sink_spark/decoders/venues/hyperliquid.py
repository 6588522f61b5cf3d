"""Hyperliquid: ``l2Book`` (whole books), ``trades``, ``bbo``.

Its trade ids are hashes and its books carry none, so nothing is numbered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld.spi.decoders import Continuity
from blumfeld_sink_spark.decoders.tables import columns as co
from blumfeld_sink_spark.decoders.tables import levels as lv
from blumfeld_sink_spark.decoders.tables.columns import BadMessageError, Batch
from blumfeld_sink_spark.decoders.tables.exact import exact
from blumfeld_sink_spark.decoders.tables.json_table import (
    KEEPALIVES,
    JsonDecoder,
    Kind,
    Parts,
    guess_by_prefix,
)
from blumfeld_sink_spark.decoders.tables.parts import book_part, quote_part, trade_part
from blumfeld_sink_spark.tables import BBO, BOOK_DELTAS, TRADES

PASSED_OVER = frozenset({"subscriptionResponse", "pong"})
"""Channels that give no row and no rejection."""

_STRING, _LONG = pa.string(), pa.int64()
_LEVEL = pa.struct([("px", _STRING), ("sz", _STRING)])


def _trades(batch: Batch) -> Parts:
    batch.constant("channel", "trades")
    items, _ = batch.exploded("data")
    side = items.need("side")
    buys = pc.equal(side, "B")
    if not co.every(pc.or_(buys, pc.equal(side, "A"))):
        raise BadMessageError("side is neither A nor B")
    return trade_part(
        items,
        stream="",
        ts_event=items.time_ns("time"),
        symbol=items.symbols("coin"),
        trade_id=items.integers("tid"),
        side=np.where(buys.to_numpy(zero_copy_only=False), 1, -1).astype(np.int8),
        price=items.decimals("px"),
        size=items.decimals("sz"),
    )


def _book(batch: Batch) -> Parts:
    batch.constant("channel", "l2Book")
    data = batch.fields("data")
    sides = data.need("levels")
    if not (co.list_counts(sides) == 2).all():
        raise BadMessageError("levels are not bids and asks")
    both = sides.flatten()
    if both.null_count:
        raise BadMessageError("bids or asks are null")
    counts = co.list_counts(both)
    flat = both.flatten()
    if flat.null_count:
        raise BadMessageError("a level is null")
    price, size = flat.flatten()
    if price.null_count or size.null_count:
        raise BadMessageError("px or sz is missing or null")
    nth = np.repeat(np.arange(len(counts)), counts)
    levels = lv.Levels(
        message=nth // 2,
        side=pa.array(np.where(nth % 2 == 0, 1, -1).astype(np.int8)),
        price=exact(price),
        size=exact(size),
    )
    return book_part(data, "", data.time_ns("time"), data.symbols("coin"), levels, is_snapshot=True)


def _best(batch: Batch) -> Parts:
    batch.constant("channel", "bbo")
    data = batch.fields("data")
    lists = data.need("bbo")
    if not (co.list_counts(lists) == 2).all():
        raise BadMessageError("bbo is not a bid and an ask")
    flat = lists.flatten()
    price, size = flat.flatten()
    if not co.every(pc.equal(price.is_null(), size.is_null())) or price.null_count != flat.null_count:
        raise BadMessageError("px or sz is missing or null")
    price, size = exact(price), exact(size)
    bids, asks = (pa.array(np.arange(len(data)) * 2 + side) for side in (0, 1))
    sides = (price.take(bids), size.take(bids), price.take(asks), size.take(asks))
    return quote_part(data, "", data.time_ns("time"), data.symbols("coin"), None, sides)


def _schema(data: Any) -> Any:
    return pa.schema([("channel", _STRING), ("data", data)])


_TRADE = pa.struct(
    [("coin", _STRING), ("side", _STRING), ("px", _STRING), ("sz", _STRING), ("time", _LONG), ("tid", _LONG)]
)
_WHERE = [("coin", _STRING), ("time", _LONG)]
_KINDS = (
    Kind("trades", _schema(pa.list_(_TRADE)), _trades),
    Kind("l2Book", _schema(pa.struct([*_WHERE, ("levels", pa.list_(pa.list_(_LEVEL)))])), _book),
    Kind("bbo", _schema(pa.struct([*_WHERE, ("bbo", pa.list_(_LEVEL))])), _best),
)
_NAMES = {kind.name: nth for nth, kind in enumerate(_KINDS)}


class Hyperliquid(JsonDecoder):
    """``hyperliquid``."""

    name = "hyperliquid"
    tables: Sequence[str] = (TRADES, BOOK_DELTAS, BBO)
    kinds = _KINDS
    continuity: Mapping[str, Continuity] = {}
    texts: Mapping[bytes, str] = {**KEEPALIVES, b"Websocket connection established.": "greeting"}

    def guess(self, values: Any) -> Any:
        """Guess the kinds by ``{"channel":"…"``, which comes first."""
        return guess_by_prefix(values, {f'{{"channel":"{name}"': nth for name, nth in _NAMES.items()})

    def kind_of(self, message: Any, text: bytes) -> int | str:
        """Return the kind by ``channel``."""
        word = message.get("channel") if isinstance(message, dict) else None
        if not isinstance(word, str):
            raise BadMessageError("is no JSON object with a channel")
        if word in PASSED_OVER:
            return word
        if word not in _NAMES:
            raise BadMessageError(f"unknown kind channel={word[:40]!r}")
        return _NAMES[word]
