"""The table at the end of a run: for each step a row for each measure and a column for each variant; verdicts below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from blumfeld_bench.report.differences import differences
from blumfeld_bench.report.narrative import (
    brief,
    cautions,
    load_words,
    machine_words,
    marks_legend,
    run_words,
    variant_words,
)
from blumfeld_bench.report.rows import Figure, headline_rows, rows_of
from blumfeld_bench.result import Result
from blumfeld_bench.statistics.cells import RATE, TRANSACTIONS, StepCells, cells_of
from blumfeld_bench.statistics.findings import Findings, findings_of

NAME_COLUMNS, FIGURE_COLUMNS = 13, 11
"""Widths of the table of all steps: four figures fit into 80 columns."""
WORDS_COLUMNS = 36
"""Words wrap at this width, so that the figures of two variants stand near each other."""


def result_table(result: Result) -> RenderableType:
    """Return the table, verdicts and warnings for the terminal, in the words of the page."""
    steps = cells_of(result)
    findings = findings_of(result, steps)
    return Group(*_parts(result, steps, findings))


def _parts(result: Result, steps: Sequence[StepCells], findings: Findings) -> Iterator[RenderableType]:
    yield Text(run_words(result), style="bold")
    yield Text(machine_words(result.machine), style="dim")
    yield from (_item(variant_words(variant), "dim") for variant in result.variants)
    differing = differences(result.variants)
    if differing:
        yield Text("What differs", style="bold")
        yield from map(_item, differing)
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
        for one in (*findings.differences, *findings.others):
            sentence = f"{one.step}: {one.sentence}" if several else one.sentence
            yield _item(sentence, "bold" if one.different else "")
    for sentence in findings.sustained:
        yield _item(sentence)
    warned = cautions(result, steps)
    if warned:
        yield Text("\nKeep in mind", style="bold yellow")
        yield from (_item(line) for line in warned)
    yield Text()
    yield Text(marks_legend(), style="dim")


def _item(text: str, style: str = "") -> RenderableType:
    return Padding(Text(f"• {text}", style=style), (0, 0, 0, 2))


def _step_table(cells: StepCells, findings: Findings) -> Table:
    table = Table(show_edge=False, pad_edge=False, box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for cell in cells.cells:
        table.add_column(Text(cell.variant.label), justify="right", overflow="fold", max_width=WORDS_COLUMNS)
    for row in rows_of(cells, findings):
        unit = f" {row.unit}" if row.unit else ""
        title = Text.assemble(row.title, (unit, "dim"))
        table.add_row(title, *(_figure(one) for one in row.figures))
    return table


def _overview(steps: Sequence[StepCells], findings: Findings) -> Table:
    measures, rows = headline_rows(steps, findings)
    table = Table(show_edge=False, pad_edge=False, box=None, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("step", "variant"):
        table.add_column(title, overflow="fold", max_width=NAME_COLUMNS)
    for measure in measures:
        unit = "" if measure in (RATE, TRANSACTIONS) else f" {measure.unit}"
        table.add_column(f"{measure.title}{unit}", justify="right", overflow="fold", min_width=FIGURE_COLUMNS)
    last = ""
    for row in rows:
        figures = (Text.assemble(one.text, (_short(one), "cyan")) for one in row.figures)
        table.add_row(Text(row.title if row.title != last else ""), Text(row.unit), *figures)
        last = row.title
    return table


def _short(one: Figure) -> str:
    return f" {one.ratio.partition(' ')[0]}" if one.ratio else ""


def _figure(one: Figure) -> Text:
    text = one.text if one.number else brief(one.text)
    return Text.assemble(text, (f"  {one.ratio}" if one.ratio else "", "cyan"))
