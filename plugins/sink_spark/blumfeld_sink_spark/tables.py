"""The tables of an archive: columns, types, partitioning, and how each column is encoded in Parquet.

Times are int64 nanoseconds since the epoch, UTC. Prices and sizes are exact decimals. Every row of a table
that is decoded from messages ends with its lineage: ``k_partition``, ``k_offset`` of the message (the topic
is in the file's name).
"""

from __future__ import annotations

from functools import lru_cache

import attrs
import pyarrow as pa

TRADES, BOOK_DELTAS, BBO = "trades", "book_deltas", "bbo"
AGG_TRADES = "agg_trades"
"""What a venue sends beside its trades: several of one taker order in a row. A table of its own, as a sum over both
would count each trade twice.
"""
BOOK_SNAPSHOTS, BARS, GAPS = "book_snapshots", "bars", "gaps"
ORDERS, OHLCV = "orders", "ohlcv"
QUARANTINE, RAW = "quarantine", "raw"

DERIVED = (BOOK_SNAPSHOTS, BARS)
"""Made from other tables by their own commands, at any time again."""


@attrs.frozen
class Table:
    """One table. In folders by ``date`` (in the path only), then by symbol where it has that column."""

    name: str
    schema: pa.Schema
    time_column: str
    """Its UTC date is the partition."""
    delta: tuple[str, ...]
    """Columns that grow: DELTA_BINARY_PACKED. All others take a dictionary while it is small."""
    plain: tuple[str, ...] = ()
    """Columns without dictionary: values that rarely repeat, or repeat close by, where zstd finds them."""
    by_message: tuple[str, ...] = ()
    """Columns with one value for all rows of a message: plain where messages have many rows, else as ``delta``."""
    hard: tuple[str, ...] = ()
    """Columns that are worth a higher level of compression."""

    @property
    def by_symbol(self) -> bool:
        """Whether it has a folder for each symbol."""
        return "symbol" in self.schema.names


BUY, SELL, UNKNOWN = 1, -1, 0
"""``side`` of a trade is the aggressor's; of a book level 1 is a bid and -1 an ask."""

_LINEAGE = [
    pa.field("k_partition", pa.int32(), nullable=False),
    pa.field("k_offset", pa.int64(), nullable=False),
]
_STAMPS = [pa.field("ts_event", pa.int64(), nullable=False), pa.field("ts_recv", pa.int64(), nullable=False)]
_SENT = pa.field("ts_sent", pa.int64())
"""When the venue sent the message, where it says so beside the time of the event (Binance's ``E`` beside ``T``). Null
elsewhere, and in files of archives from before the column was there.
"""
_WHERE = [pa.field("venue", pa.string(), nullable=False), pa.field("symbol", pa.string(), nullable=False)]


def _orders(number: pa.DataType) -> Table:
    """What venues say order by order: from which books of levels follow, but which isn't levels."""
    return Table(
        name=ORDERS,
        schema=pa.schema(
            [
                *_STAMPS,
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
    """Bars as a venue or vendor sends them; those that the archive makes itself are in ``bars``."""
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
    """Plain prices: they repeat in runs, which zstd packs to 1.3 B where a dictionary's indices take 1.6 B. Sizes
    come again from afar: a dictionary has 1.4 B, plain 2.0 B.
    """
    return Table(
        name=name,
        schema=pa.schema(
            [
                *_STAMPS,
                _SENT,
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
    """Nine tenths are prices and sizes, and a dictionary is best for both (2.1 and 1.6 B a level; plain 2.8 and 2.3,
    byte stream split 6 and 5). What a message's levels share costs 0.3 B together.
    """
    return Table(
        name=BOOK_DELTAS,
        schema=pa.schema(
            [
                *_STAMPS,
                _SENT,
                *_WHERE,
                pa.field("first_id", pa.int64()),
                pa.field("last_id", pa.int64()),
                pa.field("prev_id", pa.int64()),
                pa.field("side", pa.int8(), nullable=False),
                pa.field("price", number, nullable=False),
                pa.field("size", number, nullable=False),  # 0 takes the level away
                pa.field("is_snapshot", pa.bool_(), nullable=False),
                pa.field("flags", pa.int32()),
                *_LINEAGE,
            ]
        ),
        time_column="ts_event",
        delta=("ts_event", "ts_recv", "k_offset"),
        by_message=("ts_sent", "first_id", "last_id", "prev_id"),
        hard=("price",),
    )


def _bbo(number: pa.DataType) -> Table:
    """Plain prices and sizes: mostly one of the four changes, so the others repeat from the row above, and a size takes
    2.2 B where a dictionary has 2.4 B.
    """
    return Table(
        name=BBO,
        schema=pa.schema(
            [
                *_STAMPS,
                _SENT,
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
    """All tables by name, with prices and sizes of this precision and scale."""
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
