"""Write a result's page and plots to a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

from blumfeld_bench.report.bars import cost_bars, ratio_dots, step_dots, system_call_bars
from blumfeld_bench.report.curves import latency_series, percentile_curve, rate_series
from blumfeld_bench.report.drawing import Plot, png_of
from blumfeld_bench.report.page import page_of
from blumfeld_bench.result import Result
from blumfeld_bench.statistics.cells import (
    CPU_PER_MB,
    CPU_PER_REQUEST,
    END_TO_END_P99,
    PRODUCE_P99,
    RATE,
    StepCells,
    cells_of,
)
from blumfeld_bench.statistics.findings import Findings, findings_of

PAGE = "index.html"


def write_report(result: Result, folder: Path) -> list[Path]:
    """Write ``index.html`` and a PNG for each plot; create the folder if needed. Return the paths, the page first.

    The same result gives the same bytes, with the same version of matplotlib.

    :raises OSError: the folder can't be written to
    """
    steps = cells_of(result)
    overview = overview_plots(steps)
    findings = findings_of(result, steps)
    by_step = [step_plots(cells, number, findings) for number, cells in enumerate(steps)]
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / PAGE
    page.write_text(page_of(result, steps, findings, overview, by_step), encoding="utf-8")
    written = [page]
    for plot in [*overview, *(plot for plots in by_step for plot in plots)]:
        path = folder / f"{plot.name}.png"
        path.write_bytes(png_of(plot))
        written.append(path)
    return written


def overview_plots(steps: Sequence[StepCells]) -> list[Plot]:
    """Return the plots over all steps; none if there is only one step."""
    drawn = (
        step_dots(steps, "all-rate", "Rate", RATE),
        step_dots(steps, "all-ack-p99", "Ack p99", PRODUCE_P99),
        step_dots(steps, "all-end-to-end-p99", "End-to-end p99", END_TO_END_P99),
        step_dots(steps, "all-cpu", "CPU time for each request", CPU_PER_REQUEST),
    )
    return [plot for plot in drawn if plot is not None]


def step_plots(cells: StepCells, number: int, findings: Findings) -> list[Plot]:
    """Return those plots of one step that have data."""
    at = f"step{number}"
    drawn = (
        percentile_curve(cells, f"{at}-ack", "Ack latency", lambda one: one.produce),
        percentile_curve(cells, f"{at}-end-to-end", "End-to-end latency", lambda one: one.end_to_end),
        ratio_dots(cells, f"{at}-ratios", findings),
        rate_series(cells, f"{at}-rate-series"),
        latency_series(cells, f"{at}-p99-series"),
        cost_bars(cells, f"{at}-cpu-request", "CPU time for each request", CPU_PER_REQUEST),
        cost_bars(cells, f"{at}-cpu-mb", "CPU time for each MB of values", CPU_PER_MB),
        system_call_bars(cells, f"{at}-calls"),
    )
    return [attrs.evolve(plot, step=cells.step.name) for plot in drawn if plot is not None]
