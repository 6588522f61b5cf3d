"""Plots that compare variants: cost of the work, system calls, ratios round by round, rates of all steps."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from blumfeld_bench.report.curves import log_marks, short
from blumfeld_bench.report.drawing import INK, Plot, colour_of
from blumfeld_bench.statistics.cells import (
    CPU_PER_REQUEST,
    END_TO_END_P99,
    PRODUCE_P50,
    PRODUCE_P99,
    RATE,
    Measure,
    StepCells,
)
from blumfeld_bench.statistics.findings import Findings, Interval

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
    counted = [one for one in counted if one[2]]
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
            return total - sum(calls.get(one, 0.0) for one in names)
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


def ratio_dots(cells: StepCells, name: str, findings: Findings) -> Plot | None:
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

    def known(index: int, measure: Measure) -> Interval | None:
        return findings.intervals.get((cells.step.name, cells.cells[index].variant.label, measure.key))

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
        + (ratio_words(found) if (found := known(index, measure)) else "not known")
        for index, cell in enumerate(others, start=1)
        for measure in measures
        if ratios[index, measure.key]
    ]
    title = f"Round by round, against {first.variant.label}"
    alt = f"{title}, step {cells.step.name}, ratios with their intervals: {'; '.join(said)}."
    height = 1.2 + (0.22 + 0.13 * len(others)) * len(measures)
    return Plot(name, title, alt, draw, height_in=height)


def _rounds_and_interval(
    axes: Axes, values: Sequence[float], at: float, index: int, interval: Interval | None
) -> None:
    style: dict[str, Any] = {"color": colour_of(index), "linestyle": "none", "alpha": 0.6, "markersize": 4.5}
    axes.plot(values, [at] * len(values), marker=MARKERS[index % len(MARKERS)], **style)
    if interval is not None:
        axes.hlines(at, interval.low, interval.high, color=INK, linewidth=1.3)
        axes.plot([interval.ratio], [at], "|", color=INK, markersize=12, markeredgewidth=2)


def _bounds(values: Sequence[float], interval: Interval | None) -> list[float]:
    """Return an interval's ends, cut off where they would shrink the plot of the rounds to a dot."""
    if interval is None or not values:
        return []
    return [max(interval.low, min(values) / INTERVAL_SHOWN), min(interval.high, max(values) * INTERVAL_SHOWN)]


def ratio_words(interval: Interval) -> str:
    """Return a ratio and its interval in words, for readers who can't see the line."""
    return f"{interval.ratio:.3g}× ({interval.low:.3g} to {interval.high:.3g})"


def round_ratios(cells: StepCells, index: int, measure: Measure) -> list[float]:
    """Return that variant's value divided by the first one's, for each round that has both."""
    first = {one.measured.round: measure.of(one) for one in cells.cells[0].rounds}
    found = []
    for one in cells.cells[index].rounds:
        ours, theirs = measure.of(one), first.get(one.measured.round)
        if ours and theirs:
            found.append(ours / theirs)
    return found


def step_dots(steps: Sequence[StepCells], name: str, title: str, measure: Measure) -> Plot | None:
    """Return one measure over all steps of a workload, with the driver's ceilings where the measure is the rate."""
    steps = [cells for cells in steps if cells.has(measure)]
    if len(steps) < 2:
        return None
    ceilings = [cells.cells[0].ceiling for cells in steps] if measure is RATE else []

    def draw(axes: Axes) -> None:
        for index, cell in enumerate(steps[0].cells):
            found = ((row, cells.cells[index].median(measure)) for row, cells in enumerate(steps))
            medians = {row: value for row, value in found if value}
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
        marks = [(one.records_per_s, row) for row, one in enumerate(ceilings) if one and one.records_per_s]
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
        axes.xaxis.set_major_locator(LogLocator(subs=log_marks(least, most)))
        axes.xaxis.set_minor_formatter(NullFormatter())
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
