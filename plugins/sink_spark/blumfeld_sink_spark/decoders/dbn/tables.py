"""Rows of the archive's tables, made of the records of one kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from blumfeld_sink_spark.decoders.dbn.layout import LEVEL_10, MBO, OHLCV, TRADE, UNDEF_PRICE
from blumfeld_sink_spark.decoders.dbn.part import INT64_MAX, Columns, Made, Mask, Part
from blumfeld_sink_spark.decoders.tables.arrays import chosen, decimals
from blumfeld_sink_spark.decoders.tables.parts import OF_VENUE_SHIFT
from blumfeld_sink_spark.tables import RESTART

PRICE_SCALE = 9
ACTIONS = {"A": "add", "M": "modify", "C": "cancel", "R": "clear", "T": "trade", "F": "fill", "N": "none"}
_NO_SIDE = 2


def _by_letter(values: dict[str, int], other: int) -> npt.NDArray[np.int8]:
    codes = np.full(256, other, np.int8)
    for letter, value in values.items():
        codes[ord(letter)] = value
    return codes


_SIDES = _by_letter({"B": 1, "A": -1, "N": 0}, _NO_SIDE)
"""A trade has the aggressor's side, an order its own."""
_ACTION_CODES = _by_letter({letter: nth for nth, letter in enumerate(ACTIONS)}, -1)


def tables_of(part: Part, made: Made) -> None:
    """Adds the rows of a part to the tables."""
    struct = part.kind.struct
    if struct is OHLCV:
        made.add("ohlcv", _bars(part))
        return
    if struct is MBO:
        made.add("orders", _orders(part, made))
    elif struct is not TRADE:
        made.add("bbo", _bbo(part))
    if struct is LEVEL_10:
        made.add("book_deltas", _levels(part))
    if part.kind.trades:
        made.add("trades", _trades(part, made))
    if part.kind.sequenced:
        made.add("sequences", _sequences(part))


def _price(values: Any) -> pa.Array:
    return decimals(values, PRICE_SCALE, values == UNDEF_PRICE)


def _sequence(structs: Any) -> pa.Array:
    return pa.array(structs["sequence"].astype(np.int64))


def _sides(part: Part, where: Mask, made: Made) -> pa.Array:
    sides = _SIDES[part.structs["side"]]
    odd = (sides == _NO_SIDE) & where
    if odd.any():
        made.reject(part.row[odd], f"a {part.kind.schema} record whose side is none of A, B, N")
    return pa.array(sides[where])


def _trades(part: Part, made: Made) -> Columns:
    where = part.structs["action"] == ord("T")
    structs = part.structs[where]
    unpriced = where & (part.structs["price"] == UNDEF_PRICE)
    if unpriced.any():
        made.reject(part.row[unpriced], f"a {part.kind.schema} record of a trade without a price")
    return part.rows(where) | {
        "trade_id": pa.nulls(
            len(structs), pa.int64()
        ),  # the sequence numbers packets: several trades share it
        "side": _sides(part, where, made),
        "price": _price(structs["price"]),
        "size": decimals(structs["size"], 0),
        "flags": pa.array(structs["flags"].astype(np.int32) << OF_VENUE_SHIFT),
    }


def _orders(part: Part, made: Made) -> Columns:
    structs = part.structs
    action = _ACTION_CODES[structs["action"]]
    if (action < 0).any():
        made.reject(part.row[action < 0], f"an mbo record whose action is none of {', '.join(ACTIONS)}")
    beyond = structs["order_id"] > INT64_MAX
    if beyond.any():
        made.reject(part.row[beyond], "an mbo record whose order_id needs more than 63 bits")
    return part.rows() | {
        "sequence": _sequence(structs),
        "order_id": pa.array(structs["order_id"].astype(np.int64)),
        "action": chosen(list(ACTIONS.values()), np.maximum(action, 0)),
        "side": _sides(part, np.ones(len(structs), np.bool_), made),
        "price": _price(structs["price"]),
        "size": decimals(structs["size"], 0),
        "flags": pa.array(structs["flags"].astype(np.int32)),
    }


def _bbo(part: Part) -> Columns:
    best = part.structs["levels"][:, 0]
    columns = part.rows()
    columns["update_id"] = (
        _sequence(part.structs) if part.kind.sequenced else pa.nulls(len(part.structs), pa.int64())
    )
    for side in ("bid", "ask"):
        price = best[f"{side}_px"]
        columns[side] = _price(price)
        columns[f"{side}_size"] = decimals(best[f"{side}_sz"], 0, price == UNDEF_PRICE)
    return columns


def _levels(part: Part) -> Columns:
    """Each record's levels, bids first, best first. An empty one is left out."""
    levels = part.structs["levels"]
    price = np.concatenate([levels["bid_px"], levels["ask_px"]], axis=1)
    size = np.concatenate([levels["bid_sz"], levels["ask_sz"]], axis=1)
    there = price != UNDEF_PRICE
    record, place = np.nonzero(there)
    columns = {name: column.take(pa.array(record)) for name, column in part.rows().items()}
    sequence = _sequence(part.structs).take(pa.array(record))
    return columns | {
        "first_id": sequence,
        "last_id": sequence,
        "prev_id": pa.repeat(
            pa.scalar(RESTART, pa.int64()), len(record)
        ),  # records of a packet share its number
        "side": pa.array(np.where(place < levels.shape[1], 1, -1).astype(np.int8)),
        "price": _price(price[there]),
        "size": decimals(size[there], 0),
        "is_snapshot": pa.repeat(True, len(record)),
        "flags": pa.array(part.structs["flags"].astype(np.int32)).take(pa.array(record)),
    }


def _bars(part: Part) -> Columns:
    structs = part.structs
    return part.rows() | {
        "interval_ns": pa.repeat(pa.scalar(part.kind.interval_ns, pa.int64()), len(structs)),
        **{name: _price(structs[name]) for name in ("open", "high", "low", "close")},
        "volume": decimals(structs["volume"], 0),
    }


def _sequences(part: Part) -> Columns:
    """A row for each message and instrument: the lowest and highest number, the latest time."""
    columns = part.rows()
    columns["sequence"] = _sequence(part.structs)
    if len(part.row) > 1 and (part.row[1:] == part.row[:-1]).any():
        columns = _grouped(columns)
    else:
        columns["last_id"] = columns["sequence"]
    columns["first_id"] = columns.pop("sequence")
    columns["stream"] = pa.repeat(part.kind.schema, len(columns["row"]))
    return columns


def _grouped(columns: Columns) -> Columns:
    names = ["row", "venue", "symbol"]
    table = pa.table(columns).group_by(names, use_threads=False)
    latest = [("sequence", "max"), ("ts_event", "max"), ("ts_recv", "max"), ("ts_event_is_recv", "any")]
    groups = table.aggregate([("nth", "min"), ("sequence", "min"), *latest])
    return {
        **{name: groups.column(name) for name in names},
        "nth": groups.column("nth_min"),
        "sequence": groups.column("sequence_min"),
        "last_id": groups.column("sequence_max"),
        "ts_event": groups.column("ts_event_max"),
        "ts_recv": groups.column("ts_recv_max"),
        "ts_event_is_recv": groups.column("ts_event_is_recv_any"),
    }
