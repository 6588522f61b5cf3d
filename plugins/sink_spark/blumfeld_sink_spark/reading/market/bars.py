"""Makes bars from trades: open, high, low, close, volume and VWAP. All but the VWAP are exact decimals.

* A bar has the trades with ``ts <= ts_event < ts + interval``, ordered by time. Within a time the log's order counts,
  never that of the ids: they may be hashes, or numbers that trades share.
* A trade that is archived twice counts once: same venue, trade id, time, side, price and size. Trades without an id all
  count.
* Trades off the market (insurance fund, auto-deleveraging, messages of no trade) don't count.
* Aggregates count only where a date and symbol has no single trades.
* An interval without a trade has no bar.

A file holds the bars of one interval, date and symbol. It depends on the committed trades alone: made again, it is the
same byte for byte.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from blumfeld_sink_spark.decoders.tables.parts import AGGREGATE
from blumfeld_sink_spark.files.file_names import folder_of
from blumfeld_sink_spark.files.parquet import open_writer, opened
from blumfeld_sink_spark.quality.streams import is_constant
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.reading.market.intervals import DAY_NS, name_of
from blumfeld_sink_spark.reading.market.trades import of_market
from blumfeld_sink_spark.reading.ordered_rows import sorted_by
from blumfeld_sink_spark.records import FileEntry
from blumfeld_sink_spark.tables import AGG_TRADES, BARS, BUY, TRADES, tables

COLUMNS = (
    *("ts_event", "venue", "symbol", "trade_id", "side", "price", "size", "flags"),
    *("k_partition", "k_offset"),
)


@attrs.frozen
class Covered:
    """One file of bars and its source."""

    date: str
    symbol: str
    path: str
    bars: int
    trades: int
    """Trades of the market, each once."""
    until_ns: int
    """End of the last bar that may be in the file. Bars after it may still change."""
    whole: bool
    """Whether ``until_ns`` is the end of the date."""


def closed_until(archive: Committed) -> dict[str, int]:
    """Returns the time up to which each topic's input is complete: the latest event of its slowest partition."""
    latest: dict[tuple[str, int], int] = {}
    for name in (TRADES, AGG_TRADES, "bbo", "book_deltas"):
        for entry in archive.files(name):
            place = (entry.topic, entry.partition)
            latest[place] = max(latest.get(place, entry.ts_max), entry.ts_max)
    closed_ts: dict[str, int] = {}
    for (topic, partition), ts in latest.items():
        if partition >= 0 or topic not in closed_ts:
            closed_ts[topic] = min(closed_ts.get(topic, ts), ts)
    return closed_ts


def make(
    archive: Committed,
    interval_ns: int,
    *,
    symbols: Sequence[str] = (),
    start: str = "",
    end: str = "",
    through: bool = False,
) -> Iterator[Covered]:
    """Writes the bars of each date and symbol, in order, and yields each file once it is written.

    :param start: first date, ``YYYY-MM-DD``; empty is no bound
    :param end: last date, inclusive
    :param through: write also bars that may still change, because their input isn't complete
    :raises ArchiveError: a symbol isn't archived
    """
    archive.expect(symbols)
    horizon = closed_until(archive)

    def wanted(entry: FileEntry) -> bool:
        dated = start <= entry.date and (not end or entry.date <= end)
        return dated and (not symbols or entry.symbol in symbols)

    groups = _by_place(filter(wanted, archive.files(AGG_TRADES)))
    groups |= _by_place(filter(wanted, archive.files(TRADES)))
    for (date, symbol), entries in sorted(groups.items()):
        rows = pa.concat_tables(_read(archive, entry) for entry in entries)
        made = bars_of(rows, interval_ns)
        counted = pc.sum(made.column("trades")).as_py() or 0
        until = midnight = _midnight_ns(date) + DAY_NS
        if not through:
            until = min(midnight, *(horizon[entry.topic] for entry in entries))
            made = made.filter(pc.less_equal(pc.add(made.column("ts"), interval_ns), until))
        path = f"{folder_of(BARS, date, symbol)}/{name_of(interval_ns)}.parquet"
        archive.store.put(path, as_parquet(made))
        yield Covered(date, symbol, path, made.num_rows, counted, until, until == midnight)


def _by_place(entries: Iterable[FileEntry]) -> dict[tuple[str, str], list[FileEntry]]:
    """Groups files by date and symbol."""
    by_place: dict[tuple[str, str], list[FileEntry]] = {}
    for entry in entries:
        by_place.setdefault((entry.date, entry.symbol), []).append(entry)
    return by_place


def _midnight_ns(date: str) -> int:
    return int(np.datetime64(date, "ns").astype(np.int64))


def _read(archive: Committed, entry: FileEntry) -> pa.Table:
    with archive.open_file(entry) as file:
        return opened(file).read(columns=list(COLUMNS))


def as_parquet(bars: pa.Table) -> bytes:
    """Returns the bytes of a Parquet file in the archive's encodings."""
    table = tables(*_price_type(bars))[BARS]
    sink = io.BytesIO()
    writer = open_writer(sink, table, "zstd:3")
    writer.write_table(bars.cast(table.schema))
    writer.close()
    return sink.getvalue()


def _price_type(bars: pa.Table) -> tuple[int, int]:
    number = bars.schema.field("open").type
    return number.precision, number.scale


def bars_of(trades: pa.Table, interval_ns: int) -> pa.Table:
    """Returns the bars of trades, which may be in any order. Bars are sorted by venue, symbol and time."""
    number = trades.schema.field("price").type
    schema = tables(number.precision, number.scale)[BARS].schema
    trades = _countable(trades)
    if not trades.num_rows:
        return schema.empty_table()
    starts_of = trades.column("ts_event").to_numpy() // interval_ns * interval_ns
    starts = _edges([starts_of, *_codes(trades)])
    ends = np.append(starts[1:], trades.num_rows) - 1
    bar = pa.array(np.repeat(np.arange(len(starts)), np.diff(np.append(starts, trades.num_rows))))
    size = trades.column("size")
    none = pa.scalar(Decimal(0), number)
    bought = pc.if_else(pc.equal(trades.column("side"), BUY), size, none)
    sums = _sums(bar, trades.column("price"), size, bought)
    prices = trades.column("price")
    columns = {
        "ts": pa.array(starts_of[starts]),
        "interval_ns": pa.repeat(interval_ns, len(starts)),
        "venue": trades.column("venue").take(starts),
        "symbol": trades.column("symbol").take(starts),
        "open": prices.take(starts),
        "high": sums.column("price_max"),
        "low": sums.column("price_min"),
        "close": prices.take(ends),
        "volume": sums.column("size_sum").cast(number),
        "buy_volume": sums.column("bought_sum").cast(number),
        "vwap": pa.array(_vwap(prices, size, starts)),
        "trades": pa.array(ends - starts + 1),
    }
    return pa.Table.from_arrays([columns[field.name] for field in schema], schema=schema)


def _edges(columns: Sequence[NDArray[np.int64]]) -> NDArray[np.intp]:
    """Returns the rows in which any column differs from the row before; the first row is one."""
    changed = np.zeros(len(columns[0]), dtype=bool)
    changed[0] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return np.nonzero(changed)[0]


def _countable(trades: pa.Table) -> pa.Table:
    """Returns each trade of the market once, by venue, symbol, time and place in the log."""
    trades = of_market(trades)
    flags = pc.fill_null(trades.column("flags"), 0).to_numpy()
    # Older archives have Binance's aggregates among the trades. Other venues use the same flag for single trades.
    old = ((flags & AGGREGATE) > 0) & pc.starts_with(trades.column("venue"), "binance").to_numpy()
    if old.any() and not old.all():
        trades = trades.filter(pa.array(~old))
    return _once(_in_order(trades)) if trades.num_rows else trades


_KIND = ("venue", "symbol")
_PLACE = ("ts_event", "k_partition", "k_offset")
_SAME = ("venue", "symbol", "trade_id", "ts_event", "side", "price", "size")
"""Columns in which the copies of a trade are equal."""
_NTH = "__nth"


def _in_order(trades: pa.Table) -> pa.Table:
    """Returns the trades by venue, symbol, time and place in the log. Files of one topic nearly always are."""
    keys = [name for name in _PLACE if name in trades.column_names]
    if all(is_constant(trades.column(name)) for name in _KIND):
        return sorted_by(trades, keys)
    # stable: a message's trades stay in order
    return trades.sort_by([(name, "ascending") for name in (*_KIND, *keys)])


def _once(trades: pa.Table) -> pa.Table:
    """Leaves out the later copies of trades that have an id. Only trades of one time can be copies."""
    near = _beside_one_of_its_time(trades.column("ts_event").to_numpy())
    some = trades.select(["trade_id"]).append_column(_NTH, pa.array(np.arange(trades.num_rows)))
    some = some.filter(pa.array(near)).drop_null()
    ids = some.column("trade_id").to_numpy()
    if (ids[1:] > ids[:-1]).all():
        return trades
    counts = pc.value_counts(some.column("trade_id"))
    several = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    nth = some.filter(pc.is_in(some.column("trade_id"), several)).column(_NTH)
    if not len(nth):
        return trades
    named = trades.select(list(_SAME)).take(nth).append_column(_NTH, nth)
    firsts = named.group_by(list(_SAME), use_threads=False).aggregate([(_NTH, "min")])
    kept = np.ones(trades.num_rows, dtype=bool)
    kept[nth.to_numpy()] = False
    kept[firsts.column(f"{_NTH}_min").to_numpy()] = True
    return trades if kept.all() else trades.filter(pa.array(kept))


def _beside_one_of_its_time(times: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns for each row whether the row before or behind it has its time."""
    alike = np.concatenate([[False], times[1:] == times[:-1], [False]])
    near: NDArray[np.bool_] = alike[:-1] | alike[1:]
    return near


def _codes(trades: pa.Table) -> list[NDArray[np.int64]]:
    names = ("venue", "symbol")
    return [trades.column(name).combine_chunks().dictionary_encode().indices.to_numpy() for name in names]


def _sums(bar: pa.Array, price: pa.ChunkedArray, size: pa.ChunkedArray, bought: pa.ChunkedArray) -> pa.Table:
    rows = pa.table({"bar": bar, "price": price, "size": size, "bought": bought})
    sums = rows.group_by("bar", use_threads=False).aggregate(
        [("price", "max"), ("price", "min"), ("size", "sum"), ("bought", "sum")]
    )
    return sums.sort_by("bar")


def _vwap(price: pa.ChunkedArray, size: pa.ChunkedArray, starts: NDArray[np.intp]) -> NDArray[np.float64]:
    """Returns the VWAP of each bar in float64; the mean price where all sizes are 0."""
    prices, sizes = (column.cast(pa.float64()).to_numpy() for column in (price, size))
    turnover, volume = np.add.reduceat(prices * sizes, starts), np.add.reduceat(sizes, starts)
    counts = np.diff(np.append(starts, len(prices)))
    mean = np.add.reduceat(prices, starts) / counts
    made: NDArray[np.float64] = np.divide(turnover, volume, out=mean, where=volume > 0)
    return made
