"""The plots of a comparison: latency over its percentiles and over the seconds of a step; cost of the work, system
calls, ratios round by round, and one measure over all steps.
"""

from __future__ import annotations

import itertools
import math
import statistics
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from blumfeld_bench.report.plot import INK, MUTED, Plot, colour_of, dash_of
from blumfeld_bench.result import Point
from blumfeld_bench.statistics.cells import (
    CPU_PER_REQUEST,
    END_TO_END_P99,
    PRODUCE_P50,
    PRODUCE_P99,
    RATE,
    Cell,
    Measure,
    Round,
    StepCells,
)
from blumfeld_bench.statistics.verdict import Comparison, Conclusion

MANY_NINES = 6
CURVE_POINTS = 40
SAMPLES_BEYOND = 10
"""Fewest samples beyond a percentile in a round. With fewer, a percentile shows one or two accidents, so the thick line
ends before it.
"""
LATENCY_LOG_FROM = 20.0
"""Latencies that span more than this factor are drawn on a log scale."""

LABEL_COLUMNS = 20
CALLS_SHOWN = 7
RATIO_MEASURES = (RATE, PRODUCE_P50, PRODUCE_P99, END_TO_END_P99, CPU_PER_REQUEST)
RATIO_TEXTS = "0.01 0.02 0.05 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1 1.1 1.25 1.5 2 3 5 10 20 50 100"
RATIO_MARKS = tuple(map(float, RATIO_TEXTS.split()))
INTERVAL_SHOWN = 1.3
TICKS_MOST = 8
"""Most labels of ratios that fit beside each other."""
LOG_FROM = 8.0
"""Values of several steps that span more than this factor are drawn on a log scale."""
MARKERS = "osD^vP"

Histogram = Callable[[Round], HdrHistogram | None]


def percentile_curve(cells: StepCells, name: str, title: str, histogram: Histogram) -> Plot | None:
    """Plot percentiles in HDR style: x is 1/(1−q) on a log scale. Thin lines are rounds, the thick one is their
    median.
    """
    if not any(histogram(cell_round) for cell in cells.cells for cell_round in cell.rounds):
        return None

    def draw(axes: Axes) -> None:
        seen: list[float] = []
        farthest = 10.0
        for index, cell in enumerate(cells.cells):
            rounds = [
                latencies for cell_round in cell.rounds if (latencies := histogram(cell_round)) is not None
            ]
            if not rounds:
                continue
            curves = [_curve(distribution) for distribution in rounds]
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
    if not any(cell_round.measured.series for cell in cells.cells for cell_round in cell.rounds):
        return None

    def draw(axes: Axes) -> None:
        values: list[float] = []
        earliest = 0.0
        for index, cell in enumerate(cells.cells):
            for cell_round in cell.rounds:
                series = cell_round.measured.series
                axes.plot(
                    [point.at_s for point in series],
                    [of(point) for point in series],
                    color=colour_of(index),
                    linewidth=0.6,
                    alpha=0.35,
                )
                values += [of(point) for point in series if point.at_s > 0]
                earliest = min([earliest, *(point.at_s for point in series)])
            at, middle = median_series([plotted_round.measured.series for plotted_round in cell.rounds], of)
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
    values_by_slot: dict[int, list[float]] = {}
    for series in rounds:
        for point in series:
            values_by_slot.setdefault(round(point.at_s / step), []).append(of(point))
    slots = sorted(slot for slot, values in values_by_slot.items() if 2 * len(values) >= len(rounds))
    return [slot * step for slot in slots], [statistics.median(values_by_slot[slot]) for slot in slots]


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
    fewest = min(distribution.get_total_count() for distribution in rounds)
    quantiles = _quantiles(fewest / SAMPLES_BEYOND)
    percentiles = [
        distribution.get_percentile_to_value_dict([q * 100 for q in quantiles]) for distribution in rounds
    ]
    middle = [statistics.median(max(values[q * 100], 1) / 1e6 for values in percentiles) for q in quantiles]
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
    if least > 0 and most / least > LATENCY_LOG_FROM:
        axes.set_yscale("log")
        _log_scale(axes.yaxis, least, most)
        axes.set_ylabel("ms (log scale)")
    else:
        axes.set_ylim(0, most * 1.1)
        axes.set_ylabel("ms")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _log_scale(axis: Any, least: float, most: float) -> None:
    axis.set_major_locator(LogLocator(subs=log_marks(least, most)))
    axis.set_minor_formatter(NullFormatter())


def _ceiling_line(axes: Axes, cells: StepCells, most: float) -> None:
    ceiling = next((cell.ceiling for cell in cells.cells if cell.ceiling), None)
    if ceiling is None or ceiling.records_per_s > 2 * most:
        return
    axes.axhline(ceiling.records_per_s, color=INK, linewidth=1, linestyle=":", label="the driver's ceiling")
    axes.set_ylim(0, max(most, ceiling.records_per_s) * 1.15)


def _curve_alt(cells: StepCells, title: str, histogram: Histogram) -> str:
    parts = []
    for cell in cells.cells:
        rounds = [latencies for cell_round in cell.rounds if (latencies := histogram(cell_round)) is not None]
        if rounds:
            values = [distribution.get_percentile_to_value_dict([50, 99]) for distribution in rounds]
            p50, p99 = (statistics.median(value[share] / 1e6 for value in values) for share in (50, 99))
            parts.append(f"{cell.variant.label} p50 {p50:.3g} ms, p99 {p99:.3g} ms")
    return f"{title}, step {cells.step.name}: {'; '.join(parts)}."


def _series_alt(cells: StepCells, title: str, unit: str, of: Callable[[Point], float]) -> str:
    parts = []
    for cell in cells.cells:
        values = [
            of(point) for cell_round in cell.rounds for point in cell_round.measured.series if point.at_s > 0
        ]
        if values:
            low, high = short(min(values)), short(max(values))
            parts.append(f"{cell.variant.label} between {low} and {high} {unit}")
    return f"{title}, step {cells.step.name}: {'; '.join(parts)}."


def wrapped(label: str) -> str:
    """Break a label into lines short enough for an axis; at most three."""
    return "\n".join(textwrap.wrap(label, LABEL_COLUMNS, max_lines=3, placeholder=" …") or [label])


def cost_bars(cells: StepCells, name: str, title: str, measure: Measure) -> Plot | None:
    """Return bars of the median over rounds, with a dot for each round."""
    shown = [(index, cell) for index, cell in enumerate(cells.cells) if cell.values(measure)]
    if not shown:
        return None
    medians = [statistics.median(cell.values(measure)) for _, cell in shown]

    def draw(axes: Axes) -> None:
        for row, (index, cell) in enumerate(shown):
            axes.barh(row, medians[row], height=0.5, color=colour_of(index), alpha=0.45)
            values = cell.values(measure)
            axes.plot(values, spread(row, len(values)), "o", color=colour_of(index), markersize=3.5)
            most = max(values)
            axes.annotate(f"{medians[row]:.3g}", (most, row), (6, 0), textcoords="offset points", va="center")
        _variant_rows(axes, [wrapped(cell.variant.label) for _, cell in shown])
        axes.set_xlim(0, max(max(cell.values(measure)) for _, cell in shown) * 1.18 or 1)
        axes.set_xlabel(measure.unit)

    said = (f"{cell.variant.label} {middle:.3g}" for (_, cell), middle in zip(shown, medians, strict=True))
    alt = f"{title} in {measure.unit}, step {cells.step.name}, medians of rounds: {'; '.join(said)}."
    return Plot(name, title, alt, draw, height_in=1.1 + 0.5 * len(shown), legend=False)


def system_call_bars(cells: StepCells, name: str) -> Plot | None:
    """Return the most frequent calls for each request; the remaining calls share one row."""
    counted = [(index, cell.variant.label, cell.calls_per_request) for index, cell in enumerate(cells.cells)]
    counted = [entry for entry in counted if entry[2]]
    if not counted:
        return None
    highest: dict[str, float] = {}
    for _, _, calls in counted:
        for call, number in calls.items():
            highest[call] = max(highest.get(call, 0.0), number)
    names = sorted(highest, key=lambda call: (-highest[call], call))[:CALLS_SHOWN]
    rows = ["all", *names] + (["others"] if len(highest) > len(names) else [])

    def number_of(calls: dict[str, float], row: str) -> float:
        total = sum(calls.values())
        if row == "others":
            return total - sum(calls.get(call_name, 0.0) for call_name in names)
        return total if row == "all" else calls.get(row, 0.0)

    def draw(axes: Axes) -> None:
        height = 0.8 / len(counted)
        for place, (index, label, calls) in enumerate(counted):
            at = [row - 0.4 + height * (place + 0.5) for row in range(len(rows))]
            values = [number_of(calls, row) for row in rows]
            axes.barh(at, values, height=height * 0.9, color=colour_of(index), alpha=0.75, label=label)
        _variant_rows(axes, rows)
        axes.set_xlabel("calls for each request")

    said = (f"{label} {sum(calls.values()):.3g}" for _, label, calls in counted)
    alt = f"System calls for each request, step {cells.step.name}, all together: {'; '.join(said)}."
    height = 1.3 + (0.14 + 0.09 * len(counted)) * len(rows)
    return Plot(name, "System calls for each request", alt, draw, height_in=height)


def ratio_dots(cells: StepCells, name: str, findings: Conclusion) -> Plot | None:
    """Return each round's ratio to the first variant in the same round, with the estimate as a tick and its interval as
    a line.
    """
    first, *others = cells.cells
    measures = [measure for measure in RATIO_MEASURES if first.values(measure)]
    ratios = {
        (index, measure.key): round_ratios(cells, index, measure)
        for index in range(1, len(others) + 1)
        for measure in measures
    }
    if not any(ratios.values()):
        return None

    def known(index: int, measure: Measure) -> Comparison | None:
        return findings.of(cells.step.name, cells.cells[index].variant.label, measure.key)

    def draw(axes: Axes) -> None:
        seen: list[float] = []
        height = 0.7 / len(others)
        for index, cell in enumerate(others, start=1):
            for row, measure in enumerate(measures):
                values = ratios[index, measure.key]
                at = row - 0.35 + height * (index - 0.5)
                _rounds_and_interval(axes, values, at, index, known(index, measure))
                seen += values
                seen += _bounds(values, known(index, measure))
            marker = MARKERS[index % len(MARKERS)]
            axes.plot([], [], marker, color=colour_of(index), alpha=0.6, label=cell.variant.label)
        axes.axvline(1.0, color=colour_of(0), linewidth=1.5, label=f"{first.variant.label} (1×)")
        _ratio_axis(axes, seen)
        _variant_rows(axes, [measure.title for measure in measures])

    said = [
        f"{cell.variant.label} {measure.title} "
        + (ratio_words(known_ratios) if (known_ratios := known(index, measure)) else "not known")
        for index, cell in enumerate(others, start=1)
        for measure in measures
        if ratios[index, measure.key]
    ]
    title = f"Round by round, against {first.variant.label}"
    alt = f"{title}, step {cells.step.name}, ratios with their intervals: {'; '.join(said)}."
    height = 1.2 + (0.22 + 0.13 * len(others)) * len(measures)
    return Plot(name, title, alt, draw, height_in=height)


def _rounds_and_interval(
    axes: Axes, values: Sequence[float], at: float, index: int, interval: Comparison | None
) -> None:
    style: dict[str, Any] = {"color": colour_of(index), "linestyle": "none", "alpha": 0.6, "markersize": 4.5}
    axes.plot(values, [at] * len(values), marker=MARKERS[index % len(MARKERS)], **style)
    if interval is not None:
        axes.hlines(at, interval.low, interval.high, color=INK, linewidth=1.3)
        axes.plot([interval.ratio], [at], "|", color=INK, markersize=12, markeredgewidth=2)


def _bounds(values: Sequence[float], interval: Comparison | None) -> list[float]:
    """Return an interval's ends, cut off where they would shrink the plot of the rounds to a dot."""
    if interval is None or not values:
        return []
    return [max(interval.low, min(values) / INTERVAL_SHOWN), min(interval.high, max(values) * INTERVAL_SHOWN)]


def ratio_words(interval: Comparison) -> str:
    """Return a ratio and its interval in words, for readers who can't see the line."""
    return f"{interval.ratio:.3g}× ({interval.low:.3g} to {interval.high:.3g})"


def round_ratios(cells: StepCells, index: int, measure: Measure) -> list[float]:
    """Return that variant's value divided by the first one's, for each round that has both."""
    first = {base_round.measured.round: measure.of(base_round) for base_round in cells.cells[0].rounds}
    ratios = []
    for cell_round in cells.cells[index].rounds:
        ours, theirs = measure.of(cell_round), first.get(cell_round.measured.round)
        if ours and theirs:
            ratios.append(ours / theirs)
    return ratios


def step_dots(steps: Sequence[StepCells], name: str, title: str, measure: Measure) -> Plot | None:
    """Return one measure over all steps of a workload, with the driver's ceilings where the measure is the rate."""
    steps = [cells for cells in steps if cells.has(measure)]
    if len(steps) < 2:
        return None
    ceilings = [cells.cells[0].ceiling for cells in steps] if measure is RATE else []

    def draw(axes: Axes) -> None:
        for index, cell in enumerate(steps[0].cells):
            pairs = ((row, cells.cells[index].median(measure)) for row, cells in enumerate(steps))
            medians = {row: value for row, value in pairs if value}
            shift = (index - (len(steps[0].cells) - 1) / 2) * 0.16
            for row in medians:
                values = steps[row].cells[index].values(measure)
                style: dict[str, Any] = {"color": colour_of(index), "linewidth": 1.2, "alpha": 0.6}
                axes.hlines(row + shift, min(values), max(values), **style)
            axes.plot(
                list(medians.values()),
                [row + shift for row in medians],
                MARKERS[index % len(MARKERS)],
                color=colour_of(index),
                markersize=5,
                label=cell.variant.label,
            )
        marks = [
            (ceiling.records_per_s, row)
            for row, ceiling in enumerate(ceilings)
            if ceiling and ceiling.records_per_s
        ]
        if marks:
            at, rows = [rate for rate, _ in marks], [row for _, row in marks]
            axes.plot(at, rows, "|", color=INK, markersize=16, markeredgewidth=1.5, label="driver's ceiling")
        _value_axis(axes, measure.unit if measure is not RATE else "records/s")
        _variant_rows(axes, [wrapped(cells.step.name) for cells in steps])

    alt = f"{title}: medians of rounds for each step; the figures are in the tables below."
    return Plot(name, title, alt, draw, height_in=1.3 + 0.33 * len(steps))


def spread(row: int, count: int) -> list[float]:
    """Return heights at which the dots of one row don't cover each other."""
    return [row + (0.3 * (number / (count - 1) - 0.5) if count > 1 else 0.0) for number in range(count)]


def _variant_rows(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels)
    for label in axes.get_yticklabels():
        label.set_color(INK)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(len(labels) - 0.45, -0.55)


def _value_axis(axes: Axes, unit: str) -> None:
    """Use a log scale for a wide span of values, and a scale from 0 otherwise."""
    axes.set_xscale("log")
    least, most = axes.get_xlim()
    if least > 0 and most / least > LOG_FROM:
        _log_scale(axes.xaxis, least, most)
        axes.set_xlabel(f"{unit} (log scale)")
    else:
        axes.set_xscale("linear")
        axes.set_xlim(left=0)
        axes.set_xlabel(unit)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def _ratio_axis(axes: Axes, values: Sequence[float]) -> None:
    low, high = min([1.0, *values]) / 1.08, max([1.0, *values]) * 1.08
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    shown = ratio_ticks(low, high)
    axes.set_xticks(shown, [f"{mark:g}×" for mark in shown])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("ratio (log scale)")


def ratio_ticks(low: float, high: float) -> list[float]:
    """Return ticks at 1 and on both sides of it, as many as there is room for labels."""
    room = (high / low) ** (1 / TICKS_MOST)
    shown = [1.0]
    for mark in (mark for mark in RATIO_MARKS if 1 < mark <= high):
        if mark / shown[-1] >= room:
            shown.append(mark)
    for mark in (mark for mark in reversed(RATIO_MARKS) if low <= mark < 1):
        if shown[0] / mark >= room:
            shown.insert(0, mark)
    return shown
