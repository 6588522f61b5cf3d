"""``python -m campaigns migration``: roll live groups over and back; exit 1 if anything is wrong."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

from rich.console import Console
from rich.table import Table

from campaigns.clients.__main__ import started
from campaigns.clients.catalogue import client_class
from campaigns.clients.java import PEER_VARIABLE
from campaigns.clients.migration.roll import Plan, Result, Roll

GROUPS = ("confluent-kafka", "java", "confluent-kafka+java+franz-go")
ASSIGNORS = ("range", "cooperative-sticky")
NOT_UPGRADED = {"confluent-kafka": "cooperative-sticky"}
"""Its assignments hold data of its own, which an upgrade would lose: Kafka refuses such a group, and so do we."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all went well, 1 if something didn't or nothing ran."""
    given = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    if given.peer:
        os.environ[PEER_VARIABLE] = given.peer
    results = []
    with ExitStack() as stack:
        bootstrap = given.bootstrap or started(stack, console)
        for plan in _plans(given, console):
            tag = f"roll-{time.time_ns() // 1_000_000:x}"
            name = f"{'+'.join(plan.clients)}, {plan.assignor}"
            roll = Roll(bootstrap, plan, tag, lambda line, name=name: console.print(f"{name}: {line}"))  # type: ignore[misc]
            results.append(roll.run())
    console.print(_table(results))
    wrong = [f"{'+'.join(r.plan.clients)}, {r.plan.assignor}: {line}" for r in results for line in r.problems]
    for line in wrong:
        console.print(f"✗ {line}", style="red", markup=False)
    console.print(f"{len(results)} groups rolled over and back, {len(wrong)} problems")
    return 1 if wrong or not results else 0


def _plans(given: argparse.Namespace, console: Console) -> list[Plan]:
    plans = []
    for group in given.groups.replace(",", " ").split():
        clients = group.split("+")
        absent = {name: reason for name in clients if (reason := client_class(name).absent())}
        absent |= {
            name: "has no KIP-848" for name in clients if "consumer" not in client_class(name).protocols
        }
        if absent:
            console.print(f"{group} did not run: {absent}", markup=False)
            continue
        for assignor in given.assignors.replace(",", " ").split():
            if assignor in (NOT_UPGRADED.get(name) for name in clients):
                console.print(
                    f"{group} did not run with {assignor}: no broker upgrades a group of such members"
                )
            else:
                plans.append(Plan(clients, assignor, given.members, given.partitions, given.rate))
    return plans


def _table(results: Sequence[Result]) -> Table:
    table = Table(
        title="Live groups, classic → consumer → classic, one member at a time", title_justify="left"
    )
    table.add_column("members")
    table.add_column("classic assignor")
    for title in (
        "records",
        "longest unowned, ms",
        "longest pause, ms",
        "came twice",
        "commits refused",
        "seconds",
    ):
        table.add_column(title, justify="right")
    table.add_column("verdict")
    for r in results:
        numbers = (r.records, r.unowned_ms, r.pause_ms, r.duplicates, r.refused_commits, round(r.seconds))
        verdict = "[bold red]✗[/]" if r.problems else "[green]✓[/]"
        clients = f"{r.plan.members} {'+'.join(r.plan.clients)}"
        table.add_row(clients, r.plan.assignor, *(f"{n:,}" for n in numbers), verdict)
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m campaigns migration",
        description="Restart the members of live groups one by one: classic to KIP-848 and back.",
    )
    parser.add_argument("--groups", default=" ".join(GROUPS), help="clients of a group joined by +")
    parser.add_argument("--assignors", default=" ".join(ASSIGNORS), help="of the classic members")
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--rate", type=float, default=20.0, help="records a second into each partition")
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="a running broker instead of one of this build"
    )
    parser.add_argument("--peer", default=os.environ.get(PEER_VARIABLE, ""), help="as of the matrix")
    return parser


if __name__ == "__main__":
    sys.exit(main())
