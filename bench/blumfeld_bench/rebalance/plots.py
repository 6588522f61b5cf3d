"""Plots of a run: time to stable over the size of the group, and the share of members that paused for how long.

A colour is a protocol, a dash is a server.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from blumfeld_bench.rebalance.findings import Key, keys_of, samples_of
from blumfeld_bench.rebalance.result import RebalanceResult, Sample
from blumfeld_bench.rebalance.table import markdown_of
from blumfeld_bench.report.plot import DASHES, HEIGHT_IN, Plot, colour_of, write_page

PAGE = "rebalance.md"
MARKERS = "osD^"
DODGE = 1.04
"""Horizontal distance between servers, so that equal values don't cover each other."""


def write_rebalance(result: RebalanceResult, folder: Path) -> list[Path]:
    """Write a page in Markdown and its plots; return the paths, the page first.

    :raises OSError: the folder can't be written to
    """
    plots = plots_of(result)
    text = markdown_of(result, [(f"{plot.name}.png", plot.alt) for plot in plots])
    return write_page(folder / PAGE, text, plots)


def plots_of(result: RebalanceResult) -> list[Plot]:
    """Return a plot for each event, one for the CPU time of adding a member, and the pauses in the largest group."""
    keys = keys_of(result)
    scenarios = [name for name in result.settings.scenarios if any(key.scenario == name for key in keys)]
    plots = [_stable_plot(result, scenario) for scenario in scenarios]
    sizes = sorted({key.size for key in keys})
    plots += [_pause_plot(result, scenario, sizes[-1]) for scenario in scenarios[:2] if sizes]
    return plots


def _slug(scenario: str) -> str:
    return scenario.replace(" %", "-percent").replace(" ", "-")


def _stable_plot(result: RebalanceResult, scenario: str) -> Plot:
    lines = [
        (server, protocol, points)
        for server in range(len(result.variants))
        for protocol in range(len(result.settings.protocols))
        if (points := _points(result, scenario, server, protocol))
    ]

    def draw(axes: Axes) -> None:
        for server, protocol, points in lines:
            shift = DODGE ** (server * 2 - len(result.variants) + 1)
            at = [size * shift for size, _ in points]
            medians = [statistics.median(values) for _, values in points]
            axes.plot(
                at,
                medians,
                marker=MARKERS[server % len(MARKERS)],
                markersize=4,
                **_look(result, server, protocol),
            )
            for place, (_, values) in zip(at, points, strict=True):
                axes.plot(
                    [place, place], [min(values), max(values)], color=colour_of(protocol), linewidth=0.8
                )
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator([float(size) for size in result.settings.sizes]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(bottom=0)
        axes.set_xlabel("members")
        axes.set_ylabel("time to stable, s")

    said = [
        f"{result.variants[server].label} {result.settings.protocols[protocol]} "
        + ", ".join(f"{statistics.median(values):.2f} ({size:,})" for size, values in points)
        for server, protocol, points in lines
    ]
    alt = f"Time to stable in s over the number of members, event: {scenario}. Medians: {'; '.join(said)}."
    return Plot(
        f"stable-{_slug(scenario)}", "Time to stable", alt, draw, height_in=HEIGHT_IN + 0.9, step=scenario
    )


def _points(
    result: RebalanceResult, scenario: str, server: int, protocol: int
) -> list[tuple[int, list[float]]]:
    label, name = result.variants[server].label, result.settings.protocols[protocol]
    samples_by_size = (
        (size, samples_of(result, label, Key(size, scenario, name))) for size in result.settings.sizes
    )
    return [(size, [sample.stable_s for sample in samples]) for size, samples in samples_by_size if samples]


def _look(result: RebalanceResult, server: int, protocol: int) -> dict[str, Any]:
    label = f"{result.settings.protocols[protocol]}, {result.variants[server].label}"
    return {"color": colour_of(protocol), "linestyle": DASHES[server % len(DASHES)], "label": label}


def _pause_plot(result: RebalanceResult, scenario: str, size: int) -> Plot:
    """Plot, over all rounds together, the share of members that paused for longer than x."""
    lines = [
        (server, protocol, pauses)
        for server, variant in enumerate(result.variants)
        for protocol, name in enumerate(result.settings.protocols)
        if (pauses := _pauses(samples_of(result, variant.label, Key(size, scenario, name))))
    ]

    def draw(axes: Axes) -> None:
        for server, protocol, pauses in lines:
            count = len(pauses)
            shares = [100 * (1 - nth / count) for nth in range(count)]
            axes.step(
                [0.0, *pauses],
                [100.0 * (pauses[0] > 0), *shares],
                where="post",
                **_look(result, server, protocol),
            )
        axes.set_xlim(left=0)
        axes.set_ylim(0, 102)
        axes.set_xlabel("member's pause, s")
        axes.set_ylabel("members that paused longer, %")

    said = [
        f"{result.variants[server].label} {result.settings.protocols[protocol]} "
        f"{sum(pause > 0 for pause in pauses) / len(pauses):.0%} paused, median {statistics.median(pauses):.2f} s, "
        f"most {pauses[-1]:.2f} s"
        for server, protocol, pauses in lines
    ]
    alt = f"Pauses of the members that stayed, {size:,} members, event: {scenario}. {'; '.join(said)}."
    title = f"Members' pauses, {size:,} members"
    return Plot(f"pauses-{_slug(scenario)}", title, alt, draw, height_in=HEIGHT_IN + 0.9, step=scenario)


def _pauses(samples: Sequence[Sample]) -> list[float]:
    return sorted(pause_ms / 1000 for sample in samples for pause_ms in sample.pauses_ms)
