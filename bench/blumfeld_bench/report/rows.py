"""The figures of one step as rows of text, for the terminal and the page: a row for each measure, a column for each
variant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from blumfeld_bench.report.narrative import (
    ceiling_words,
    durability_words,
    late_words,
    mark_of,
    nodes_words,
    offered_words,
)
from blumfeld_bench.statistics.cells import (
    CPU_PER_REQUEST,
    END_TO_END_P99,
    MEASURES,
    PRODUCE_P99,
    RATE,
    TRANSACTIONS,
    Cell,
    Measure,
    StepCells,
)
from blumfeld_bench.statistics.findings import Findings, Interval

NOTHING = "–"
RATIO_LEAST, RATIO_MOST = 0.01, 100.0
"""Interval ends beyond these are not shown as figures: they mean that nothing is known."""
HEADLINES = (TRANSACTIONS, RATE, PRODUCE_P99, END_TO_END_P99, CPU_PER_REQUEST)


@attrs.frozen
class Figure:
    """One cell of the table."""

    text: str
    ratio: str = ""
    """Ratio to the first variant, with its interval."""
    number: bool = True


@attrs.frozen
class Row:
    """One measure, or one word, of each variant."""

    title: str
    unit: str
    figures: tuple[Figure, ...]


WORDS: tuple[tuple[str, Callable[[Cell], str], bool], ...] = (
    ("of the offered rate", offered_words, True),
    ("of the driver's ceiling", ceiling_words, True),
    ("driver late p99, µs", late_words, True),
    ("CPU and RSS by node", nodes_words, False),
    ("mark", mark_of, False),
    ("an ack is", durability_words, False),
    ("network", lambda cell: cell.variant.network, False),
)
"""Rows of words: title, function that returns the words for a cell, and whether they are a number."""


def rows_of(cells: StepCells, findings: Findings) -> list[Row]:
    """Return all rows that have content for this step."""
    rows = [
        Row(
            measure.title,
            measure.unit if measure not in (RATE, TRANSACTIONS) else "",
            tuple(_figure(cell, measure, findings) for cell in cells.cells),
        )
        for measure in MEASURES
        if cells.has(measure)
    ]
    if any(cell.calls_per_request for cell in cells.cells):
        rows.append(Row("system calls/request", "", tuple(_calls(cell) for cell in cells.cells)))
    for title, of, number in WORDS:
        said = tuple(of(cell) for cell in cells.cells)
        if any(said):
            rows.append(Row(title, "", tuple(Figure(text or NOTHING, number=number) for text in said)))
    return rows


def headline_rows(steps: Sequence[StepCells], findings: Findings) -> tuple[list[Measure], list[Row]]:
    """Return all steps in one table: for each step and variant a row of the most important figures.

    :return: the columns, and rows titled by step, with the variant as their unit
    """
    shown = [one for one in HEADLINES if any(cells.has(one) for cells in steps)]
    rows = [
        Row(
            cells.step.name,
            cell.variant.label,
            tuple(_figure(cell, measure, findings) for measure in shown),
        )
        for cells in steps
        for cell in cells.cells
        if cell.rounds
    ]
    return shown, rows


def figure_text(value: float) -> str:
    """Format a number with three significant digits and a thousands separator, without exponents."""
    if value >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def ratio_text(interval: Interval) -> str:
    """Format a ratio with its interval: 0.71× (0.66–0.78)."""
    low = f"{interval.low:.2f}" if interval.low >= RATIO_LEAST else f"<{RATIO_LEAST:g}"
    high = f"{interval.high:.2f}" if interval.high <= RATIO_MOST else f">{RATIO_MOST:g}"
    return f"{interval.ratio:.2f}× ({low}–{high})"


def _figure(cell: Cell, measure: Measure, findings: Findings) -> Figure:
    value = cell.median(measure)
    if value is None:
        return Figure(NOTHING)
    interval = findings.intervals.get((cell.step.name, cell.variant.label, measure.key))
    return Figure(figure_text(value), ratio_text(interval) if interval else "")


def _calls(cell: Cell) -> Figure:
    calls = cell.calls_per_request
    return Figure(figure_text(sum(calls.values())) if calls else NOTHING)
