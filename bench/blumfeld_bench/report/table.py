"""The table at the end of a run: for each step a row for each measure and a column for each variant; verdicts below."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from blumfeld_bench.report.differences import differences
from blumfeld_bench.report.narrative import (
    brief,
    cautions,
    ceiling_words,
    durability_words,
    late_words,
    load_words,
    machine_words,
    mark_of,
    marks_legend,
    nodes_words,
    offered_words,
    run_words,
    variant_words,
)
from blumfeld_bench.result import Result
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
    cells_of,
)
from blumfeld_bench.statistics.verdict import Comparison, Conclusion, conclude

NAME_COLUMNS, FIGURE_COLUMNS = 13, 11
"""Widths of the table of all steps: four figures fit into 80 columns."""
WORDS_COLUMNS = 36
"""Words wrap at this width, so that the figures of two variants stand near each other."""


NOTHING = "–"
RATIO_LEAST, RATIO_MOST = 0.01, 100.0
"""Comparison ends beyond these are not shown as figures: they mean that nothing is known."""
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


def rows_of(cells: StepCells, findings: Conclusion) -> list[Row]:
    """Return all rows that have content for this step."""
    rows = [
        Row(
            measure.title,
            measure.unit if measure not in (RATE, TRANSACTIONS) else "",
            tuple(_measured(cell, measure, findings) for cell in cells.cells),
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


def headline_rows(steps: Sequence[StepCells], findings: Conclusion) -> tuple[list[Measure], list[Row]]:
    """Return all steps in one table: for each step and variant a row of the most important figures.

    :return: the columns, and rows titled by step, with the variant as their unit
    """
    shown = [measure for measure in HEADLINES if any(cells.has(measure) for cells in steps)]
    rows = [
        Row(
            cells.step.name,
            cell.variant.label,
            tuple(_measured(cell, measure, findings) for measure in shown),
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


def ratio_text(interval: Comparison) -> str:
    """Format a ratio with its interval: 0.71× (0.66–0.78)."""
    low = f"{interval.low:.2f}" if interval.low >= RATIO_LEAST else f"<{RATIO_LEAST:g}"
    high = f"{interval.high:.2f}" if interval.high <= RATIO_MOST else f">{RATIO_MOST:g}"
    return f"{interval.ratio:.2f}× ({low}–{high})"


def _measured(cell: Cell, measure: Measure, findings: Conclusion) -> Figure:
    value = cell.median(measure)
    if value is None:
        return Figure(NOTHING)
    interval = findings.of(cell.step.name, cell.variant.label, measure.key)
    return Figure(figure_text(value), ratio_text(interval) if interval else "")


def _calls(cell: Cell) -> Figure:
    calls = cell.calls_per_request
    return Figure(figure_text(sum(calls.values())) if calls else NOTHING)


def result_table(result: Result) -> RenderableType:
    """Return the table, verdicts and warnings for the terminal, in the words of the page."""
    steps = cells_of(result)
    findings = conclude(result, steps)
    return Group(*_parts(result, steps, findings))


def _parts(result: Result, steps: Sequence[StepCells], findings: Conclusion) -> Iterator[RenderableType]:
    yield Text(run_words(result), style="bold")
    yield Text(machine_words(result.machine), style="dim")
    yield from (item(variant_words(variant), "dim") for variant in result.variants)
    differing = differences(result.variants)
    if differing:
        yield Text("What differs", style="bold")
        yield from map(item, differing)
    for cells in steps:
        yield Text()
        yield Text(cells.step.name, style="bold")
        yield Text(load_words(cells.step), style="dim")
        yield _step_table(cells, findings)
    if len(steps) > 1:
        yield Text("\nAll steps", style="bold")
        yield _overview(steps, findings)
    if findings.verdicts:
        yield Text("\nVerdict", style="bold")
        several = len(steps) > 1
        for comparison in (*findings.differences, *findings.others):
            sentence = f"{comparison.step}: {comparison.sentence}" if several else comparison.sentence
            yield item(sentence, "bold" if comparison.different else "")
    for sentence in findings.sustained:
        yield item(sentence)
    warned = cautions(result, steps)
    if warned:
        yield Text("\nKeep in mind", style="bold yellow")
        yield from (item(line) for line in warned)
    yield Text()
    yield Text(marks_legend(), style="dim")


def plain_table() -> Table:
    """Return an empty table without lines."""
    return Table(show_edge=False, pad_edge=False, box=None, header_style="bold", padding=(0, 2, 0, 0))


def item(text: str, style: str = "") -> RenderableType:
    """Return a line of a list."""
    return Padding(Text(f"• {text}", style=style), (0, 0, 0, 2))


def _step_table(cells: StepCells, findings: Conclusion) -> Table:
    table = plain_table()
    table.add_column("", no_wrap=True)
    for cell in cells.cells:
        table.add_column(Text(cell.variant.label), justify="right", overflow="fold", max_width=WORDS_COLUMNS)
    for row in rows_of(cells, findings):
        unit = f" {row.unit}" if row.unit else ""
        title = Text.assemble(row.title, (unit, "dim"))
        table.add_row(title, *(_figure(figure) for figure in row.figures))
    return table


def _overview(steps: Sequence[StepCells], findings: Conclusion) -> Table:
    measures, rows = headline_rows(steps, findings)
    table = plain_table()
    for title in ("step", "variant"):
        table.add_column(title, overflow="fold", max_width=NAME_COLUMNS)
    for measure in measures:
        unit = "" if measure in (RATE, TRANSACTIONS) else f" {measure.unit}"
        table.add_column(f"{measure.title}{unit}", justify="right", overflow="fold", min_width=FIGURE_COLUMNS)
    last = ""
    for row in rows:
        figures = (Text.assemble(figure.text, (_short(figure), "cyan")) for figure in row.figures)
        table.add_row(Text(row.title if row.title != last else ""), Text(row.unit), *figures)
        last = row.title
    return table


def _short(figure: Figure) -> str:
    return f" {figure.ratio.partition(' ')[0]}" if figure.ratio else ""


def _figure(figure: Figure) -> Text:
    text = figure.text if figure.number else brief(figure.text)
    return Text.assemble(text, (f"  {figure.ratio}" if figure.ratio else "", "cyan"))
