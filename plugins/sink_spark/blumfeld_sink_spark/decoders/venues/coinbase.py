"""Coinbase Exchange: ``snapshot``, ``l2update``, ``match``, ``last_match``, ``ticker``.

``side`` of a match is the maker's: the aggressor is the other. Trade ids are consecutive for each product (97
matches in the real capture, no hole). ``last_match`` repeats the last trade before a subscription: it is in
``trades`` with the flag ``REPEATED``, and isn't numbered. ``snapshot`` has no time: it is that of receipt.
``l2update`` has no id. The ``sequence`` of a ``ticker`` counts all messages of the product's full channel, so that
it only grows.
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
from blumfeld_sink_spark.decoders.tables.exact import DECIMAL, exact
from blumfeld_sink_spark.decoders.tables.json_table import JsonDecoder, Kind, Parts, guess_by_prefix
from blumfeld_sink_spark.decoders.tables.parts import REPEATED, book_part, quote_part, trade_part
from blumfeld_sink_spark.tables import BBO, BOOK_DELTAS, TRADES

PASSED_OVER = frozenset(
    {"subscriptions", "heartbeat", "status", "received", "open", "done", "change", "activate"}
)
"""Types that give no row and no rejection: answers, and the orders of the full channel."""

_STRING, _LONG = pa.string(), pa.int64()
_LEVELS = pa.list_(pa.list_(pa.string()))


def _sides(batch: Batch) -> Any:
    """1 where ``side`` is ``buy``, -1 where it is ``sell``."""
    return side_of(batch.need("side"), "side")


def side_of(words: Any, name: str) -> Any:
    """1 for ``buy``, -1 for ``sell``.

    :raises BadMessageError: another word
    """
    buys, sells = pc.equal(words, "buy"), pc.equal(words, "sell")
    if not co.every(pc.or_(buys, sells)):
        raise BadMessageError(f"{name} is neither buy nor sell")
    return np.where(buys.to_numpy(zero_copy_only=False), 1, -1).astype(np.int8)


def _match(batch: Batch) -> Parts:
    last = batch.column("type")[0].as_py() == "last_match"
    batch.constant("type", "last_match" if last else "match")
    return trade_part(
        batch,
        stream="" if last else "match",
        ts_event=co.iso_ns(batch.need("time"), "time"),
        symbol=batch.symbols("product_id"),
        trade_id=batch.integers("trade_id"),
        side=-_sides(batch),
        price=batch.decimals("price"),
        size=batch.decimals("size"),
        flags=REPEATED if last else 0,
    )


def _snapshot(batch: Batch) -> Parts:
    batch.constant("type", "snapshot")
    return book_part(
        batch,
        stream="",
        ts_event=co.iso_ns(batch.need("time"), "time") if batch.has("time") else batch.received(),
        symbol=batch.symbols("product_id"),
        levels=lv.levels(batch.columns["bids"], batch.columns["asks"]),
        is_snapshot=True,
    )


def _update(batch: Batch) -> Parts:
    batch.constant("type", "l2update")
    counts, values, begins = lv.tuples(batch.columns["changes"], "changes", 3)
    levels = lv.Levels(
        message=np.repeat(np.arange(len(batch)), counts),
        side=pa.array(side_of(lv.at(values, begins, 0), "a change's side"), pa.int8()),
        price=exact(lv.at(values, begins, 1)),
        size=exact(lv.at(values, begins, 2)),
    )
    times = co.iso_ns(batch.need("time"), "time")
    return book_part(batch, "", times, batch.symbols("product_id"), levels)


def _ticker(batch: Batch) -> Parts:
    batch.constant("type", "ticker")
    sides: list[Any] = []
    for side in ("best_bid", "best_ask"):
        price, name = batch.decimals(side), f"{side}_size"  # sizes are sent since 2022
        size = batch.decimals(name) if batch.has(name) else pa.nulls(len(batch), DECIMAL)
        sides += co.null_if_zero(price, size)
    return quote_part(
        batch,
        stream="ticker",
        ts_event=co.iso_ns(batch.need("time"), "time") if batch.has("time") else batch.received(),
        symbol=batch.symbols("product_id"),
        update_id=batch.integers("sequence"),
        sides=(sides[0], sides[1], sides[2], sides[3]),
    )


def _schema(**fields: Any) -> Any:
    return pa.schema([("type", _STRING), ("product_id", _STRING), ("time", _STRING), *fields.items()])


_TRADE = _schema(trade_id=_LONG, side=_STRING, price=_STRING, size=_STRING)
_KINDS = (
    Kind("match", _TRADE, _match),
    Kind("last_match", _TRADE, _match),
    Kind("snapshot", _schema(bids=_LEVELS, asks=_LEVELS), _snapshot),
    Kind("l2update", _schema(changes=_LEVELS), _update),
    Kind(
        "ticker",
        _schema(
            sequence=_LONG, best_bid=_STRING, best_bid_size=_STRING, best_ask=_STRING, best_ask_size=_STRING
        ),
        _ticker,
    ),
)
_NAMES = {kind.name: nth for nth, kind in enumerate(_KINDS)}


class Coinbase(JsonDecoder):
    """``coinbase``."""

    name = "coinbase"
    tables: Sequence[str] = (TRADES, BOOK_DELTAS, BBO)
    kinds = _KINDS
    continuity = {  # noqa: RUF012 -- nobody writes to it
        "match": Continuity.CONSECUTIVE,
        "ticker": Continuity.MONOTONE,
    }

    def guess(self, values: Any) -> Any:
        """Guess the kinds by ``{"type":"…"``, which comes first."""
        return guess_by_prefix(values, {f'{{"type":"{name}"': nth for name, nth in _NAMES.items()})

    def kind_of(self, message: Any, text: bytes) -> int | str:
        """Return the kind by ``type``."""
        word = message.get("type") if isinstance(message, dict) else None
        if not isinstance(word, str):
            raise BadMessageError("is no JSON object with a type")
        if word in PASSED_OVER:
            return word
        if word not in _NAMES:
            raise BadMessageError(f"unknown kind type={word[:40]!r}")
        return _NAMES[word]
