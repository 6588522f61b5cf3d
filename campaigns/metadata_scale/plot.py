"""The curve: seconds over the number of partitions, both axes by powers of ten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from matplotlib.axes import Axes

from blumfeld_bench.report.plot import Plot, colour_of, dash_of, svg_of
from campaigns.metadata_scale.points import Point

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
