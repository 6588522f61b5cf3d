"""``python -m campaigns transaction-kills``: clients copy a feed in transactions under kills; 1 if a record differs."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from blumfeld.testing.process import NodeError
from campaigns.clients.verdicts import NoClientError
from campaigns.cluster.ensemble import started_ensemble
from campaigns.cluster.sessions import NoSessionError
from campaigns.consensus import CONSENSUS, KRAFT, ZOOKEEPER
from campaigns.figures import save
from campaigns.terminal import add_node_options, console_of, folder_of, print_wrong, refused
from campaigns.transactions.brokers import cluster_of
from campaigns.transactions.faults import ON_ZOOKEEPER, UnknownFaultError, plan_of
from campaigns.transactions.feed import read_lines
from campaigns.transactions.programs import CLIENTS, Start, starter_of
from campaigns.transactions.report import CampaignReport, RunReport, table
from campaigns.transactions.rounds import Run, Settings
from campaigns.zookeeper_server import SESSION_TIMEOUT_MS, zookeeper_settings

VERSIONS = (0, 2)
NODES = (1, 3)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every output is the input and nothing hangs, 1 if not, 2 for wrong input."""
    given = _parser().parse_args(arguments)
    console = console_of(200)
    try:
        only = [name for name in given.faults.split(",") if name]
        plan_of(random.Random(0), 1, 0, only, given.consensus == ZOOKEEPER)
        starters = {client: starter_of(client, given.peer) for client in given.clients}
        lines = read_lines(given.capture, given.records)
    except (UnknownFaultError, NoClientError, OSError) as error:
        return refused("transaction-kills", error)
    with contextlib.ExitStack() as stack:
        folder = folder_of("transactions", given, stack)
        runs = _Runs(given, lines, folder, console)
        versions = given.versions if given.consensus == KRAFT else [0]
        for nodes, version in itertools.product(given.nodes, versions):
            for client, start in starters.items():
                runs.one(RunReport(client=client, version=version, nodes=nodes, seed=given.seed), start, only)
    console.print(table(runs.reports))
    return 0 if all(report.is_good for report in runs.reports) else 1


class _Runs:
    """The runs, one after the other."""

    def __init__(
        self, given: argparse.Namespace, lines: Sequence[bytes], folder: Path, console: Console
    ) -> None:
        self.reports: list[RunReport] = []
        self._given = given
        self._lines = lines
        self._folder = folder
        self._console = console
        self._settings = Settings(
            partitions=given.partitions,
            rate_per_s=given.rate,
            abort_share=given.abort_share,
            slots=given.copiers,
        )

    def one(self, report: RunReport, start: Start, only: Sequence[str]) -> None:
        """Run one client on one cluster, and save what all came to so far."""
        given = self._given
        self.reports.append(report)
        fate = random.Random(f"faults/{report.client}/{report.version}/{report.nodes}/{report.seed}")
        faults = plan_of(fate, report.nodes, given.kills, only, given.consensus == ZOOKEEPER)
        self._say(f"{report.client}, version {report.version}, {report.nodes} nodes: {', '.join(faults)}")
        try:
            self._run(report, start, faults)
        except (NodeError, NoSessionError, FileNotFoundError) as error:
            report.wrong.append(str(error))
        print_wrong(self._console, report.wrong)
        save(given.out, _campaign(given, self.reports))

    def _run(self, report: RunReport, start: Start, faults: Sequence[str]) -> None:
        given = self._given
        home = self._folder / f"{report.client}-{report.version}-{report.nodes}"
        with contextlib.ExitStack() as stack:
            ensemble, laid = None, list(given.set)
            if given.consensus == ZOOKEEPER:
                ensemble = stack.enter_context(
                    started_ensemble(home / ZOOKEEPER, given.zookeeper_servers, has_doors=True)
                )
                laid += zookeeper_settings(ensemble.connect, SESSION_TIMEOUT_MS, report.nodes)
            cluster = cluster_of(
                report.nodes, report.version if ensemble is None else None, home, given.manifest, laid
            )
            if ensemble is not None:
                stack.enter_context(ensemble.opened(cluster))
            try:
                run = Run(report, cluster, start, self._lines, self._settings, self._say, ensemble)
                run.run(faults, given.peer)
            finally:
                cluster.stop()
                report.wrong += filter(None, (node.traceback() for node in cluster.nodes))

    def _say(self, line: str) -> None:
        self._console.print(escape(line))


def _campaign(given: argparse.Namespace, runs: Sequence[RunReport]) -> CampaignReport:
    return CampaignReport(
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        capture=given.capture.name,
        partitions=given.partitions,
        runs=runs,
    )


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in CLIENTS]:
        raise argparse.ArgumentTypeError(f"found {', '.join(unknown)}; allowed: {', '.join(CLIENTS)}")
    return names


def _some_of(allowed: Sequence[int]) -> Callable[[str], list[int]]:
    def parse(text: str) -> list[int]:
        numbers = [int(word) for word in text.split(",") if word.isdecimal()]
        if not numbers or any(number not in allowed for number in numbers):
            raise argparse.ArgumentTypeError(f"found {text}; allowed: {', '.join(map(str, allowed))}")
        return numbers

    return parse


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m campaigns transaction-kills",
        description="Real clients copy a market feed in transactions, while brokers and clients are killed.",
    )
    parser.add_argument("--capture", type=Path, required=True, help="the feed: a gzip of lines")
    parser.add_argument(
        "--peer", type=Path, help="script that runs Kafka's classes: Java client, find-hanging"
    )
    parser.add_argument("--clients", type=_names, default=list(CLIENTS), help=",".join(CLIENTS))
    parser.add_argument(
        "--versions",
        type=_some_of(VERSIONS),
        default=list(VERSIONS),
        help="levels of transaction.version: 0,2",
    )
    parser.add_argument("--nodes", type=_some_of(NODES), default=list(NODES), help="1,3")
    parser.add_argument("--records", type=int, default=0, help="lines of the capture; 0: all of them")
    parser.add_argument("--kills", type=int, default=8, help="faults of a run")
    parser.add_argument(
        "--faults", default="", metavar="NAMES", help="kinds of faults to draw from, with commas"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--rate",
        type=float,
        default=Settings().rate_per_s,
        help="records a second at first",
    )
    parser.add_argument("--partitions", type=int, default=Settings().partitions)
    parser.add_argument("--copiers", type=int, default=Settings().slots, help="programs that share the input")
    parser.add_argument(
        "--abort-share",
        type=float,
        default=Settings().abort_share,
        help="of transactions that abort on purpose",
    )
    parser.add_argument(
        "--consensus",
        choices=CONSENSUS,
        default=KRAFT,
        help=f"what keeps the nodes' metadata; {ZOOKEEPER} starts a real one, hurts it as well "
        f"({', '.join(ON_ZOOKEEPER)}), and has no levels of transaction.version",
    )
    parser.add_argument("--zookeeper-servers", type=int, default=1, metavar="N", help="of its ensemble")
    parser.add_argument("--manifest", type=Path, help="what each node is made of")
    add_node_options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
