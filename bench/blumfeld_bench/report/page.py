"""The report page: one HTML file with its style and plots inside. It loads nothing from a network and runs no
script.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib import resources
from pathlib import Path

import attrs

from blumfeld_bench.report.differences import differences
from blumfeld_bench.report.narrative import (
    NOT_CLAIMED,
    brief,
    cautions,
    load_words,
    machine_words,
    marks_legend,
    run_words,
    variant_words,
)
from blumfeld_bench.report.plot import Plot, svg_of, write_page
from blumfeld_bench.report.plots import (
    cost_bars,
    latency_series,
    percentile_curve,
    rate_series,
    ratio_dots,
    step_dots,
    system_call_bars,
)
from blumfeld_bench.report.table import Figure, rows_of
from blumfeld_bench.result import Result, Variant
from blumfeld_bench.statistics.cells import (
    CPU_PER_MB,
    CPU_PER_REQUEST,
    END_TO_END_P99,
    PRODUCE_P99,
    RATE,
    StepCells,
    cells_of,
)
from blumfeld_bench.statistics.verdict import Comparison, Conclusion, conclude

PAGE = "index.html"
VERDICTS_OPEN = 24
"""A longer list of figures without a difference is folded."""


def page_of(
    result: Result,
    steps: Sequence[StepCells],
    findings: Conclusion,
    overview: Sequence[Plot],
    by_step: Sequence[Sequence[Plot]],
) -> str:
    """Return the whole document.

    :param overview: plots over all steps
    :param by_step: the plots of each step, in the order of steps
    """
    title = f"blumfeld bench: {result.workload.name}, {' against '.join(v.label for v in result.variants)}"
    body = [
        f"<header><h1>{escape(title)}</h1>",
        f"<p>{escape(result.workload.description)}</p>",
        f'<p class="quiet">{escape(run_words(result))}</p></header><main>',
        _summary(result, steps, findings),
        _plots(overview),
    ]
    for number, (cells, plots) in enumerate(zip(steps, by_step, strict=True)):
        body.append(_step(number, cells, findings, plots))
    body += [_setting(result), _reading(), "</main>", _foot()]
    style = resources.files("blumfeld_bench.report").joinpath("page.css").read_text()
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n<body>{''.join(body)}</body></html>\n"
    )


def _summary(result: Result, steps: Sequence[StepCells], findings: Conclusion) -> str:
    parts = ['<section aria-labelledby="summary"><h2 id="summary">What came out</h2>']
    if len(result.variants) < 2:
        parts.append("<p>One variant, measured alone: nothing to compare it with.</p>")
    differing = differences(result.variants)
    if differing:
        parts.append(f"<p>What differs between the variants:</p>{_list(differing, 'differences')}")
    parts += _verdicts(findings, several=len(steps) > 1)
    if findings.sustained:
        parts.append(_list(findings.sustained, "verdicts"))
    warned = cautions(result, steps)
    if warned:
        parts.append(
            f'<div class="cautions" role="note"><strong>Keep in mind</strong>{_list(warned, "")}</div>'
        )
    if len(steps) > 1:
        links = " · ".join(
            f'<a href="#step-{number}">{escape(cells.step.name)}</a>' for number, cells in enumerate(steps)
        )
        parts.append(f'<nav aria-label="Steps"><p>Steps: {links}</p></nav>')
    return "".join(parts) + "</section>"


def _verdicts(findings: Conclusion, several: bool) -> Iterator[str]:
    def said(verdicts: Iterable[Comparison]) -> list[str]:
        return [
            f"{verdict.step}: {verdict.sentence}" if several else verdict.sentence for verdict in verdicts
        ]

    if findings.differences:
        yield _list(said(findings.differences), "verdicts differences")
    if not findings.others:
        return
    others = _list(said(findings.others), "verdicts")
    if len(findings.others) > VERDICTS_OPEN:
        summary = f"{len(findings.others)} figures in which no difference was found"
        yield f"<details><summary>{summary}</summary>{others}</details>"
    else:
        yield others


def _list(items: Iterable[str], name: str) -> str:
    return f'<ul class="{name}">' + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def _step(number: int, cells: StepCells, findings: Conclusion, plots: Sequence[Plot]) -> str:
    return (
        f'<section aria-labelledby="step-{number}"><h2 id="step-{number}">{escape(cells.step.name)}</h2>'
        f"<p>{escape(load_words(cells.step))}</p>{_ceiling(cells)}"
        f"{_figures(cells, findings)}{_plots(plots)}</section>"
    )


def _ceiling(cells: StepCells) -> str:
    ceiling = cells.cells[0].ceiling if cells.cells else None
    if ceiling is None:
        return '<p class="quiet">The driver’s own ceiling was not measured.</p>'
    return f'<p class="quiet">The driver alone reaches {ceiling.records_per_s:,.0f} records/s here.</p>'


def _figures(cells: StepCells, findings: Conclusion) -> str:
    heads = "".join(
        f'<th scope="col"><span class="key" style="background: var(--v{index % 6})"></span>'
        f"{escape(cell.variant.label)}</th>"
        for index, cell in enumerate(cells.cells)
    )
    lines = []
    for row in rows_of(cells, findings):
        unit = f' <span class="quiet">{escape(row.unit)}</span>' if row.unit else ""
        figures = "".join(_figure(figure) for figure in row.figures)
        lines.append(f'<tr><th scope="row">{escape(row.title)}{unit}</th>{figures}</tr>')
    caption = (
        f"{cells.step.name}: medians of rounds; beneath, the ratio to the first, and its interval "
        "(95 % for all that is compared in the run together)"
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="Figures of {escape(cells.step.name)}">'
        f"<table><caption>{escape(caption)}</caption><thead><tr>"
        f'<th scope="col">measure</th>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _figure(figure: Figure) -> str:
    ratio = f'<span class="ratio">{escape(figure.ratio)}</span>' if figure.ratio else ""
    if figure.number:
        return f'<td class="number">{escape(figure.text)}{ratio}</td>'
    return f'<td class="words" title="{escape(figure.text)}">{escape(brief(figure.text))}</td>'


def _plots(plots: Sequence[Plot]) -> str:
    if not plots:
        return ""
    drawn = "".join(
        f"<figure><figcaption>{escape(plot.title)}</figcaption>{svg_of(plot)}</figure>" for plot in plots
    )
    return f'<div class="plots">{drawn}</div>'


def _setting(result: Result) -> str:
    parts = [
        '<section aria-labelledby="setting"><h2 id="setting">Machine, variants, versions</h2>',
        f"<p>{escape(machine_words(result.machine))}</p>",
        *(_variant(variant) for variant in result.variants),
    ]
    return "".join(parts) + "</section>"


def _variant(variant: Variant) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(variant.versions.items()))
    lines = [
        ("given", variant.given),
        ("overrides", "; ".join(variant.overrides)),
        ("network", variant.network),
        ("an ack is", variant.durability),
        ("versions", versions),
        ("started with", " ".join(variant.command)),
    ]
    rows = "".join(
        f'<tr><th scope="row">{name}</th><td>{escape(text)}</td></tr>' for name, text in lines if text
    )
    manifest = (
        f"<p>Its manifest:</p><pre>{escape(variant.manifest)}</pre>" if variant.manifest is not None else ""
    )
    return (
        f"<details><summary>{escape(variant_words(variant))}</summary>"
        f'<div class="scroll"><table>{rows}</table></div>{manifest}</details>'
    )


def _reading() -> str:
    return (
        '<section aria-labelledby="reading"><h2 id="reading">How to read this</h2>'
        "<p>Thin lines and dots are rounds; thick lines, bars and ticks are medians of rounds. A latency counts from "
        "the time at which a record was meant to be sent, not from when the driver got to it.</p>"
        f"<p>{escape(marks_legend())}</p>{_list(NOT_CLAIMED, '')}</section>"
    )


def _foot() -> str:
    return (
        '<footer><p class="quiet">Made by <code>blumfeld bench report</code> from a result file; '
        "<code>blumfeld bench rerun</code> runs it again.</p></footer>"
    )


def write_report(result: Result, folder: Path) -> list[Path]:
    """Write ``index.html`` and a PNG for each plot; create the folder if needed. Return the paths, the page first.

    The same result gives the same bytes, with the same version of matplotlib.

    :raises OSError: the folder can't be written to
    """
    steps = cells_of(result)
    overview = overview_plots(steps)
    findings = conclude(result, steps)
    by_step = [step_plots(cells, number, findings) for number, cells in enumerate(steps)]
    text = page_of(result, steps, findings, overview, by_step)
    return write_page(folder / PAGE, text, [*overview, *(plot for plots in by_step for plot in plots)])


def overview_plots(steps: Sequence[StepCells]) -> list[Plot]:
    """Return the plots over all steps; none if there is only one step."""
    drawn = (
        step_dots(steps, "all-rate", "Rate", RATE),
        step_dots(steps, "all-ack-p99", "Ack p99", PRODUCE_P99),
        step_dots(steps, "all-end-to-end-p99", "End-to-end p99", END_TO_END_P99),
        step_dots(steps, "all-cpu", "CPU time for each request", CPU_PER_REQUEST),
    )
    return [plot for plot in drawn if plot is not None]


def step_plots(cells: StepCells, number: int, findings: Conclusion) -> list[Plot]:
    """Return those plots of one step that have data."""
    at = f"step{number}"
    drawn = (
        percentile_curve(cells, f"{at}-ack", "Ack latency", lambda cell_round: cell_round.produce),
        percentile_curve(
            cells, f"{at}-end-to-end", "End-to-end latency", lambda cell_round: cell_round.end_to_end
        ),
        ratio_dots(cells, f"{at}-ratios", findings),
        rate_series(cells, f"{at}-rate-series"),
        latency_series(cells, f"{at}-p99-series"),
        cost_bars(cells, f"{at}-cpu-request", "CPU time for each request", CPU_PER_REQUEST),
        cost_bars(cells, f"{at}-cpu-mb", "CPU time for each MB of values", CPU_PER_MB),
        system_call_bars(cells, f"{at}-calls"),
    )
    return [attrs.evolve(plot, step=cells.step.name) for plot in drawn if plot is not None]
