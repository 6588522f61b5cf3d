"""The curve: seconds over the number of partitions, both axes by powers of ten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from matplotlib.axes import Axes

from blumfeld_bench.report.drawing import Plot, colour_of, dash_of, svg_of
from campaigns.metadata_scale.points import Point

MEASURES: tuple[tuple[str, Callable[[Point], float]], ...] = (
    ("fail-over", lambda one: median(one.failover_s)),
    ("catch-up", lambda one: one.catch_up_s),
)


def svg_of_points(points: Sequence[Point], form: str) -> str:
    """Returns the drawing of one form: a colour for each contender, a dash for each measure."""
    names = sorted({one.contender for one in points})
    chosen = sorted((one for one in points if one.form == form), key=lambda one: one.partitions)

    def draw(axes: Axes) -> None:
        for nth, name in enumerate(names):
            for kind, (label, value) in enumerate(MEASURES):
                line = [(one.partitions, value(one)) for one in chosen if one.contender == name]
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
        f"{one.contender} with {one.partitions:,} partitions: "
        + ", ".join(f"{label} {value(one):.2f} s" for label, value in MEASURES)
        for one in chosen
    )
    return svg_of(Plot(f"metadata-scale-{form}", f"Metadata as {form}", alt, draw))
