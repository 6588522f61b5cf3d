"""``python -m campaigns security``: run the matrix by each way in, print it, exit 1 if something that a client offers
failed, or a wrong login came through."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self
from unittest import mock

import attrs
from rich.console import Console
from rich.table import Table

from blumfeld.testing.process import NodeError
from campaigns.clients.access import Access
from campaigns.clients.catalogue import CLIENTS, client_class
from campaigns.clients.matrix import (
    FAILED,
    MARKS,
    NOT_OFFERED,
    OK,
    Cell,
    Row,
    run_cell,
    run_matrix,
)
from campaigns.clients.options import add_matrix_options, chosen
from campaigns.clients.telling import say, tell_end
from campaigns.secured.cluster import SecuredCluster
from campaigns.secured.wrong_logins import Wrong, wrong_logins
from campaigns.terminal import console_of, refused

NAMES = [name for name in CLIENTS if name != "kafka-tools"]
RECORDS = "none"
"""The column that produces without compression, and consumes in a group."""
WRONG_RECORDS = "auto-create"
"""The column that is tried with a wrong login: it has the fewest records."""
REFUSED = "wrong-login"
REFUSED_S = 30.0
"""Time that a client with a wrong login has at least. Many try again until they are ended."""
TIMES = 3
"""It has so many times what its right login took."""
REPORT_S = 240.0
"""Time that a client has which ends by itself, and reports why."""
AT_ONCE = 12
"""Clients with wrong logins at a time: they wait for the most part."""
COLUMNS = (RECORDS, "resume", "idempotent", "topics", "groups", "transactions", REFUSED)
"""Produce and consume in a group; go on where the group was; administer; transact; be refused."""
TRANSPORTS = ("net_asyncio", "net_uring")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all that ran worked, 1 if something didn't or nothing ran, 2 for a name that there isn't."""
    given = _parser().parse_args(arguments)
    console = console_of(160)
    ran: dict[str, list[Row]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="blumfeld-security-")))
        try:
            names, columns = chosen(given, NAMES, COLUMNS)
            cluster = SecuredCluster(folder, given.transport, given.nodes)
            stack.callback(cluster.stop)
            cluster.start()
        except (ValueError, NodeError, OSError) as error:
            return refused("security", error)
        for way, access in cluster.accesses().items():
            if given.way in way:
                console.print(way)
                ran[way] = _rows(names, columns, access, cluster, console)
    return _told(console, ran)


def _rows(
    names: Sequence[str], columns: Sequence[str], access: Access, cluster: SecuredCluster, console: Console
) -> list[Row]:
    """Run the matrix by one way in, and then everything that is wrong with that way."""
    said = partial(say, console)
    with mock.patch.dict(os.environ, access.save(cluster.folder)):
        rows = run_matrix(names, columns, cluster.bootstrap, said)
    if REFUSED in columns:
        tries = [
            Try(row, name, wrong, sum(map(cluster.said, wrong.said)))
            for name, wrong in wrong_logins(cluster, access).items()
            for row in rows
            if row.absent is None
        ]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for each in pool.map(lambda each: each.tried(cluster), tries):
                said(each.row, each.name, each.row.cells[each.name])
    return rows


@attrs.frozen
class Try:
    """A client that tries a wrong login."""

    row: Row
    name: str
    wrong: Wrong
    said_before: int
    """How often the nodes had said so before."""

    def tried(self, cluster: SecuredCluster) -> Self:
        """Run it: nothing may come through, and a node must say why."""
        client, name = self.row.name, self.name
        right = self.row.cells.get(RECORDS)
        reports = client_class(client).reports_refusals
        limit_s = max(REFUSED_S, TIMES * right.seconds if right is not None else 0.0)
        with tempfile.TemporaryDirectory(dir=cluster.folder) as folder:
            cell = run_cell(
                client,
                WRONG_RECORDS,
                cluster.bootstrap,
                f"{client}-wrong-{time.time_ns():x}",
                timeout_s=REPORT_S if reports else limit_s,
                environment=self.wrong.access.save(Path(folder)),
            )
        words = self.wrong.said
        is_said = not words or sum(map(cluster.said, words)) > self.said_before
        reported = self.wrong.reported if reports else ""
        self.row.cells[name] = refused_cell(cell, name, "" if is_said else " or ".join(words), reported)
        return self


def refused_cell(cell: Cell, name: str, unsaid: str, reported: str = "") -> Cell:
    """Turn the verdict of a check with a wrong login: nothing may come through.

    :param unsaid: the words that no node's log has though one must; empty if it has them
    :param reported: what the client itself must say of it
    """
    if cell.verdict == NOT_OFFERED:
        return cell
    if cell.verdict == OK:
        return replace(cell, verdict=FAILED, note=f"{name} came through")
    if unsaid:
        return replace(cell, verdict=FAILED, note=f"no node says: {unsaid}")
    if not re.search(reported, cell.note):
        return replace(cell, verdict=FAILED, note=f"the client doesn't report {reported}: {cell.note}")
    return replace(cell, verdict=OK)


def _told(console: Console, ran: Mapping[str, Sequence[Row]]) -> int:
    rows = [row for of_way in ran.values() for row in of_way]
    shown = list(dict.fromkeys(row.name for row in rows if row.absent is None))
    table = Table(title="Unmodified clients at a secured broker: checks that passed, of those that ran")
    table.add_column("")
    for name in shown:
        table.add_column(name, justify="center")
    for way, of_way in ran.items():
        table.add_row(way, *(_share(row) for row in of_way if row.absent is None))
    console.print(table)
    return tell_end(console, ran)


def _share(row: Row) -> str:
    verdicts = [cell.verdict for cell in row.cells.values() if cell.verdict != NOT_OFFERED]
    return f"{verdicts.count(OK)}/{len(verdicts)}" if verdicts else MARKS[NOT_OFFERED]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m campaigns security",
        description="Unmodified Kafka clients against a broker with TLS and SASL: each way in, each client.",
    )
    add_matrix_options(parser, NAMES, COLUMNS)
    parser.add_argument(
        "--way", default="", metavar="TEXT", help="ways in whose name has this text: SASL_SSL"
    )
    parser.add_argument(
        "--nodes", type=int, default=1, choices=(1, 3), help="of the cluster; SASL_SSL between them"
    )
    parser.add_argument("--transport", choices=TRANSPORTS, default=TRANSPORTS[0])
    return parser


if __name__ == "__main__":
    sys.exit(main())
