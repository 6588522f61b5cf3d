"""A suite against each cluster that was asked for: all its tests, and those that failed once more, alone."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import attrs
from rich.console import Console
from rich.markup import escape

from blumfeld.testing.cluster import LOOPBACK, node_places
from blumfeld.testing.process import NodeError
from blumfeld_kit.cluster import REPLICAS, REPLICATED, Cluster
from campaigns.clients.access import Access
from campaigns.cluster.contenders import KAFKA, OURS, Contender, contenders_of, this_build
from campaigns.every_topic_tiered.nodes import add_tiered_option, tiered_settings, told
from campaigns.figures import save
from campaigns.secured.cluster import WAYS, SecuredCluster
from campaigns.secured.identities import NODE
from campaigns.suites.outcomes import SKIPPED, Outcome, Report, failed_tests, lines_of, table_of
from campaigns.terminal import add_node_options, console_of, folder_of

ACLS = "acls"
RUNNING = "running"
"""The name of a cluster that this campaign didn't start."""


class NoSuiteError(Exception):
    """The suite can't be had; the message says why."""


@attrs.frozen
class Secured:
    """Secured nodes that a suite runs against."""

    cluster: SecuredCluster
    access: Access
    """How the suite logs in: as a super user, or as everybody where that is :data:`ACLS`."""


class Suite(Protocol):
    """A suite that is built, with the options of a run."""

    title: str
    version: str
    options: str
    """The size of the run, in words of the suite."""
    configs: Mapping[str, str]
    """Kafka's names and values of what it asks of the brokers."""

    secured: Secured | None
    """The nodes, if the suite logs in at secured ones."""

    def run(self, bootstrap: str, log: Path, again: Sequence[str] = ()) -> list[Outcome]:
        """Run the tests that were asked for, or ``again`` those of these names. ``log`` gets what is printed beside."""
        ...


def suite_parser(campaign: str, description: str) -> argparse.ArgumentParser:
    """Return a parser of the options that all suites have."""
    parser = argparse.ArgumentParser(prog=f"python -m campaigns {campaign}", description=description)
    parser.add_argument("--peer", type=Path, help="script that starts Apache Kafka")
    parser.add_argument(
        "--only", metavar="NAMES", default=OURS, help=f"clusters: {OURS}, {KAFKA}, or both with a comma"
    )
    parser.add_argument("--bootstrap", metavar="HOST:PORT,…", help="use running brokers instead")
    parser.add_argument("--run", metavar="PATTERN", default="", help="only tests that match")
    parser.add_argument("--skip", metavar="PATTERN", default="", help="not those that match")
    parser.add_argument(
        "--secured",
        choices=(ACLS, *WAYS),
        default="",
        help=f"nodes with TLS, SASL and ACLs; the suite logs in this way as a super user. {ACLS}: in plain text, where "
        "everybody may use what has no ACL",
    )
    add_tiered_option(parser)
    add_node_options(parser)
    return parser


def check(given: argparse.Namespace) -> None:
    """:raises ValueError: clusters or options that don't go together"""
    if given.tiered and (given.bootstrap or OURS not in given.only.split(",")):
        raise ValueError(f"--tiered is for {OURS}; found --bootstrap, or --only without it")
    if given.secured and (given.tiered or given.bootstrap or given.only != OURS):
        raise ValueError("--secured goes without --tiered, --bootstrap and --only")
    if not given.bootstrap:
        contenders_of(given.only.split(","), this_build(), given.peer)


def run_suite(suite: Suite, given: argparse.Namespace) -> int:
    """Return 0 if each test passed, be it alone, 1 if not. Print what came, and save it."""
    console = console_of()
    reports: list[Report] = []
    with contextlib.ExitStack() as stack:
        folder = folder_of("suite", given, stack)
        for contender in _contenders(given, suite.configs, folder):
            try:
                if given.secured:
                    report = _run_secured(suite, given, folder)
                else:
                    report = _run(contender, suite, given.bootstrap, folder)
            except NodeError as error:
                console.print(f"[red]✗ {escape(str(error))}[/]")
                return 1
            reports.append(report)
            _print(report, console)
            if given.tiered and report.contender == OURS:
                console.print(told(folder), markup=False)
            save(given.out, reports)
    console.print(table_of(f"{suite.title}, {suite.options}", reports))
    return 0 if all(report.is_good for report in reports if report.contender != KAFKA) else 1


def _contenders(
    given: argparse.Namespace, configs: Mapping[str, str], folder: Path
) -> list[Contender | None]:
    """Return the clusters that were asked for; ``None`` for one that runs already."""
    if given.bootstrap:
        return [None]
    tiered = tiered_settings(folder, given.tiered) if given.tiered else ()
    asked = (_setting(name, value) for name, value in configs.items())
    ours = this_build(settings=(*REPLICATED, *asked, *tiered, *given.set))
    return list(contenders_of(given.only.split(","), ours, given.peer, configs))


def _setting(name: str, value: str) -> str:
    """Return a configuration of Kafka's as a setting of the manifest."""
    return f"node.rack={value}" if name == "broker.rack" else f'config."{name}"={value}'


def _run(contender: Contender | None, suite: Suite, bootstrap: str, folder: Path) -> Report:
    """Run the suite against one cluster, and the tests that failed once more, alone.

    :raises NodeError: a node did not start
    """
    name = RUNNING if contender is None else contender.name
    log = folder / f"{name}.log"
    with contextlib.ExitStack() as stack:
        if contender is not None:
            places = node_places([LOOPBACK] * REPLICAS)
            cluster = Cluster(contender.commands, places, folder / name)
            stack.callback(cluster.stop)
            cluster.start()
            bootstrap = cluster.addresses
        return _report(suite, name, bootstrap, log)


def _run_secured(suite: Suite, given: argparse.Namespace, folder: Path) -> Report:
    """Run the suite against secured nodes.

    :raises NodeError: a node did not start
    """
    is_acls = given.secured == ACLS
    home = folder / OURS
    home.mkdir()
    laid = [*(_setting(name, value) for name, value in suite.configs.items()), *given.set]
    cluster = SecuredCluster(home.resolve(), "net_asyncio", REPLICAS, laid, everyone=is_acls)
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.stop)
        cluster.start()
        access = Access(cluster.bootstrap) if is_acls else cluster.accesses(NODE)[given.secured]
        suite.secured = Secured(cluster, access)
        return _report(suite, OURS, access.bootstrap, folder / f"{OURS}.log")


def _report(suite: Suite, name: str, bootstrap: str, log: Path) -> Report:
    outcomes = suite.run(bootstrap, log)
    again = failed_tests(outcomes)
    alone = suite.run(bootstrap, log, again) if again else []
    return Report(
        contender=name,
        version=suite.version,
        options=suite.options,
        outcomes=tuple(outcomes),
        alone=tuple(alone),
    )


def _print(report: Report, console: Console) -> None:
    for verdict, line in lines_of(report):
        style = "dim" if verdict == SKIPPED else "red"
        console.print(f"{report.contender}: {line}", markup=False, style=style)
