"""Start, fail-over and catch-up by the number of partitions in the metadata, beside Apache Kafka.

``python -m campaigns metadata-scale``. The partitions' replicas lie on brokers that are registered and do not run. In
each round of a point the active controller is killed. Exit 1 if a point is lacking.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from blumfeld.testing.process import NodeError
from blumfeld_bench.terminal import make_console
from campaigns import figures
from campaigns.cluster.contenders import Contender, kafka, this_build
from campaigns.metadata_scale.directories import FORMS
from campaigns.metadata_scale.points import NotReachedError, Point, measure

SIZES = (1_000, 10_000, 100_000, 1_000_000)
MIB = 1 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every point was measured, else 1."""
    given = _parser().parse_args(arguments)
    console = make_console(150)
    contenders = [this_build(), *([kafka(given.peer)] if given.peer else [])]
    points: list[Point] = []
    lacking = 0
    for size in given.sizes:
        for form in given.forms:
            for contender in contenders:
                point = _point(contender, size, form, given, console)
                lacking += point is None
                points += [] if point is None else [point]
                figures.save(given.out, points)
    console.print(table_of(points))
    if given.plot is not None and points:
        from campaigns.metadata_scale.plot import svg_of_points

        for form in given.forms:
            path = given.plot.with_name(f"{given.plot.stem}-{form}.svg")
            path.write_text(svg_of_points(points, form))
    return 1 if lacking else 0


def _point(
    contender: Contender, size: int, form: str, given: argparse.Namespace, console: Console
) -> Point | None:
    with tempfile.TemporaryDirectory(prefix="blumfeld-metadata-") as folder:
        try:
            point = measure(contender, Path(folder), size, form, rounds=given.rounds, limit_s=given.limit_s)
        except (NodeError, NotReachedError) as error:
            console.print(
                f"[red]✗ {contender.name}, {size} partitions as {form}: {escape(str(error))}[/]",
                highlight=False,
            )
            return None
    console.print(
        f"{contender.name}, {size:,} partitions as {form}: start {point.start_s:.2f} s, "
        f"fail-over {median(point.failover_s):.2f} s, catch-up {point.catch_up_s:.2f} s",
        highlight=False,
    )
    return point


def table_of(points: Sequence[Point]) -> Table:
    """Returns one row a point."""
    columns = ("MiB", "start", "fail-over", "longest", "catch-up", "RSS", "broker's RSS")
    title = "metadata by its size: seconds and MiB"
    table = figures.table(title, ("partitions", "form", ""), columns)
    for point in points:
        table.add_row(
            f"{point.partitions:,}",
            point.form,
            point.contender,
            f"{point.metadata_bytes / MIB:.1f}",
            f"{point.start_s:.2f}",
            f"{median(point.failover_s):.2f}",
            f"{max(point.failover_s):.2f}",
            f"{point.catch_up_s:.2f}",
            f"{point.controller_rss_bytes / MIB:.0f}",
            f"{point.broker_rss_bytes / MIB:.0f}",
        )
    return table


def _parser() -> argparse.ArgumentParser:
    def numbers(text: str) -> list[int]:
        return [int(number) for number in text.split(",")]

    def forms(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in FORMS]:
            raise argparse.ArgumentTypeError(f"found {unknown[0]}; allowed: {', '.join(FORMS)}")
        return names

    parser = figures.options("metadata-scale", __doc__)
    parser.add_argument(
        "--sizes", type=numbers, default=list(SIZES), help="numbers of partitions, with commas"
    )
    parser.add_argument(
        "--forms", type=forms, default=list(FORMS), help=f"{', '.join(FORMS)}, or one of them"
    )
    parser.add_argument("--limit-s", type=float, default=300.0, help="the longest time for one step")
    parser.add_argument("--plot", type=Path, help="NAME.svg; one file a form, NAME-FORM.svg")
    return parser


if __name__ == "__main__":
    sys.exit(main())
