"""``python -m campaigns clients``: run the matrix, print it, exit 1 if something that a client offers failed."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from blumfeld.kernel.supervising.derivation import NODES_MAX
from blumfeld.testing.process import NodeError
from blumfeld_kit.cluster import cluster_of_this_build
from campaigns.clients.catalogue import CLIENTS
from campaigns.clients.checks.columns import COLUMNS_OF
from campaigns.clients.client import NO_REBALANCE_DELAY
from campaigns.clients.matrix import ALL_COLUMNS, Row, run_matrix
from campaigns.clients.options import add_matrix_options, chosen
from campaigns.clients.telling import marked, say, tell_end
from campaigns.consensus import CONSENSUS, KRAFT, ZOOKEEPER
from campaigns.every_topic_tiered.nodes import add_tiered_option, tiered_settings, told
from campaigns.terminal import BAD_INPUT, console_of, refused
from campaigns.zookeeper_server import consensus_settings


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all that ran worked, 1 if something didn't or nothing ran, 2 for a name that there isn't."""
    given = _parser().parse_args(arguments)
    console = console_of(160)
    if given.tiered and given.bootstrap:
        console.print("--tiered is for nodes that this campaign starts, not for those of --bootstrap")
        return BAD_INPUT
    try:
        names, columns = chosen(given, CLIENTS, ALL_COLUMNS)
    except ValueError as error:
        return refused("clients", error)
    with ExitStack() as stack:
        try:
            bootstrap = given.bootstrap or _started(given, console, stack)
        except (FileNotFoundError, NodeError) as error:
            return refused("clients", error)
        rows = run_matrix(names, columns, bootstrap, partial(say, console), given.consensus)
    for table in _tables(rows):
        console.print(table)
    return tell_end(console, {"": rows})


def _started(given: argparse.Namespace, console: Console, stack: ExitStack) -> str:
    """Start the brokers, until the stack unwinds; return their addresses.

    :raises FileNotFoundError: this machine has no ZooKeeper
    :raises NodeError: they did not start
    """
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="blumfeld-clients-")))
    settings = [NO_REBALANCE_DELAY]
    if given.tiered:
        settings += tiered_settings(folder, given.tiered)
        stack.callback(lambda: console.print(told(folder), markup=False))
    settings += stack.enter_context(consensus_settings(given.consensus, folder / "zookeeper", given.nodes))
    cluster = cluster_of_this_build(given.nodes, folder, settings)
    stack.callback(cluster.stop)
    cluster.start()
    return cluster.addresses


def _tables(rows: list[Row]) -> Iterator[Table]:
    """One for the clients that share their columns, one for each that has its own; clients across."""
    shown = [row for row in rows if row.absent is None]
    alike = [row for row in shown if row.name not in COLUMNS_OF]
    for group in (alike, *([row] for row in shown if row.name in COLUMNS_OF)):
        if not group:
            continue
        table = Table(title="Unmodified clients against these brokers", title_justify="left")
        table.add_column("")
        for row in group:
            name, _, detail = row.version.partition(" ")
            table.add_column(f"{row.name}\n{name}\n{detail}", justify="center")
        for column in group[0].cells:
            table.add_row(column, *(marked(row.cells[column]) for row in group))
        yield table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m campaigns clients",
        description="Unmodified Kafka clients against a broker of this build: the matrix.",
    )
    add_matrix_options(parser, CLIENTS, ALL_COLUMNS)
    brokers = parser.add_mutually_exclusive_group()
    brokers.add_argument(
        "--nodes",
        type=int,
        default=1,
        choices=range(1, NODES_MAX + 1),
        metavar="N",
        help="start a cluster of N nodes; from 3 on topics have 3 replicas and min.insync.replicas=2",
    )
    brokers.add_argument(
        "--bootstrap",
        metavar="HOST:PORT,…",
        help="use running brokers instead: the address of each of the cluster",
    )
    parser.add_argument(
        "--consensus",
        choices=CONSENSUS,
        default=KRAFT,
        help=f"what keeps the brokers' metadata; {ZOOKEEPER} starts a real one, or is what those of --bootstrap have",
    )
    add_tiered_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
