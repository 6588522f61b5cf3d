"""The tables of an archive: columns, types, partitioning, and the Parquet encoding of each column.

Times are int64 nanoseconds since the epoch, UTC. Prices and sizes are exact decimals. A row that is decoded from a
message ends with its lineage: the message's ``k_partition`` and ``k_offset``. The topic is in the file's name.
"""

from __future__ import annotations

from functools import lru_cache

import attrs
import pyarrow as pa

TRADES, BOOK_DELTAS, BBO = "trades", "book_deltas", "bbo"
AGG_TRADES = "agg_trades"
"""Aggregates that a venue sends beside its single trades: one row for the fills of a taker order. They have a table of
their own, because a sum over both would count each trade twice.
"""
BOOK_SNAPSHOTS, BARS, GAPS = "book_snapshots", "bars", "gaps"
ORDERS, OHLCV = "orders", "ohlcv"
QUARANTINE, RAW = "quarantine", "raw"

DERIVED = (BOOK_SNAPSHOTS, BARS)
"""Tables made from other tables. Their commands can make them again at any time, so they have no commit records."""


@attrs.frozen
class Table:
    """One table. Its files lie in folders by date, which is in the path only, then by symbol if it has that column."""

    name: str
    schema: pa.Schema
    time_column: str
    """The column with the time of a row. Its UTC date chooses the folder."""
    delta: tuple[str, ...]
    """Columns that grow, encoded as DELTA_BINARY_PACKED. All others have a dictionary while it is small."""
    plain: tuple[str, ...] = ()
    """Columns without a dictionary: their values rarely repeat, or repeat so close that zstd finds them."""
    by_message: tuple[str, ...] = ()
    """Columns with one value for all rows of a message: plain where messages have many rows, else as ``delta``."""
    hard: tuple[str, ...] = ()
    """Columns that are worth a higher compression level."""

    @property
    def by_symbol(self) -> bool:
        """Whether the table has a folder for each symbol."""
        return "symbol" in self.schema.names


BUY, SELL, UNKNOWN = 1, -1, 0
"""Values of ``side``: the aggressor's side of a trade; 1 for a bid and -1 for an ask in a book."""

RESTART = -1
"""``prev_id`` of a message that begins a chain anew, whatever its id: a snapshot among its changes (OKX), or a book of
which every message is whole.
"""

_LINEAGE = [
    pa.field("k_partition", pa.int32(), nullable=False),
    pa.field("k_offset", pa.int64(), nullable=False),
]
_STAMPS = [pa.field("ts_event", pa.int64(), nullable=False), pa.field("ts_recv", pa.int64(), nullable=False)]
_SENT = pa.field("ts_sent", pa.int64())
"""Time at which the venue sent the message, where it says so beside the event's time (Binance's ``E`` beside ``T``).
Null elsewhere. Files of older archives lack the column.
"""
_IS_RECV = pa.field("ts_event_is_recv", pa.bool_())
"""True where the venue gave the message no time: ``ts_event`` is the time of receipt then. A join of such rows with
others by ``ts_event`` compares two clocks. Null where a decoder doesn't say. Files of older archives lack the column.
"""
_WHERE = [pa.field("venue", pa.string(), nullable=False), pa.field("symbol", pa.string(), nullable=False)]


def _orders(number: pa.DataType) -> Table:
    """A venue's feed of single orders. A book of price levels follows from it, but its rows aren't levels."""
    return Table(
        name=ORDERS,
        schema=pa.schema(
            [
                *_STAMPS,
                _IS_RECV,
                *_WHERE,
                pa.field("sequence", pa.int64()),
                pa.field("order_id", pa.int64(), nullable=False),
                pa.field(
                    "action", pa.string(), nullable=False
                ),  # add, modify, cancel, clear, trade, fill, none
                pa.field("side", pa.int8(), nullable=False),
                pa.field("price", number),
                pa.field("size", number, nullable=False),
                pa.field("flags", pa.int32()),
                *_LINEAGE,
            ]
        ),
        time_column="ts_event",
        delta=("ts_event", "ts_recv", "sequence", "k_offset"),
    )


def _ohlcv(number: pa.DataType) -> Table:
    """Bars as a venue or vendor sends them. The archive's own bars are in ``bars``."""
    return Table(
        name=OHLCV,
        schema=pa.schema(
            [
                *_STAMPS,  # ts_event is where the bar begins
                *_WHERE,
                pa.field("interval_ns", pa.int64(), nullable=False),
                *(
                    pa.field(name, number, nullable=False)
                    for name in ("open", "high", "low", "close", "volume")
                ),
                *_LINEAGE,
            ]
        ),
        time_column="ts_event",
        delta=("ts_event", "ts_recv", "k_offset"),
    )


def _trades(number: pa.DataType, name: str = TRADES) -> Table:
    """Single trades or aggregates.

    Prices are plain: they repeat in runs, which zstd packs to 1.3 B a row, a dictionary's indices to 1.6 B. Sizes have
    a dictionary: they repeat at a distance, and take 1.4 B against 2.0 B plain.
    """
    return Table(
        name=name,
        schema=pa.schema(
            [
                *_STAMPS,
                _SENT,
                _IS_RECV,
                *_WHERE,
                pa.field("trade_id", pa.int64()),
                pa.field("side", pa.int8(), nullable=False),
                pa.field("price", number, nullable=False),
                pa.field("size", number, nullable=False),
                pa.field("flags", pa.int32()),
                *_LINEAGE,
            ]
        ),
        time_column="ts_event",
        delta=("ts_event", "ts_recv", "ts_sent", "trade_id", "k_offset"),
        plain=("price",),
    )


def _book_deltas(number: pa.DataType) -> Table:
    """Book messages, one row a level.

    Prices and sizes are nine tenths of the bytes, and a dictionary is best for both: 2.1 and 1.6 B a level, against
    2.8 and 2.3 B plain, 6 and 5 B as byte stream split. All columns that a message's levels share cost 0.3 B together.
    """
    return Table(
        name=BOOK_DELTAS,
        schema=pa.schema(
            [
                *_STAMPS,
                _SENT,
                _IS_RECV,
                *_WHERE,
                pa.field("first_id", pa.int64()),
                pa.field("last_id", pa.int64()),
                pa.field("prev_id", pa.int64()),
                pa.field("side", pa.int8(), nullable=False),
                pa.field("price", number, nullable=False),
                pa.field("size", number, nullable=False),  # 0 takes the level away
                pa.field("is_snapshot", pa.bool_(), nullable=False),
                pa.field("flags", pa.int32()),
                pa.field(
                    "depth", pa.int32()
                ),  # levels of each side that a reader must cut the book to (Kraken)
                *_LINEAGE,
            ]
        ),
        time_column="ts_event",
        delta=("ts_event", "ts_recv", "k_offset"),
        by_message=("ts_sent", "first_id", "last_id", "prev_id"),
        hard=("price",),
    )


def _bbo(number: pa.DataType) -> Table:
    """Best bid and offer.

    Prices and sizes are plain: mostly one of the four changes and the others repeat the row above. A size takes 2.2 B,
    with a dictionary 2.4 B.
    """
    return Table(
        name=BBO,
        schema=pa.schema(
            [
                *_STAMPS,
                _SENT,
                _IS_RECV,
                *_WHERE,
                pa.field("update_id", pa.int64()),
                pa.field("bid", number),  # null: that side is empty
                pa.field("bid_size", number),
                pa.field("ask", number),
                pa.field("ask_size", number),
                *_LINEAGE,
            ]
        ),
        time_column="ts_event",
        delta=("ts_event", "ts_recv", "ts_sent", "update_id", "k_offset"),
        plain=("bid", "bid_size", "ask", "ask_size"),
    )


def _book_snapshots(number: pa.DataType) -> Table:
    return Table(
        name=BOOK_SNAPSHOTS,
        schema=pa.schema(
            [
                pa.field("ts", pa.int64(), nullable=False),
                *_WHERE,
                pa.field("last_id", pa.int64()),
                pa.field("level", pa.int32(), nullable=False),  # 0 is the best
                pa.field("side", pa.int8(), nullable=False),
                pa.field("price", number, nullable=False),
                pa.field("size", number, nullable=False),
            ]
        ),
        time_column="ts",
        delta=("ts",),
    )


def _bars(number: pa.DataType) -> Table:
    return Table(
        name=BARS,
        schema=pa.schema(
            [
                pa.field("ts", pa.int64(), nullable=False),  # where the bar begins
                pa.field("interval_ns", pa.int64(), nullable=False),
                *_WHERE,
                pa.field("open", number, nullable=False),
                pa.field("high", number, nullable=False),
                pa.field("low", number, nullable=False),
                pa.field("close", number, nullable=False),
                pa.field("volume", number, nullable=False),
                pa.field("buy_volume", number, nullable=False),
                pa.field("vwap", pa.float64(), nullable=False),
                pa.field("trades", pa.int64(), nullable=False),
            ]
        ),
        time_column="ts",
        delta=("ts",),
    )


def _gaps() -> Table:
    return Table(
        name=GAPS,
        schema=pa.schema(
            [
                pa.field("ts_event", pa.int64(), nullable=False),
                *_WHERE,
                pa.field("stream", pa.string(), nullable=False),
                pa.field("kind", pa.string(), nullable=False),
                pa.field("expected", pa.int64()),
                pa.field("got", pa.int64()),
                pa.field("missing", pa.int64()),  # how many ids, where the venue numbers without holes
                pa.field("ts_before", pa.int64()),
                pa.field("topic", pa.string(), nullable=False),
                pa.field("offset_before", pa.int64()),
                *_LINEAGE,
            ]
        ),
        time_column="ts_event",
        delta=(),
    )


def _quarantine() -> Table:
    return Table(
        name=QUARANTINE,
        schema=pa.schema(
            [
                pa.field("ts_recv", pa.int64(), nullable=False),
                pa.field("decoder", pa.string(), nullable=False),
                pa.field("error", pa.string(), nullable=False),
                pa.field("schema_id", pa.int32()),
                pa.field("key", pa.binary()),
                pa.field("value", pa.binary()),
                *_LINEAGE,
            ]
        ),
        time_column="ts_recv",
        delta=("ts_recv", "k_offset"),
        plain=("value",),
    )


def _raw() -> Table:
    return Table(
        name=RAW,
        schema=pa.schema(
            [
                pa.field("ts_recv", pa.int64(), nullable=False),  # the record's timestamp
                pa.field("timestamp_type", pa.int8(), nullable=False),
                pa.field("key", pa.binary()),
                pa.field("value", pa.binary()),
                pa.field(
                    "headers",
                    pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
                ),
                *_LINEAGE,
            ]
        ),
        time_column="ts_recv",
        delta=("ts_recv", "k_offset"),
        plain=("value",),
    )


@lru_cache
def tables(precision: int = 38, scale: int = 18) -> dict[str, Table]:
    """Returns all tables by name, with prices and sizes of this precision and scale."""
    number = pa.decimal128(precision, scale)
    made = (
        _trades(number),
        _trades(number, AGG_TRADES),
        _book_deltas(number),
        _bbo(number),
        _orders(number),
        _ohlcv(number),
        _book_snapshots(number),
        _bars(number),
        _gaps(),
        _quarantine(),
        _raw(),
    )
    return {table.name: table for table in made}
