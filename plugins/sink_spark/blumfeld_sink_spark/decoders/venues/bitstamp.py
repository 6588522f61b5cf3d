"""Bitstamp: ``live_trades_…``, ``diff_order_book_…`` and ``order_book_…`` of the WebSocket API, and books as its
REST API gives them (their symbol is the record's key).

Symbols are upper case. Books carry no id; trade ids are shared by all pairs, so that they only grow. Prices come
from ``price_str`` and ``amount_str``, never from the numbers beside them.
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
from blumfeld_sink_spark.decoders.tables.json_table import JsonDecoder, Kind, Parts
from blumfeld_sink_spark.decoders.tables.parts import book_part, trade_part
from blumfeld_sink_spark.tables import BOOK_DELTAS, TRADES

PASSED_OVER = ("bts:",)
"""Events that begin so (``bts:subscription_succeeded``, ``bts:heartbeat``) give no row and no rejection; orders
(``live_orders_…``) neither.
"""

_STRING, _LONG = pa.string(), pa.int64()
_LEVELS = pa.list_(pa.list_(pa.string()))
_TRADES, _DIFF, _BOOK, _ORDERS = "live_trades_", "diff_order_book_", "order_book_", "live_orders_"


def _symbols(batch: Batch, prefix: str) -> Any:
    """The part of the channel's name after the prefix."""
    channel = batch.need("channel")
    names = pc.utf8_upper(pc.utf8_slice_codeunits(channel, len(prefix)))
    if not co.every(pc.and_(pc.starts_with(channel, prefix), pc.not_equal(names, ""))):
        raise BadMessageError(f"the channel is not {prefix}SYMBOL")
    return names


def _microseconds(batch: Batch) -> Any:
    return co.nanoseconds(batch.integers("microtimestamp"), "microtimestamp")


def _trade(batch: Batch) -> Parts:
    batch.constant("event", "trade")
    data = batch.fields("data")
    kind = data.integers("type")
    if not np.isin(kind, (0, 1)).all():
        raise BadMessageError("type is neither 0 (buy) nor 1 (sell)")
    return trade_part(
        batch,
        stream="trade",
        ts_event=_microseconds(data),
        symbol=_symbols(batch, _TRADES),
        trade_id=data.integers("id"),
        side=np.where(kind == 0, 1, -1).astype(np.int8),
        price=data.decimals("price_str"),
        size=data.decimals("amount_str"),
    )


def _diff(batch: Batch) -> Parts:
    batch.constant("event", "data")
    return _levels(batch.fields("data"), _symbols(batch, _DIFF), snapshot=False)


def _book(batch: Batch) -> Parts:
    batch.constant("event", "data")
    return _levels(batch.fields("data"), _symbols(batch, _BOOK), snapshot=True)


def _rest(batch: Batch) -> Parts:
    return _levels(batch, batch.key_symbols(), snapshot=True)


def _levels(data: Batch, symbol: Any, snapshot: bool) -> Parts:
    levels = lv.levels(data.columns["bids"], data.columns["asks"])
    return book_part(data, "", _microseconds(data), symbol, levels, is_snapshot=snapshot)


_BOOK_FIELDS = [("microtimestamp", _STRING), ("bids", _LEVELS), ("asks", _LEVELS)]
_TRADE_FIELDS = [
    ("id", _LONG), ("microtimestamp", _STRING), ("type", _LONG), ("price_str", _STRING), ("amount_str", _STRING)
]  # fmt: skip


def _schema(fields: list[Any]) -> Any:
    return pa.schema([("event", _STRING), ("channel", _STRING), ("data", pa.struct(fields))])


class Bitstamp(JsonDecoder):
    """``bitstamp``."""

    name = "bitstamp"
    tables: Sequence[str] = (TRADES, BOOK_DELTAS)
    kinds = (
        Kind("trade", _schema(_TRADE_FIELDS), _trade),
        Kind("diff_order_book", _schema(_BOOK_FIELDS), _diff),
        Kind("order_book", _schema(_BOOK_FIELDS), _book),
        Kind("REST book", pa.schema(_BOOK_FIELDS), _rest),
    )
    continuity = {"trade": Continuity.MONOTONE}  # noqa: RUF012 -- nobody writes to it

    def guess(self, values: Any) -> Any:
        """Guess the kinds by the channel, which comes last."""
        codes = np.full(len(values), -1, np.int8)
        for code, prefix in enumerate((_TRADES, _DIFF, _BOOK)):
            matches = pc.fill_null(pc.match_substring(values, f'"channel":"{prefix}'), False)
            codes[matches.to_numpy(zero_copy_only=False)] = code
        codes[
            pc.fill_null(pc.match_substring(values, '"event":"bts:'), False).to_numpy(zero_copy_only=False)
        ] = -1
        return codes

    def kind_of(self, message: Any, text: bytes) -> int | str:
        """Return the kind by ``event`` and ``channel``, or by the keys where there are none."""
        if not isinstance(message, dict):
            raise BadMessageError("is no JSON object")
        event, channel = message.get("event"), message.get("channel")
        if event is None and message.keys() >= {"microtimestamp", "bids", "asks"}:
            return 3
        if isinstance(event, str) and event.startswith(PASSED_OVER):
            return event
        for code, prefix in enumerate((_TRADES, _DIFF, _BOOK)):
            if isinstance(channel, str) and channel.startswith(prefix):
                return code
        if isinstance(channel, str) and channel.startswith(_ORDERS):
            return "live_orders"
        raise BadMessageError(f"unknown kind event={str(event)[:40]!r} channel={str(channel)[:40]!r}")
