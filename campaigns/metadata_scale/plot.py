"""The curve: seconds over the number of partitions, both axes by powers of ten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import attrs
from matplotlib.axes import Axes

from blumfeld_bench.report.plot import Plot, colour_of, dash_of, svg_of
from campaigns import figures
from campaigns.metadata_scale.page import name_of
from campaigns.metadata_scale.points import Point
from campaigns.metadata_scale.serving import Serving

MEASURES: tuple[tuple[str, Callable[[Point], float]], ...] = (
    ("fail-over", lambda point: median(point.failover_s)),
    ("catch-up", lambda point: point.catch_up_s),
)


@attrs.frozen
class _Line:
    label: str
    colour: int
    dash: int
    seconds: list[tuple[int, float]]
    """Behind the number of partitions."""


def svg_of_points(points: Sequence[Point], form: str) -> str:
    """Returns the drawing of one form: a colour for each contender, a dash for each measure."""
    names = sorted({point.contender for point in points})
    chosen = sorted((point for point in points if point.form == form), key=lambda point: point.partitions)
    lines = [
        _Line(
            f"{name}: {label}",
            nth,
            kind,
            [(point.partitions, value(point)) for point in chosen if point.contender == name],
        )
        for nth, name in enumerate(names)
        for kind, (label, value) in enumerate(MEASURES)
    ]
    alt = "; ".join(
        f"{point.contender} with {point.partitions:,} partitions: "
        + ", ".join(f"{label} {value(point):.2f} s" for label, value in MEASURES)
        for point in chosen
    )
    return _svg(f"metadata-scale-{form}", f"Metadata as {form}", alt, "s", lines)


def svg_of_serving(points: Sequence[Serving], killed: str) -> str:
    """Returns the drawing of one kind of kill: a colour for each contender on its consensus; whole lines have the
    detection taken out.
    """
    measured = [point for point in points if any(row.killed == killed for row in point.failovers)]
    ordered = sorted(measured, key=lambda point: (point.contender, point.consensus, point.partitions))
    names = dict.fromkeys(map(name_of, ordered))
    lines = [
        _Line(
            f"{name}{label}",
            nth,
            kind,
            [(point.partitions, _median(point, killed, time)) for point in ordered if name_of(point) == name],
        )
        for nth, name in enumerate(names)
        for kind, (label, time) in enumerate((("", "behind_s"), (", with its detection", "served_s")))
    ]
    alt = "; ".join(
        f"{name_of(point)} with {point.partitions:,} partitions: {_median(point, killed, 'behind_s'):.2f} s"
        for point in measured
    )
    title = f"A killed {killed}, until all of its partitions serve"
    return _svg(f"zookeeper-failover-{killed}", title, alt, "s until all serve", lines)


def _svg(name: str, title: str, alt: str, unit: str, lines: Sequence[_Line]) -> str:
    def draw(axes: Axes) -> None:
        for line in lines:
            axes.plot(
                [size for size, _ in line.seconds],
                [seconds for _, seconds in line.seconds],
                color=colour_of(line.colour),
                linestyle=dash_of(line.dash * 6),
                marker="o",
                markersize=3,
                label=line.label,
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("partitions")
        axes.set_ylabel(unit)

    return svg_of(Plot(name, title, alt, draw))


def _median(point: Serving, killed: str, name: str) -> float:
    return figures.median([row for row in point.failovers if row.killed == killed], name)
