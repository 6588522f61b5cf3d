"""Plots with a line for each variant: latency over its percentiles, and over the seconds of a step."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from hdrh.histogram import HdrHistogram
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from blumfeld_bench.report.drawing import INK, MUTED, Plot, colour_of, dash_of
from blumfeld_bench.result import Point
from blumfeld_bench.statistics.cells import END_TO_END_P99, PRODUCE_P99, RATE, Cell, Round, StepCells

MANY_NINES = 6
CURVE_POINTS = 40
SAMPLES_BEYOND = 10
"""Fewest samples beyond a percentile in a round. With fewer, a percentile shows one or two accidents, so the thick line
ends before it.
"""
LOG_FROM = 20.0
"""Latencies that span more than this factor are drawn on a log scale."""

Histogram = Callable[[Round], HdrHistogram | None]


def percentile_curve(cells: StepCells, name: str, title: str, histogram: Histogram) -> Plot | None:
    """Plot percentiles in HDR style: x is 1/(1−q) on a log scale. Thin lines are rounds, the thick one is their
    median.
    """
    if not any(histogram(one) for cell in cells.cells for one in cell.rounds):
        return None

    def draw(axes: Axes) -> None:
        seen: list[float] = []
        farthest = 10.0
        for index, cell in enumerate(cells.cells):
            rounds = [found for one in cell.rounds if (found := histogram(one)) is not None]
            if not rounds:
                continue
            curves = [_curve(one) for one in rounds]
            for at, value in curves:
                axes.plot(at, value, color=colour_of(index), linewidth=0.6, alpha=0.35)
                seen += [value[0], value[-1]]
                farthest = max(farthest, at[-1])
            at, value = _median_curve(rounds)
            _thick(axes, at, value, cell, index)
        axes.set_xscale("log")
        axes.set_xlim(1, farthest)
        _nines(axes, farthest)
        _latency_axis(axes, seen)

    return Plot(name, title, _curve_alt(cells, title, histogram), draw)


def rate_series(cells: StepCells, name: str) -> Plot | None:
    """Plot records a second over the step."""
    return _series_plot(
        cells, name, "Rate over time", "records/s", lambda point: point.records_per_s, RATE.key
    )


def latency_series(cells: StepCells, name: str) -> Plot | None:
    """Plot the p99 of each piece of the step, mostly half a second."""
    if not any(cells.has(measure) for measure in (PRODUCE_P99, END_TO_END_P99)):
        return None
    what = "ack" if cells.has(PRODUCE_P99) else "end to end"
    return _series_plot(
        cells, name, f"p99 over time ({what})", "ms", lambda point: point.p99_us / 1000, "p99"
    )


def _series_plot(
    cells: StepCells, name: str, title: str, unit: str, of: Callable[[Point], float], kind: str
) -> Plot | None:
    if not any(one.measured.series for cell in cells.cells for one in cell.rounds):
        return None

    def draw(axes: Axes) -> None:
        values: list[float] = []
        earliest = 0.0
        for index, cell in enumerate(cells.cells):
            for one in cell.rounds:
                series = one.measured.series
                axes.plot(
                    [point.at_s for point in series],
                    [of(point) for point in series],
                    color=colour_of(index),
                    linewidth=0.6,
                    alpha=0.35,
                )
                values += [of(point) for point in series if point.at_s > 0]
                earliest = min([earliest, *(point.at_s for point in series)])
            at, middle = median_series([one.measured.series for one in cell.rounds], of)
            _thick(axes, at, middle, cell, index)
        if earliest < 0:
            axes.axvspan(earliest, 0, color=MUTED, alpha=0.12, linewidth=0, label="warm-up, not counted")
        axes.set_xlabel("seconds of the measured part")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
        axes.margins(x=0)
        if kind == RATE.key:
            axes.set_ylim(0, max(values, default=1) * 1.15)
            axes.set_ylabel(unit)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
            _ceiling_line(axes, cells, max(values, default=1))
        else:
            _latency_axis(axes, [value for value in values if value > 0])

    return Plot(name, title, _series_alt(cells, title, unit, of), draw)


def median_series(
    rounds: Iterable[Sequence[Point]], of: Callable[[Point], float]
) -> tuple[list[float], list[float]]:
    """Return the median over rounds at each point in time; times are aligned to the interval of the rounds' points."""
    rounds = [series for series in rounds if len(series) > 1]
    if not rounds:
        return [], []
    gaps = [after.at_s - before.at_s for series in rounds for before, after in itertools.pairwise(series)]
    step = max(statistics.median(gaps), 1e-3)
    found: dict[int, list[float]] = {}
    for series in rounds:
        for point in series:
            found.setdefault(round(point.at_s / step), []).append(of(point))
    slots = sorted(slot for slot, values in found.items() if 2 * len(values) >= len(rounds))
    return [slot * step for slot in slots], [statistics.median(found[slot]) for slot in slots]


def short(value: float) -> str:
    """Return a short form of a count for an axis: 1.5M, 40k, 12."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:.3g}"


def log_marks(least: float, most: float) -> tuple[float, ...]:
    """Return the marks in each decade of a log axis of this span."""
    return (1.0,) if most / least > 1e4 else (1.0, 3.0) if most / least > 300 else (1.0, 2.0, 5.0)


def _thick(axes: Axes, at: Sequence[float], value: Sequence[float], cell: Cell, index: int) -> None:
    axes.plot(
        at, value, color=colour_of(index), linestyle=dash_of(index), linewidth=2, label=cell.variant.label
    )


def _quantiles(count: float) -> list[float]:
    last = math.log10(max(count, 2.0))
    return [1 - 10**-exponent for exponent in np.linspace(0, last, CURVE_POINTS)]


def _curve(histogram: HdrHistogram) -> tuple[list[float], list[float]]:
    quantiles = _quantiles(histogram.get_total_count())
    values = histogram.get_percentile_to_value_dict([q * 100 for q in quantiles])
    return [1 / (1 - q) for q in quantiles], [max(values[q * 100], 1) / 1e6 for q in quantiles]


def _median_curve(rounds: Sequence[HdrHistogram]) -> tuple[list[float], list[float]]:
    fewest = min(one.get_total_count() for one in rounds)
    quantiles = _quantiles(fewest / SAMPLES_BEYOND)
    found = [one.get_percentile_to_value_dict([q * 100 for q in quantiles]) for one in rounds]
    middle = [statistics.median(max(values[q * 100], 1) / 1e6 for values in found) for q in quantiles]
    return [1 / (1 - q) for q in quantiles], middle


def _nines(axes: Axes, farthest: float) -> None:
    ticks = [(1.0, "0"), (2.0, "50"), *((10.0**n, _nine(n)) for n in range(1, MANY_NINES + 1))]
    shown = [(at, label) for at, label in ticks if at <= farthest]
    axes.set_xticks([at for at, _ in shown], [label for _, label in shown])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("percentile, %")


def _nine(nines: int) -> str:
    return "90" if nines == 1 else "99" if nines == 2 else "99." + "9" * (nines - 2)


def _latency_axis(axes: Axes, seen: Sequence[float]) -> None:
    least, most = min(seen, default=0.0), max(seen, default=1.0)
    if least > 0 and most / least > LOG_FROM:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=log_marks(least, most)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_ylabel("ms (log scale)")
    else:
        axes.set_ylim(0, most * 1.1)
        axes.set_ylabel("ms")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _ceiling_line(axes: Axes, cells: StepCells, most: float) -> None:
    ceiling = next((cell.ceiling for cell in cells.cells if cell.ceiling), None)
    if ceiling is None or ceiling.records_per_s > 2 * most:
        return
    axes.axhline(ceiling.records_per_s, color=INK, linewidth=1, linestyle=":", label="the driver's ceiling")
    axes.set_ylim(0, max(most, ceiling.records_per_s) * 1.15)


def _curve_alt(cells: StepCells, title: str, histogram: Histogram) -> str:
    parts = []
    for cell in cells.cells:
        rounds = [found for one in cell.rounds if (found := histogram(one)) is not None]
        if rounds:
            values = [one.get_percentile_to_value_dict([50, 99]) for one in rounds]
            p50, p99 = (statistics.median(value[share] / 1e6 for value in values) for share in (50, 99))
            parts.append(f"{cell.variant.label} p50 {p50:.3g} ms, p99 {p99:.3g} ms")
    return f"{title}, step {cells.step.name}: {'; '.join(parts)}."


def _series_alt(cells: StepCells, title: str, unit: str, of: Callable[[Point], float]) -> str:
    parts = []
    for cell in cells.cells:
        values = [of(point) for one in cell.rounds for point in one.measured.series if point.at_s > 0]
        if values:
            low, high = short(min(values)), short(max(values))
            parts.append(f"{cell.variant.label} between {low} and {high} {unit}")
    return f"{title}, step {cells.step.name}: {'; '.join(parts)}."
