"""Rows of tables, and of ``sequences``, out of the columns of one kind of message.

``flags`` of a trade are bits, the same for all venues up to bit 7; from bit 8 on they are the venue's own, where it has
some (DBN). ``flags`` of a book's level is the checksum that the venue
sends of its whole book after the message (CRC32, as a signed int32), where it sends one.

``ts_event`` is an array of the venue's times, or ``Times`` where some of them are those of receipt.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from blumfeld_sink_spark.decoders.tables.columns import Batch, Times
from blumfeld_sink_spark.decoders.tables.json_table import Parts
from blumfeld_sink_spark.decoders.tables.levels import Levels, spread
from blumfeld_sink_spark.tables import BBO, BOOK_DELTAS, TRADES

NOT_MARKET = 1
"""Trades of the insurance fund, ADL and the like, and messages of no trade. Their price may be 0. Readers leave them
out.
"""
AGGREGATE = 2
"""Several trades of one taker order in one row."""
REPEATED = 4
"""Sent when a subscription begins; may be in the archive already."""
OF_VENUE_SHIFT = 8
"""The venue's own bits of a trade are moved up by so many."""


def sequence_part(
    batch: Batch, stream: Any, symbol: Any, ts_event: Any, first_id: Any, last_id: Any, prev_id: Any = None
) -> Any:
    """A row for each message (or for each element of one, where each has an id). ``stream`` is one for all, or an
    array.
    """
    count = len(batch)
    return pa.table(
        {
            "row": pa.array(batch.rows, pa.int32()),
            "venue": pa.repeat(batch.venue, count),
            "symbol": symbol,
            "stream": pa.repeat(stream, count) if isinstance(stream, str) else stream,
            "first_id": _ids(first_id, count),
            "last_id": pa.array(last_id, pa.int64()),
            "prev_id": _ids(prev_id, count),
            **_timed(ts_event, count),
        }
    )


def _timed(times: Any, count: int) -> dict[str, Any]:
    """The columns of an event's time, and whether it is the time of receipt."""
    stamps = Times.of(times)
    is_recv = stamps.is_recv
    return {
        "ts_event": pa.array(stamps.ns, pa.int64()),
        "ts_event_is_recv": pa.repeat(is_recv, count) if isinstance(is_recv, bool) else pa.array(is_recv),
    }


def _ids(ids: Any, count: int) -> Any:
    return pa.nulls(count, pa.int64()) if ids is None else pa.array(ids, pa.int64())


def _sent(times: Any) -> dict[str, Any]:
    """The column ``ts_sent``, where the messages have it."""
    return {} if times is None else {"ts_sent": pa.array(times, pa.int64())}


def trade_part(
    batch: Batch,
    stream: Any,
    ts_event: Any,
    symbol: Any,
    trade_id: Any,
    side: Any,
    price: Any,
    size: Any,
    flags: Any = 0,
    first_id: Any = None,
    sent: Any = None,
    into: str = TRADES,
) -> Parts:
    """A trade for each message, in the table ``into``; numbered if ``stream`` isn't empty, from ``first_id`` if a row
    stands for several. ``flags`` is one for all, or an array.
    """
    count = len(batch)
    table = pa.table(
        {
            "row": pa.array(batch.rows, pa.int32()),
            **_timed(ts_event, count),
            "venue": pa.repeat(batch.venue, count),
            "symbol": symbol,
            "trade_id": _ids(trade_id, count),
            "side": pa.array(side, pa.int8()),
            "price": price,
            "size": size,
            "flags": pa.array(np.broadcast_to(np.asarray(flags, np.int32), count)),
            **_sent(sent),
        }
    )
    if isinstance(stream, str) and not stream:
        return Parts({into: table})
    first = trade_id if first_id is None else first_id
    return Parts({into: table}, sequence_part(batch, stream, symbol, ts_event, first, trade_id))


def quote_part(
    batch: Batch,
    stream: Any,
    ts_event: Any,
    symbol: Any,
    update_id: Any,
    sides: tuple[Any, Any, Any, Any],
    sent: Any = None,
) -> Parts:
    """A best bid and ask for each message; numbered if ``stream`` isn't empty."""
    bid, bid_size, ask, ask_size = sides
    table = pa.table(
        {
            "row": pa.array(batch.rows, pa.int32()),
            **_timed(ts_event, len(batch)),
            "venue": pa.repeat(batch.venue, len(batch)),
            "symbol": symbol,
            "update_id": _ids(update_id, len(batch)),
            "bid": bid,
            "bid_size": bid_size,
            "ask": ask,
            "ask_size": ask_size,
            **_sent(sent),
        }
    )
    if isinstance(stream, str) and not stream:
        return Parts({BBO: table})
    return Parts({BBO: table}, sequence_part(batch, stream, symbol, ts_event, update_id, update_id))


def book_part(
    batch: Batch,
    stream: Any,
    ts_event: Any,
    symbol: Any,
    levels: Levels,
    first_id: Any = None,
    last_id: Any = None,
    prev_id: Any = None,
    is_snapshot: Any = False,
    flags: Any = None,
    sent: Any = None,
    depth: Any = None,
) -> Parts:
    """The levels of each message; numbered if ``stream`` isn't empty. A message without levels has no row, and is
    numbered all the same. ``is_snapshot`` is one for all, or an array.
    """
    message, times = levels.message, Times.of(ts_event)
    is_recv = times.is_recv if isinstance(times.is_recv, bool) else times.is_recv[message]
    columns = {
        "row": pa.array(batch.rows[message], pa.int32()),
        **_timed(Times(times.ns[message], is_recv), len(message)),
        "venue": pa.repeat(batch.venue, len(message)),
        "symbol": spread(symbol, message),
        "side": levels.side,
        "price": levels.price,
        "size": levels.size,
        "is_snapshot": spread(np.broadcast_to(np.asarray(is_snapshot), len(batch)), message),
    }
    column_values = {"first_id": first_id, "last_id": last_id, "prev_id": prev_id}
    column_values |= {"flags": flags, "ts_sent": sent, "depth": depth}
    for name, values in column_values.items():
        if values is not None:
            columns[name] = spread(values, message)
    tables = {BOOK_DELTAS: pa.table(columns)} if len(message) else {}
    if isinstance(stream, str) and not stream:
        return Parts(tables)
    return Parts(tables, sequence_part(batch, stream, symbol, ts_event, first_id, last_id, prev_id))
