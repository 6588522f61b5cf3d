"""Draws best bid and ask over time: the mid price, and the spread with its usual range."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.reading.plots import style
from blumfeld_sink_spark.reading.plots.windows import Window, window_of
from blumfeld_sink_spark.reading.views import connect
from blumfeld_sink_spark.tables import BBO

BINS = 360
LOW, HIGH = 0.1, 0.9
LOG_FROM = 12
"""Ratio of the widest to the median spread from which on the axis is logarithmic."""

_QUOTES = """
FROM (SELECT ts_event, spread_bps(bid, ask) AS bps, mid(bid, ask) AS m
      FROM bbo
      WHERE symbol = $symbol AND venue = $venue AND bid IS NOT NULL AND ask IS NOT NULL
        AND ts_event >= $start AND ts_event < $end)
"""
_QUERY = f"""
SELECT (ts_event - $start) // $width AS bin,
       quantile_cont(bps, {LOW}) AS low, median(bps) AS middle, quantile_cont(bps, {HIGH}) AS high,
       median(m) AS mid, count(*) AS quotes
{_QUOTES}GROUP BY bin ORDER BY bin
"""


def draw(
    archive: Committed,
    symbol: str,
    folder: Path,
    svg: bool,
    start_ns: int | None = None,
    end_ns: int | None = None,
) -> Path:
    """Draws ``spread-<symbol>`` and returns its path.

    :raises ArchiveError: the symbol has no quotes with both sides in that time
    """
    window = window_of(archive, BBO, symbol, start_ns, end_ns)
    width = max(1, -(-(window.end_ns - window.start_ns) // BINS))
    bins, median = _asked(archive, window, width)
    if not len(bins["bin"]):
        raise ArchiveError(f"plot spread: no quotes of {symbol} with both sides in that time")
    at = ((window.start_ns + bins["bin"] * width + width // 2) // 1000).astype("datetime64[us]")
    quotes = int(bins["quotes"].sum())
    subtitle = f"{quotes:,} quotes of {window.venue}, {window.span}. Median spread {median:.3g} bps"
    with style.figure(
        2, 5.6, f"{symbol}: spread", subtitle, sharex=True, gridspec_kw={"height_ratios": [1, 1.25]}
    ) as (drawn, (top, below)):
        _broken(top, at, bins["bin"], bins["mid"], style.INK, None)
        top.set_title("mid price")
        top.ticklabel_format(axis="y", useOffset=False, style="plain")
        label = f"{LOW:.0%} to {HIGH:.0%} of quotes"
        below.fill_between(
            at, bins["low"], bins["high"], color=style.BLUE, alpha=0.22, linewidth=0, label=label
        )
        _broken(below, at, bins["bin"], bins["middle"], style.BLUE, "median")
        below.set_title("spread, basis points of the mid price")
        _scale(below, bins)
        style.legend(below, 2)
        style.time_axis(top, label=False)
        style.time_axis(below)
        below.set_xlim(at[0], at[-1])
        return style.save(drawn, folder, f"spread-{window.file_name}", svg)


def _scale(axis: Any, bins: dict[str, Any]) -> None:
    """Sets the axis: linear from 0, or logarithmic where a few wide moments would press all others flat."""
    from matplotlib.ticker import FuncFormatter

    least, most = float(bins["low"].min()), float(bins["high"].max())
    if least > 0 and most > LOG_FROM * float(np.median(bins["middle"])):
        axis.set_yscale("log")
        axis.set_ylim(least * 0.7, most * 1.4)
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    elif least >= 0:
        axis.set_ylim(0, most * 1.1 or 1)


def _asked(archive: Committed, window: Window, width: int) -> tuple[dict[str, Any], float]:
    """Returns the bins' columns, and the median spread of all quotes."""
    values = {"start": window.start_ns, "end": window.end_ns, "symbol": window.symbol, "venue": window.venue}
    with connect(archive) as connection:
        bins: dict[str, Any] = connection.execute(_QUERY, {**values, "width": width}).fetchnumpy()
        ((median,),) = connection.execute(f"SELECT median(bps) {_QUOTES}", values).fetchall()
    return bins, median or 0.0


def _broken(axis: Any, at: Any, bins: Any, values: Any, colour: str, label: str | None) -> None:
    """Draws a line that breaks where bins are missing, so that no line connects quotes across a silence."""
    holes = np.nonzero(np.diff(bins) > max(3, BINS // 60))[0] + 1
    axis.plot(
        np.insert(at, holes, at[holes]),
        np.insert(np.asarray(values, dtype=np.float64), holes, np.nan),
        color=colour,
        linewidth=1.3,
        label=label,
    )
