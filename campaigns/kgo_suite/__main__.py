"""``python -m campaigns kgo-suite``: kgo's own tests against three nodes; exit 1 if one failed."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from blumfeld.testing.cluster import LOOPBACK, node_places
from blumfeld.testing.process import NodeError
from blumfeld_kit.cluster import REPLICAS, REPLICATED, Cluster
from campaigns.clients.client import NO_REBALANCE_DELAY
from campaigns.clients.franz_go import FranzGo
from campaigns.cluster.contenders import KAFKA, OURS, Contender, contenders_of, this_build
from campaigns.every_topic_tiered.nodes import add_tiered_option, tiered_settings, told
from campaigns.figures import save
from campaigns.kgo_suite.events import SKIPPED, Outcome, Report, failed_tests, lines_of, outcomes_of, table_of
from campaigns.kgo_suite.program import NoSuiteError, Suite, pattern_of
from campaigns.terminal import add_node_options, console_of, refused

RECORDS = 20_000
LIMIT_S = 900.0
RUNNING = "running"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if each test passed, be it alone, 1 if not, 2 if the suite can't be had or the input is wrong."""
    given = _parser().parse_args(arguments)
    console = console_of()
    try:
        _check(given)
        suite = Suite.ready()
    except (NoSuiteError, ValueError) as error:
        return refused("kgo-suite", error)
    reports: list[Report] = []
    with contextlib.ExitStack() as stack:
        folder = given.folder or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="blumfeld-kgo-"))
        )
        folder.mkdir(parents=True, exist_ok=True)
        for contender in _contenders(given, folder):
            try:
                report = _run(contender, suite, given, folder)
            except NodeError as error:
                console.print(f"[red]✗ {escape(str(error))}[/]")
                return 1
            reports.append(report)
            _print(report, console)
            if given.tiered and report.contender == OURS:
                console.print(told(folder), markup=False)
            save(given.out, reports)
    console.print(table_of(reports))
    return 0 if all(report.is_good for report in reports if report.contender != KAFKA) else 1


def _run(contender: Contender | None, suite: Suite, given: argparse.Namespace, folder: Path) -> Report:
    """Run the suite against one cluster, and the tests that failed once more, alone.

    :raises NodeError: a node did not start
    """
    name = RUNNING if contender is None else contender.name
    with contextlib.ExitStack() as stack:
        bootstrap = given.bootstrap
        if contender is not None:
            places = node_places([LOOPBACK] * REPLICAS)
            cluster = Cluster(contender.commands, places, folder / name)
            stack.callback(cluster.stop)
            cluster.start()
            bootstrap = cluster.addresses

        def tried(pattern: str, skip: str) -> list[Outcome]:
            events = suite.run(
                bootstrap,
                replicas=given.replicas,
                records=given.records,
                pattern=pattern,
                skip=skip,
                limit_s=given.limit_s,
                log=folder / f"{name}.log",
            )
            listed = [] if skip else suite.tests(pattern)
            return outcomes_of(events, listed)

        outcomes = tried(given.run, given.skip)
        again = failed_tests(outcomes)
        alone = tried(pattern_of(again), "") if again else []
    return Report(
        contender=name,
        version=FranzGo.version(),
        records=given.records,
        outcomes=tuple(outcomes),
        alone=tuple(alone),
    )


def _print(report: Report, console: Console) -> None:
    for verdict, line in lines_of(report):
        style = "dim" if verdict == SKIPPED else "red"
        console.print(f"{report.contender}: {line}", markup=False, style=style)


def _check(given: argparse.Namespace) -> None:
    """:raises ValueError: clusters or options that don't go together"""
    if given.tiered and (given.bootstrap or OURS not in given.only.split(",")):
        raise ValueError(f"--tiered is for {OURS}; found --bootstrap, or --only without it")
    if not given.bootstrap:
        contenders_of(given.only.split(","), this_build(), given.peer)


def _contenders(given: argparse.Namespace, folder: Path) -> list[Contender | None]:
    """Return the clusters that were asked for; ``None`` for one that runs already."""
    if given.bootstrap:
        return [None]
    tiered = tiered_settings(folder, given.tiered) if given.tiered else ()
    ours = this_build(settings=(NO_REBALANCE_DELAY, *REPLICATED, *tiered, *given.set))
    return list(contenders_of(given.only.split(","), ours, given.peer))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m campaigns kgo-suite",
        description="The test suite of franz-go's package kgo against three nodes. The Go client fetches it.",
    )
    parser.add_argument("--peer", type=Path, help="script that starts Apache Kafka")
    parser.add_argument(
        "--only", metavar="NAMES", default=OURS, help=f"clusters: {OURS}, {KAFKA}, or both with a comma"
    )
    parser.add_argument("--bootstrap", metavar="HOST:PORT,…", help="use running brokers instead")
    parser.add_argument("--replicas", type=int, default=REPLICAS, help="of each topic")
    parser.add_argument("--run", metavar="PATTERN", default="", help="only tests that match")
    parser.add_argument("--skip", metavar="PATTERN", default="", help="not those that match")
    parser.add_argument(
        "--records", type=int, default=RECORDS, help="that the largest tests copy from topic to topic"
    )
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="time for one run of all tests")
    add_tiered_option(parser)
    add_node_options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
