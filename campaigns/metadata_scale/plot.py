"""The curve: seconds over the number of partitions, both axes by powers of ten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from matplotlib.axes import Axes

from blumfeld_bench.report.plot import Plot, colour_of, dash_of, svg_of
from campaigns import figures
from campaigns.metadata_scale.page import NAMES
from campaigns.metadata_scale.points import Point
from campaigns.metadata_scale.serving import Serving

MEASURES: tuple[tuple[str, Callable[[Point], float]], ...] = (
    ("fail-over", lambda point: median(point.failover_s)),
    ("catch-up", lambda point: point.catch_up_s),
)


def svg_of_points(points: Sequence[Point], form: str) -> str:
    """Returns the drawing of one form: a colour for each contender, a dash for each measure."""
    names = sorted({point.contender for point in points})
    chosen = sorted((point for point in points if point.form == form), key=lambda point: point.partitions)

    def draw(axes: Axes) -> None:
        for nth, name in enumerate(names):
            for kind, (label, value) in enumerate(MEASURES):
                line = [(point.partitions, value(point)) for point in chosen if point.contender == name]
                axes.plot(
                    [size for size, _ in line],
                    [seconds for _, seconds in line],
                    color=colour_of(nth),
                    linestyle=dash_of(kind * 6),
                    marker="o",
                    markersize=3,
                    label=f"{name}: {label}",
                )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("partitions")
        axes.set_ylabel("s")

    alt = "; ".join(
        f"{point.contender} with {point.partitions:,} partitions: "
        + ", ".join(f"{label} {value(point):.2f} s" for label, value in MEASURES)
        for point in chosen
    )
    return svg_of(Plot(f"metadata-scale-{form}", f"Metadata as {form}", alt, draw))


def svg_of_serving(points: Sequence[Serving], killed: str) -> str:
    """Returns the drawing of one kind of kill: a colour for each contender on its consensus; whole lines have the
    detection taken out.
    """
    measured = [point for point in points if any(row.killed == killed for row in point.failovers)]
    pairs = sorted({(point.contender, point.consensus) for point in measured})
    parts: list[str] = []

    def draw(axes: Axes) -> None:
        for nth, pair in enumerate(pairs):
            chosen = sorted(
                (point for point in measured if (point.contender, point.consensus) == pair),
                key=lambda point: point.partitions,
            )
            for kind, (label, name) in enumerate((("", "behind_s"), (", with its detection", "served_s"))):
                axes.plot(
                    [point.partitions for point in chosen],
                    [_median(point, killed, name) for point in chosen],
                    color=colour_of(nth),
                    linestyle=dash_of(kind * 6),
                    marker="o",
                    markersize=3,
                    label=f"{NAMES.get(pair, ', '.join(pair))}{label}",
                )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("partitions")
        axes.set_ylabel("s until all serve")

    for point in measured:
        name = NAMES.get((point.contender, point.consensus), point.contender)
        parts.append(
            f"{name} with {point.partitions:,} partitions: {_median(point, killed, 'behind_s'):.2f} s"
        )
    title = f"A killed {killed}, until all of its partitions serve"
    return svg_of(Plot(f"zookeeper-failover-{killed}", title, "; ".join(parts), draw))


def _median(point: Serving, killed: str, name: str) -> float:
    return figures.median([row for row in point.failovers if row.killed == killed], name)
