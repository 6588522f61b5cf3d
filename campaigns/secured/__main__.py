"""``python -m campaigns security``: run the matrix by each way in, print it, exit 1 if something that a client offers
failed."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest import mock

from rich.console import Console
from rich.table import Table

from blumfeld.testing.process import NodeError
from campaigns.clients.access import TOKEN, Access
from campaigns.clients.catalogue import CLIENTS
from campaigns.clients.matrix import (
    FAILED,
    MARKS,
    NOT_OFFERED,
    OK,
    Cell,
    Row,
    problems,
    remarks,
    run_matrix,
)
from campaigns.clients.options import add_matrix_options, chosen
from campaigns.secured.node import SecuredNode
from campaigns.terminal import console_of, refused

NAMES = [name for name in CLIENTS if name != "kafka-tools"]
RECORDS = "none"
"""The column that produces without compression, and consumes in a group."""
REFUSED = "wrong-login"
REFUSED_S = 60.0
"""Time in which a client with a wrong password must fail, or is ended."""
COLUMNS = (RECORDS, "resume", "idempotent", "topics", "groups", "transactions", REFUSED)
"""Produce and consume in a group; go on where the group was; administer; transact; be refused."""
TRANSPORTS = ("net_asyncio", "net_uring")

Said = Callable[[Row, str, Cell], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all that ran worked, 1 if something didn't or nothing ran, 2 for a name that there isn't."""
    given = _parser().parse_args(arguments)
    console = console_of(160)
    ran: dict[str, list[Row]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="blumfeld-security-")))
        try:
            names, columns = chosen(given, NAMES, COLUMNS)
            node = SecuredNode(folder, given.transport)
            stack.callback(node.process.kill)
            node.start()
        except (ValueError, NodeError, OSError) as error:
            return refused("security", error)
        for way, access in node.accesses().items():
            if given.way in way:
                console.print(way)
                ran[way] = rows_of(
                    names, columns, access, folder, node.bootstrap, lambda *cell: _say(console, *cell)
                )
    return _told(console, ran)


def rows_of(
    names: Sequence[str], columns: Sequence[str], access: Access, folder: Path, bootstrap: str, said: Said
) -> list[Row]:
    """Run the matrix by one way in, and once more with a wrong password where the way has one.

    :param folder: gets the files that the clients read
    """

    def said_refused(row: Row, _: str, cell: Cell) -> None:
        said(row, REFUSED, refused_cell(cell))

    with mock.patch.dict(os.environ, access.save(folder)):
        rows = run_matrix(names, columns, bootstrap, said)
    if REFUSED in columns and access.mechanism not in ("", TOKEN):
        with mock.patch.dict(os.environ, replace(access, password="wrong").save(folder)):
            wrong = run_matrix(names, [RECORDS], bootstrap, said_refused, timeout_s=REFUSED_S)
        for row, other in zip(rows, wrong, strict=True):
            if other.absent is None:
                row.cells[REFUSED] = refused_cell(other.cells[RECORDS])
    return rows


def refused_cell(cell: Cell) -> Cell:
    """Turn the verdict of a check with a wrong password: nothing may come through."""
    if cell.verdict == OK:
        return replace(cell, verdict=FAILED, note="a wrong password came through")
    return replace(cell, verdict=OK, note="") if cell.verdict == FAILED else cell


def _say(console: Console, row: Row, column: str, cell: Cell) -> None:
    verdict = f"{MARKS[cell.verdict]} {cell.seconds:5.1f} s {cell.note[:60]}"
    console.print(f"{row.name:16} {column:12} {verdict}", markup=False)


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
    for line in dict.fromkeys(remarks(rows)):
        console.print(f"– {line}", style="dim", markup=False)
    wrong = [f"{way}: {line}" for way, of_way in ran.items() for line in problems(of_way)]
    for line in wrong:
        console.print(f"✗ {line}", style="red", markup=False)
    passed = sum(cell.verdict == OK for row in rows for cell in row.cells.values())
    console.print(f"{len(shown)} clients, {passed} checks passed, {len(wrong)} failed")
    return 1 if wrong or not passed else 0


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
    parser.add_argument("--transport", choices=TRANSPORTS, default=TRANSPORTS[0])
    return parser


if __name__ == "__main__":
    sys.exit(main())
