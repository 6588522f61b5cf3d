"""Draws the book over time as a heat map: price against time, resting size as colour, the mid price as a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.book.ladder import Ladder
from blumfeld_sink_spark.book.sync import Sync
from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.reading.ordered_rows import ordered
from blumfeld_sink_spark.reading.plots import style
from blumfeld_sink_spark.reading.plots.windows import Window, window_of
from blumfeld_sink_spark.tables import BOOK_DELTAS

TIME_BINS, PRICE_BINS = 480, 180
"""Number of bins. Prices have between ``PRICE_BINS`` and 2.5 times as many, because a price step is a round number."""
MARGIN_BPS = 12.0
"""Margin above and below the range of the mid price."""
COLUMNS = (
    "ts_event", "venue", "first_id", "last_id", "prev_id", "side", "price", "size", "is_snapshot", "depth",
    "k_partition", "k_offset",
)  # fmt: skip


@attrs.frozen
class Column:
    """The book at one moment. Floats are exact enough for a picture."""

    ts_ns: int
    side: Any
    price: Any
    size: Any
    bid: float
    ask: float

    @property
    def mid(self) -> float:
        """Mid price; NaN where a side is empty."""
        return (self.bid + self.ask) / 2


def draw(
    archive: Committed,
    symbol: str,
    folder: Path,
    svg: bool,
    start_ns: int | None = None,
    end_ns: int | None = None,
) -> Path:
    """Draws ``depth-<symbol>`` and returns its path.

    :raises ArchiveError: the symbol has no rows in that time, or no snapshot in or before it
    """
    from matplotlib.patheffects import withStroke

    window = window_of(archive, BOOK_DELTAS, symbol, start_ns, end_ns)
    shown = list(columns(archive, window))
    if not any(np.isfinite(column.mid) for column in shown):
        raise ArchiveError(
            f"plot depth: no snapshot of {symbol} in or before that time, so no book can be built"
        )
    edges = price_edges(
        np.array([column.mid for column in shown]),
        levels=(min(column.price.min() for column in shown), max(column.price.max() for column in shown)),
        tick=tick_of(column.price for column in shown),
    )
    grid = np.column_stack([_binned(column, edges) for column in shown])
    times = np.array([column.ts_ns // 1000 for column in shown]).astype("datetime64[us]")
    step = edges[1] - edges[0]
    subtitle = (
        f"{window.venue}, {window.span}. Resting size in price steps of {step:g}; the line is the mid price"
    )
    with style.figure(1, 6.4, f"{symbol}: depth of the book", subtitle) as (drawn, axis):
        _heat(drawn, axis, times, edges, grid)
        edge = [withStroke(linewidth=3.2, foreground="#10131a")]
        axis.plot(times, [column.mid for column in shown], color="#7fe7ff", linewidth=1.3, path_effects=edge)
        axis.set_ylabel("price")
        axis.ticklabel_format(axis="y", useOffset=False, style="plain")
        axis.set_ylim(edges[0], edges[-1])
        style.time_axis(axis)
        return style.save(drawn, folder, f"depth-{window.file_name}", svg)


def columns(archive: Committed, window: Window, bins: int = TIME_BINS) -> Iterator[Column]:
    """Yields the book at the end of each of ``bins`` parts of the window, from the first snapshot on.

    Rows before the window are read too, because the book at its start consists of them.
    """
    entries = [
        entry for entry in archive.select(BOOK_DELTAS, symbol=window.symbol) if entry.topic == window.topic
    ]
    moments = [window.start_ns + (window.end_ns - window.start_ns) * (nth + 1) // bins for nth in range(bins)]
    sync, ladder = Sync(), Ladder()
    partition, at, held = None, 0, None
    for rows in ordered(archive, entries, COLUMNS, "k_offset"):
        partition = rows["k_partition"][0].as_py() if partition is None else partition
        rows = rows.filter(pc.equal(rows["k_partition"], partition))
        whole, held = _whole(rows if held is None else pa.concat_tables([held, rows]))
        at = yield from _advance(sync, ladder, whole, moments, at)
    if held is not None and held.num_rows:
        at = yield from _advance(sync, ladder, held, moments, at)
    for moment in moments[at:]:
        yield from _column(ladder, moment)


def _advance(sync: Sync, ladder: Ladder, rows: pa.Table, moments: list[int], at: int) -> Any:
    """Applies rows and yields the book at each moment that they pass. Returns the index of the next moment."""
    while at < len(moments) and rows.num_rows:
        # The running maximum puts an event with an old timestamp at its place in the feed, as the venue sent it.
        stamps = np.maximum.accumulate(rows["ts_event"].to_numpy())
        count = _message_edge(rows, int(np.searchsorted(stamps, moments[at])))
        ladder.take(change for part in _fed(rows.slice(0, count)) for change in sync.feed(part))
        rows = rows.slice(count)
        if rows.num_rows:
            yield from _column(ladder, moments[at])
            at += 1
    return at


def _fed(rows: pa.Table) -> Iterator[pa.Table]:
    if rows.num_rows:
        yield rows.combine_chunks()


def _whole(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Splits off the last message, which may go on in the next batch."""
    last = rows["k_offset"][-1]
    count = rows.num_rows - (pc.sum(pc.equal(rows["k_offset"], last)).as_py() or 0)
    return rows.slice(0, count), rows.slice(count)


def _message_edge(rows: pa.Table, at: int) -> int:
    """Returns the first row from ``at`` on that begins a message."""
    if at in (0, rows.num_rows):
        return at
    offsets = rows["k_offset"].to_numpy()
    return int(np.searchsorted(offsets, offsets[at - 1], side="right"))


def _column(ladder: Ladder, moment: int) -> Iterator[Column]:
    ladder.settle()
    levels = ladder.levels
    if levels is None or not levels.num_rows:
        return
    side = levels["side"].to_numpy()
    price, size = (levels[name].cast(pa.float64()).to_numpy() for name in ("price", "size"))
    bids, asks = price[side > 0], price[side < 0]
    yield Column(
        moment,
        side,
        price,
        size,
        float(bids.max()) if len(bids) else float("nan"),
        float(asks.min()) if len(asks) else float("nan"),
    )


def tick_of(prices: Iterable[Any]) -> float:
    """Returns the least distance between two prices of one moment; 0 where no moment has two."""
    steps = [np.diff(np.unique(each)).min() for each in prices if len(np.unique(each)) > 1]
    return float(f"{min(steps):.10g}") if steps else 0.0


def price_edges(mids: Any, levels: tuple[float, float] = (-np.inf, np.inf), tick: float = 0.0) -> Any:
    """Returns the edges of price bins of one width, which cover all mid prices with a margin.

    The width is a round number, or the tick where that is wider: bins between two ticks would be empty stripes.

    :param levels: least and greatest price that any level has. There is no margin behind them, where nothing rests
    :param tick: distance between two prices of the book. Edges lie between its prices, so that no price lies on one
    """
    low, high = np.nanmin(mids), np.nanmax(mids)
    margin = max(high * MARGIN_BPS / 1e4, (high - low) * 0.12)
    low, high = max(low - margin, levels[0] - tick), min(high + margin, levels[1] + tick)
    rough = (high - low) / PRICE_BINS
    power = 10.0 ** np.floor(np.log10(rough))
    step = max(tick, next(nice * power for nice in (5, 2, 1) if nice * power <= rough * 1.001))
    return np.arange(np.floor(low / step), np.ceil(high / step) + 1) * step - tick / 2


def _binned(column: Column, edges: Any) -> Any:
    return np.histogram(column.price, bins=edges, weights=column.size)[0]


def _heat(drawn: Any, axis: Any, times: Any, edges: Any, grid: Any) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    seen = grid[grid > 0]
    low, high = (
        np.quantile(seen, 0.25),
        np.quantile(seen, 0.9995),
    )  # usual sizes are dark, outstanding ones bright
    bounds = np.append(
        times, times[-1] + (times[-1] - times[-2] if len(times) > 1 else np.timedelta64(1, "s"))
    )
    axis.set_facecolor("#0c0c14")
    axis.grid(visible=False)
    mesh = axis.pcolormesh(
        bounds,
        edges,
        np.ma.masked_less_equal(grid, 0),
        norm=LogNorm(vmin=low, vmax=max(high, low * 1.01)),
        # Without its black end: the least size must differ from an empty step.
        cmap=ListedColormap(colormaps["inferno"](np.linspace(0.18, 1.0, 256))),
        rasterized=True,  # in an SVG too: it would hold a hundred thousand rectangles
    )
    bar = drawn.colorbar(mesh, ax=axis, pad=0.012, fraction=0.035)
    bar.ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda size, place: f"{size:,g}"))
    bar.set_label("resting size in a step (log)", color=style.SOFT)
    bar.outline.set_visible(False)
