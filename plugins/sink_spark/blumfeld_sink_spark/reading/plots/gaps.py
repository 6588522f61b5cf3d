"""Draws a calendar of the gaps in each hour, and the kinds of gaps on each date."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.files.file_names import encode_symbol
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.reading.findings import read
from blumfeld_sink_spark.reading.plots import style
from blumfeld_sink_spark.tables import AGG_TRADES, BBO, BOOK_DELTAS, TRADES

DATES_MAX = 92
"""Dates in the picture, the latest ones. More than a quarter of a year can't be read."""
HOUR_NS = 3600 * 10**9
NONE, WHOLE = -1, 0


@attrs.frozen
class Calendar:
    """Findings by hour and by kind."""

    dates: list[str]
    hours: Any
    """Array (dates, 24) of the number of findings; -1 where the archive has no data."""
    kinds: dict[str, list[int]]
    """Number of findings of each kind on each date."""


def calendar(archive: Committed, symbol: str, start_ns: int | None, end_ns: int | None) -> Calendar:
    """Returns the findings of a symbol, or of all symbols, in a time.

    :raises ArchiveError: the archive has no rows in that time
    """
    covered = _covered(archive, symbol, start_ns, end_ns)
    findings = read(archive, symbols=[symbol] if symbol else [], start_ns=start_ns, end_ns=end_ns)
    counted = _counted(findings)
    hours = sorted({*covered, *(hour for hour, _ in counted)})
    if not hours:
        raise ArchiveError("plot gaps: the archive has no rows in that time")
    dates = _days(hours[0], hours[-1])[-DATES_MAX:]
    at = {day: row for row, day in enumerate(dates)}
    grid = np.full((len(dates), 24), NONE)
    for hour in covered:
        if (day := _day(hour)) in at:
            grid[at[day], hour % 24] = WHOLE
    kinds: dict[str, list[int]] = {}
    for (hour, kind), count in sorted(counted.items()):
        if (day := _day(hour)) in at:
            grid[at[day], hour % 24] = max(grid[at[day], hour % 24], 0) + count
            kinds.setdefault(kind, [0] * len(dates))[at[day]] += count
    return Calendar(dates, grid, kinds)


def _counted(rows: pa.Table) -> Counter[tuple[int, str]]:
    """Counts findings by (hour since the epoch, kind). The end of a state isn't a finding of its own."""
    counted: Counter[tuple[int, str]] = Counter()
    for ts, kind in zip(rows["ts_event"].to_pylist(), rows["kind"].to_pylist(), strict=True):
        if not kind.endswith("_end"):
            counted[ts // HOUR_NS, kind] += 1
    return counted


def _covered(archive: Committed, symbol: str, start_ns: int | None, end_ns: int | None) -> set[int]:
    """Returns the hours since the epoch in which files have events, by their first and last ones."""
    entries = [
        entry
        for table in (TRADES, AGG_TRADES, BBO, BOOK_DELTAS)
        for entry in archive.select(table, symbol=symbol, start_ns=start_ns, end_ns=end_ns)
    ]
    return {hour for entry in entries for hour in range(entry.ts_min // HOUR_NS, entry.ts_max // HOUR_NS + 1)}


def _day(hour: int) -> str:
    return datetime.fromtimestamp(hour * 3600, UTC).date().isoformat()


def _days(first_hour: int, last_hour: int) -> list[str]:
    first, last = date.fromisoformat(_day(first_hour)), date.fromisoformat(_day(last_hour))
    return [(first + timedelta(days=nth)).isoformat() for nth in range((last - first).days + 1)]


def draw(
    archive: Committed,
    folder: Path,
    svg: bool,
    symbol: str = "",
    start_ns: int | None = None,
    end_ns: int | None = None,
) -> Path:
    """Draws ``gaps``, or ``gaps-<symbol>``, and returns its path.

    :raises ArchiveError: the archive has no rows in that time
    """
    gap_calendar = calendar(archive, symbol, start_ns, end_ns)
    total = sum(sum(counts) for counts in gap_calendar.kinds.values())
    whole, with_gaps = int((gap_calendar.hours == WHOLE).sum()), int((gap_calendar.hours > WHOLE).sum())
    subtitle = f"{total:,} findings in {with_gaps} of {whole + with_gaps} hours with data; hours are UTC, by event time"
    height = 2.5 + 0.30 * max(len(gap_calendar.dates), 3)
    title = f"{symbol}: gaps" if symbol else "Gaps, all symbols"
    name = f"gaps-{encode_symbol(symbol)}" if symbol else "gaps"
    if not gap_calendar.kinds:  # nothing to break down: the calendar takes the whole width
        with style.figure(1, height, title, subtitle) as (drawn, axis):
            _hours(axis, gap_calendar)
            return style.save(drawn, folder, name, svg)
    with style.figure(
        1, height, title, subtitle, ncols=2, sharey=True, gridspec_kw={"width_ratios": [2.6, 1]}
    ) as (drawn, (left, right)):
        _hours(left, gap_calendar)
        _kinds(drawn, right, gap_calendar)
        return style.save(drawn, folder, name, svg)


def _hours(axis: Any, gap_calendar: Calendar) -> None:
    from matplotlib.colors import LinearSegmentedColormap, LogNorm
    from matplotlib.patches import Patch

    worst = max(int(gap_calendar.hours.max()), 30)  # one finding is never the darkest
    colours = LinearSegmentedColormap.from_list("gaps", ["#fbe3a4", "#f0a03c", style.RED, "#8c1c2b"])
    norm = LogNorm(vmin=1, vmax=worst)
    axis.grid(visible=False)
    edges_x, edges_y = np.arange(25), np.arange(len(gap_calendar.dates) + 1) - 0.5
    frame = {"edgecolors": "white", "linewidth": 1.6}
    for value, colour in ((NONE, "#eceff3"), (WHOLE, "#cfe8d5")):
        cells = np.ma.masked_where(gap_calendar.hours != value, np.zeros(gap_calendar.hours.shape))
        axis.pcolormesh(
            edges_x, edges_y, cells, cmap=LinearSegmentedColormap.from_list("one", [colour, colour]), **frame
        )
    cells = np.ma.masked_less(gap_calendar.hours, 1)
    axis.pcolormesh(edges_x, edges_y, cells, cmap=colours, norm=norm, **frame)
    if len(gap_calendar.dates) <= 40:
        _numbers(axis, gap_calendar.hours, norm)
    axis.set_xlim(0, 24)
    axis.set_xticks(range(0, 25, 3), [f"{hour:02d}" for hour in range(0, 25, 3)])
    axis.set_ylim(len(gap_calendar.dates) - 0.5, -0.5)
    every = -(-len(gap_calendar.dates) // 31)
    axis.set_yticks(range(0, len(gap_calendar.dates), every), gap_calendar.dates[::every])
    axis.tick_params(length=0)
    axis.spines[["left", "bottom"]].set_visible(False)
    axis.set_title("findings in each hour")
    axis.set_xlabel("hour, UTC")
    patches = [
        Patch(color="#eceff3", label="no data"),
        Patch(color="#cfe8d5", label="nothing found"),
        Patch(color="#f0a03c", label="findings"),
    ]
    axis.legend(
        handles=patches, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, fontsize=9, handlelength=1.0
    )


def _numbers(axis: Any, hours: Any, norm: Any) -> None:
    for (row, hour), count in np.ndenumerate(hours):
        if count > 0:
            dark = norm(count) > 0.5
            axis.text(
                hour + 0.5, row, style.short(count), ha="center", va="center", fontsize=7.5,
                color="white" if dark else style.INK,
            )  # fmt: skip


def _kinds(drawn: Any, axis: Any, gap_calendar: Calendar) -> None:
    from matplotlib.ticker import MaxNLocator

    left = np.zeros(len(gap_calendar.dates))
    rows = range(len(gap_calendar.dates))
    by_size: Sequence[str] = sorted(
        gap_calendar.kinds, key=lambda kind: (-sum(gap_calendar.kinds[kind]), kind)
    )
    for colour, kind in zip(style.CYCLE * 3, by_size, strict=False):
        counts = np.array(gap_calendar.kinds[kind])
        axis.barh(rows, counts, left=left, color=colour, height=0.62, label=kind.replace("_", " "))
        left = left + counts
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.set_xlim(0, max(float(left.max()), 1) * 1.05)
    axis.set_title("kinds on each date")
    axis.set_xlabel("findings")
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    drawn.legend(
        *axis.get_legend_handles_labels(),
        loc="outside lower right",
        ncols=len(by_size),
        fontsize=9,
        handlelength=1.2,
    )
