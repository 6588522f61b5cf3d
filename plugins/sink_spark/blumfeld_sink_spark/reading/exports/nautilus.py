"""A data catalog for NautilusTrader: ``data/<type>/<instrument>/<from>_<to>.parquet`` with trade ticks, quote ticks and
book deltas.

The Arrow schema is that of its 1.2xx releases with 128-bit prices (the standard Linux wheels); later releases changed
it. ``ts_init`` is the time of receipt. The metadata's precisions are those that the values need. Instruments aren't
written, because an archive doesn't know their tick sizes. A book begins with a snapshot, see ``books``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from blumfeld_sink_spark.reading.exports import books, numbers
from blumfeld_sink_spark.reading.exports.selection import Exported, Selection, remove
from blumfeld_sink_spark.reading.market.trades import of_market
from blumfeld_sink_spark.reading.times import iso_of
from blumfeld_sink_spark.tables import BBO, BOOK_DELTAS, TRADES

RAW_SCALE = 16
"""Decimal places of NautilusTrader's 128-bit fixed-point numbers."""
ROW_GROUP_ROWS = 5000
VENUES = {"binance-spot": ("", "BINANCE"), "binance-usdm": ("-PERP", "BINANCE"), "coinbase": ("", "COINBASE")}
"""(suffix of the symbol, venue's name) in NautilusTrader, by our venue. Other venues have our name in capitals."""

UPDATE, DELETE, CLEAR, ADD = 2, 3, 4, 1
F_LAST, F_SNAPSHOT = 128, 32
NO_AGGRESSOR, BUYER, SELLER = 0, 1, 2
BUY_SIDE, SELL_SIDE = 1, 2

_FIXED = pa.binary(16)
_TIMES = [("ts_event", pa.uint64()), ("ts_init", pa.uint64())]


@attrs.frozen
class Kind:
    """One of NautilusTrader's data types, and the table that it comes from."""

    name: str
    table: str
    columns: tuple[str, ...]
    price: str
    size: str
    """Our columns that the two precisions are computed from."""
    fields: tuple[tuple[str, Any], ...]
    made: Callable[[pa.Table], dict[str, Any]]

    def schema(self, instrument: str, price_places: int, size_places: int) -> pa.Schema:
        """Returns the schema of the type's files, with the instrument and its precisions as metadata."""
        metadata = {
            "instrument_id": instrument,
            "price_precision": str(price_places),
            "size_precision": str(size_places),
        }
        return pa.schema([pa.field(name, kind, nullable=False) for name, kind in self.fields], metadata)


def _times(rows: pa.Table) -> dict[str, Any]:
    return {"ts_event": rows["ts_event"].cast(pa.uint64()), "ts_init": rows["ts_recv"].cast(pa.uint64())}


def _sides(rows: pa.Table, bid: int, ask: int) -> Any:
    side = rows["side"].to_numpy()
    return pa.array(np.where(side > 0, bid, np.where(side < 0, ask, 0)).astype(np.uint8))


def _trades(rows: pa.Table) -> dict[str, Any]:
    rows = of_market(rows)
    return {
        "price": numbers.fixed(rows["price"], RAW_SCALE),
        "size": numbers.fixed(rows["size"], RAW_SCALE),
        "aggressor_side": _sides(rows, BUYER, SELLER),
        "trade_id": pc.fill_null(rows["trade_id"].cast(pa.string()), "0"),
        **_times(rows),
    }


def _quotes(rows: pa.Table) -> dict[str, Any]:
    rows = rows.filter(
        pc.and_(pc.is_valid(rows["bid"]), pc.is_valid(rows["ask"]))
    )  # NautilusTrader's quotes need both sides
    names = {"bid_price": "bid", "ask_price": "ask", "bid_size": "bid_size", "ask_size": "ask_size"}
    return {
        **{theirs: numbers.fixed(rows[ours], RAW_SCALE) for theirs, ours in names.items()},
        **_times(rows),
    }


def _deltas(rows: pa.Table) -> dict[str, Any]:
    """Converts book rows. The last row of each message has the flag F_LAST."""
    offsets, snapshot = rows["k_offset"].to_numpy(), rows["is_snapshot"].to_numpy(zero_copy_only=False)
    ends = np.concatenate([offsets[1:] != offsets[:-1], [True]])
    gone = pc.equal(rows["size"], 0).to_numpy(zero_copy_only=False)
    return {
        "action": pa.array(np.where(snapshot, ADD, np.where(gone, DELETE, UPDATE)).astype(np.uint8)),
        "side": _sides(rows, BUY_SIDE, SELL_SIDE),
        "price": numbers.fixed(rows["price"], RAW_SCALE),
        "size": numbers.fixed(rows["size"], RAW_SCALE),
        "order_id": pa.repeat(pa.scalar(0, pa.uint64()), rows.num_rows),
        "flags": pa.array((np.where(snapshot, F_SNAPSHOT, 0) | np.where(ends, F_LAST, 0)).astype(np.uint8)),
        "sequence": pc.fill_null(rows["last_id"], 0).cast(pa.uint64()),
        **_times(rows),
    }


def _cleared(rows: pa.Table) -> pa.Table:
    """Puts a row that empties the book before a snapshot's levels."""
    empty = {"action": CLEAR, "side": 0, "price": bytes(16), "size": bytes(16), "flags": F_SNAPSHOT}
    head = {
        field.name: pa.array([empty[field.name]], field.type)
        if field.name in empty
        else rows[field.name].slice(0, 1)
        for field in rows.schema
    }
    return pa.concat_tables([pa.table(head, schema=rows.schema), rows])


KINDS = (
    Kind(
        "trade_tick",
        TRADES,
        ("trade_id", "side", "price", "size", "flags"),
        "price",
        "size",
        (
            ("price", _FIXED),
            ("size", _FIXED),
            ("aggressor_side", pa.uint8()),
            ("trade_id", pa.string()),
            *_TIMES,
        ),
        _trades,
    ),
    Kind(
        "quote_tick",
        BBO,
        ("bid", "ask", "bid_size", "ask_size"),
        "bid",
        "bid_size",
        (("bid_price", _FIXED), ("ask_price", _FIXED), ("bid_size", _FIXED), ("ask_size", _FIXED), *_TIMES),
        _quotes,
    ),
    Kind(
        "order_book_delta",
        BOOK_DELTAS,
        ("last_id", "side", "price", "size", "is_snapshot", "k_offset"),
        "price",
        "size",
        (
            ("action", pa.uint8()),
            ("side", pa.uint8()),
            ("price", _FIXED),
            ("size", _FIXED),
            ("order_id", pa.uint64()),
            ("flags", pa.uint8()),
            ("sequence", pa.uint64()),
            *_TIMES,
        ),
        _deltas,
    ),
)


def export(selection: Selection, out: Path) -> Iterator[Exported]:
    """Writes a file of each type for each instrument, and yields each file once it is written.

    :raises ArchiveError: there are no rows
    :raises SettingsError: a symbol has several venues and none is named
    """
    names = [kind.table for kind in KINDS]
    for symbol in selection.symbols_of(names):
        venue = selection.one_venue(names, symbol)
        instrument = instrument_of(symbol, venue)
        price, size = _precisions(selection, symbol, venue)
        for kind in KINDS:
            schema = kind.schema(instrument, price, size)
            yield from _export(selection, kind, symbol, venue, schema, out / "data" / kind.name / instrument)


def instrument_of(symbol: str, venue: str) -> str:
    """Returns NautilusTrader's id of an instrument, such as ``BTCUSDT-PERP.BINANCE``."""
    behind, name = VENUES.get(venue, ("", venue.upper().replace("-", "_")))
    return f"{symbol.replace('/', '')}{behind}.{name}"


def _precisions(selection: Selection, symbol: str, venue: str) -> tuple[int, int]:
    """Returns the precisions of prices and sizes. NautilusTrader expects the same for all types of an instrument."""
    price = size = 0
    for kind in KINDS:
        for rows in selection.rows(kind.table, symbol, [kind.price, kind.size], venue):
            price, size = (
                max(price, numbers.places(rows[kind.price])),
                max(size, numbers.places(rows[kind.size])),
            )
    return price, size


def _export(
    selection: Selection, kind: Kind, symbol: str, venue: str, schema: pa.Schema, folder: Path
) -> Iterator[Exported]:
    staged, count, first, last = folder / "_unfinished", 0, 0, 0
    writer: Any = None
    try:
        for made in _tables(selection, kind, symbol, venue, schema):
            if not made.num_rows:
                continue
            if writer is None:
                folder.mkdir(parents=True, exist_ok=True)
                writer = pq.ParquetWriter(staged, schema, compression="zstd")
                first = made["ts_init"][0].as_py()
            writer.write_table(made, ROW_GROUP_ROWS)
            count, last = count + made.num_rows, made["ts_init"][-1].as_py()
    except BaseException:
        remove(staged)
        raise
    finally:
        if writer is not None:
            writer.close()
    if writer is not None:
        final = folder / f"{_stamp(first)}_{_stamp(last)}.parquet"
        os.replace(staged, final)
        yield Exported(final, count)


def _tables(
    selection: Selection, kind: Kind, symbol: str, venue: str, schema: pa.Schema
) -> Iterator[pa.Table]:
    if kind.table != BOOK_DELTAS:
        for rows in selection.rows(kind.table, symbol, [*kind.columns, "ts_event", "ts_recv"], venue):
            yield pa.table(kind.made(rows), schema=schema)
        return
    for part in books.parts(selection, symbol, venue):
        at = part.rows.schema.get_field_index("is_snapshot")
        rows = part.rows.set_column(
            at, "is_snapshot", pa.repeat(pa.scalar(part.is_snapshot), part.rows.num_rows)
        )
        made = pa.table(kind.made(rows.combine_chunks()), schema=schema)
        yield _cleared(made) if part.is_snapshot else made


def _stamp(ns: int) -> str:
    """Returns a time as ``2024-08-08T23-54-16-299000123Z``, for a file's name."""
    return iso_of(ns).replace(":", "-").replace(".", "-")
