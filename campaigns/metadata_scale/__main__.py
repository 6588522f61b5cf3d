"""Start, fail-over and catch-up by the number of partitions in the metadata, beside Apache Kafka.

``python -m campaigns metadata-scale``. The partitions' replicas lie on brokers that are registered and do not run. In
each round of a point the active controller is killed. With ``--serving`` three nodes hold all replicas, their metadata
lies in KRaft or in a ZooKeeper, and a kill is measured until all partitions serve; ``--page`` puts the figures into a
page. Exit 1 if a point is lacking.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from blumfeld.testing.process import NodeError
from blumfeld_bench.runs.machine import this_machine
from blumfeld_bench.terminal import make_console
from campaigns import figures
from campaigns.cluster.contenders import Contender, kafka, this_build
from campaigns.consensus import CONSENSUS, KRAFT
from campaigns.metadata_scale.directories import FORMS
from campaigns.metadata_scale.page import with_figures
from campaigns.metadata_scale.points import NotReachedError, Point, measure
from campaigns.metadata_scale.serving import KILLED, Serving, measure_serving

SIZES = (1_000, 10_000, 100_000, 1_000_000)
MIB = 1 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every point was measured, else 1."""
    given = _parser().parse_args(arguments)
    console = make_console(150)
    if given.serving or given.of:
        return _serving(given, console)
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


def _serving(given: argparse.Namespace, console: Console) -> int:
    points = [
        point for path in given.of for point in msgspec.json.decode(path.read_bytes(), type=list[Serving])
    ]
    lacking = 0
    for size in () if given.of else given.sizes:
        for consensus in given.consensus:
            for peer in (None, given.peer) if given.peer else (None,):
                what = f"{'Kafka' if peer else 'this build'} on {consensus}, {size:,} partitions"
                with tempfile.TemporaryDirectory(prefix="blumfeld-metadata-") as folder:
                    try:
                        point = measure_serving(
                            consensus,
                            peer,
                            Path(folder),
                            size,
                            rounds=given.rounds,
                            session_timeout_ms=given.session_timeout_ms,
                            limit_s=given.limit_s,
                        )
                    except (NodeError, NotReachedError, FileNotFoundError) as error:
                        console.print(f"[red]✗ {what}: {escape(str(error))}[/]", highlight=False)
                        lacking += 1
                        continue
                console.print(f"{what}: created in {point.created_s:.1f} s", highlight=False)
                points.append(point)
                figures.save(given.out, points)
    console.print(serving_table(points))
    if given.plot is not None and points:
        from campaigns.metadata_scale.plot import svg_of_serving

        for killed in KILLED:
            path = given.plot.with_name(f"{given.plot.stem}-{killed}.svg")
            path.write_text(svg_of_serving(points, killed))
    if given.page is not None:
        given.page.write_text(with_figures(given.page.read_text(), points, this_machine()))
    return 1 if lacking else 0


def serving_table(points: Sequence[Serving]) -> Table:
    """Returns one row for each point and kind of kill: medians of its rounds."""
    columns = ("gone", "first", "all", "all - gone", "longest - gone", "main CPU", "other threads", "phases")
    title = "seconds from kill -9 to a produce to each partition that the node led"
    table = figures.table(title, ("partitions", "", "killed"), columns)
    for point in points:
        for killed in KILLED:
            rows = [row for row in point.failovers if row.killed == killed]
            if not rows:
                continue
            behind = [row.behind_s for row in rows]
            phases = {name: median(row.phases_s.get(name, 0.0) for row in rows) for name in rows[0].phases_s}
            table.add_row(
                f"{point.partitions:,}",
                f"{point.contender}, {point.consensus}",
                killed,
                *(f"{figures.median(rows, name):.2f}" for name in ("gone_s", "first_s", "served_s")),
                f"{median(behind):.2f}",
                f"{max(behind):.2f}",
                *(f"{figures.median(rows, name):.2f}" for name in ("main_cpu_s", "threads_cpu_s")),
                " ".join(f"{name} {at:.2f}" for name, at in sorted(phases.items(), key=lambda item: item[1])),
            )
    return table


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

    def some_of(allowed: Sequence[str]) -> Callable[[str], list[str]]:
        def names(text: str) -> list[str]:
            if unknown := [name for name in text.split(",") if name not in allowed]:
                raise argparse.ArgumentTypeError(f"found {unknown[0]}; allowed: {', '.join(allowed)}")
            return text.split(",")

        return names

    parser = figures.options("metadata-scale", __doc__)
    parser.add_argument(
        "--sizes", type=numbers, default=list(SIZES), help="numbers of partitions, with commas"
    )
    parser.add_argument(
        "--forms", type=some_of(FORMS), default=list(FORMS), help=f"{', '.join(FORMS)}, or one of them"
    )
    parser.add_argument(
        "--serving",
        action="store_true",
        help="three nodes with all replicas; a kill, until all partitions serve",
    )
    parser.add_argument(
        "--consensus",
        type=some_of(CONSENSUS),
        default=[KRAFT],
        help=f"with --serving: {', '.join(CONSENSUS)}, or one of them",
    )
    parser.add_argument(
        "--session-timeout-ms",
        type=int,
        default=9_000,
        help="with --serving: of a broker, and of ZooKeeper's session",
    )
    parser.add_argument("--limit-s", type=float, default=300.0, help="the longest time for one step")
    parser.add_argument(
        "--plot", type=Path, help="NAME.svg; one file a form, NAME-FORM.svg, or a kind of kill"
    )
    parser.add_argument("--page", type=Path, help="with --serving: the page whose figures are replaced")
    parser.add_argument(
        "--of", type=Path, nargs="+", default=[], help="measure nothing: files that --serving --out wrote"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
