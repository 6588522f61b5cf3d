"""``python -m campaigns security``: run the matrix, print it, exit 1 if something that a client offers failed."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest import mock

from rich.console import Console
from rich.table import Table

from blumfeld.testing.process import NodeError
from campaigns.clients.access import TOKEN, Access
from campaigns.clients.catalogue import CLIENTS, client_class
from campaigns.clients.java import PEER_VARIABLE
from campaigns.clients.matrix import FAILED, MARKS, NOT_OFFERED, OK, Cell, run_cell
from campaigns.secured.node import SecuredNode
from campaigns.terminal import BAD_INPUT, console_of, refused

NAMES = [name for name in CLIENTS if name != "kafka-tools"]
COLUMNS = ("none", "resume", "idempotent", "topics", "groups", "transactions")
"""Produce and consume in a group; go on where the group was; administer; transact."""
REFUSED = "wrong-login"
REFUSED_S = 60.0
TRANSPORTS = ("net_asyncio", "net_uring")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all that ran worked, 1 if something didn't or nothing ran, 2 for a name that there isn't."""
    given = _parser().parse_args(arguments)
    names = given.only.replace(",", " ").split() or NAMES
    columns = given.columns.replace(",", " ").split() or [*COLUMNS, REFUSED]
    console = console_of(160)
    for kind, wanted, known in (("client", names, NAMES), ("column", columns, (*COLUMNS, REFUSED))):
        if unknown := [name for name in wanted if name not in known]:
            console.print(f"no {kind} {', '.join(unknown)}; there are {', '.join(known)}")
            return BAD_INPUT
    if given.peer:
        os.environ[PEER_VARIABLE] = given.peer
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="blumfeld-security-")))
        try:
            node = SecuredNode(folder, given.transport)
            stack.callback(node.process.kill)
            node.start()
        except (NodeError, OSError) as error:
            return refused("security", error)
        ways = {name: way for name, way in node.accesses().items() if given.way in name}
        cells = _run(console, names, ways, columns, node)
    return _told(console, names, list(ways), cells)


Cells = dict[tuple[str, str], dict[str, Cell]]
"""(client, way in) → column → its cell."""


def _run(
    console: Console, names: Sequence[str], ways: dict[str, Access], columns: Sequence[str], node: SecuredNode
) -> Cells:
    cells: Cells = {}
    for name in names:
        if absent := client_class(name).absent():
            console.print(f"{name} did not run: {absent}", markup=False)
            continue
        for way, access in ways.items():
            cells[name, way] = {}
            for column in columns:
                cell = _wrong(name, access, node) if column == REFUSED else _cell(name, column, access, node)
                if cell is not None:
                    cells[name, way][column] = cell
                    verdict = f"{MARKS[cell.verdict]} {cell.seconds:5.1f} s {cell.note[:60]}"
                    console.print(f"{name:16} {way:28} {column:12} {verdict}", markup=False)
    return cells


def _cell(name: str, column: str, access: Access, node: SecuredNode, timeout_s: float = 120.0) -> Cell:
    """One check with this access, in a process of its own."""
    tag = f"{name}-{column}-{time.time_ns() // 1_000_000:x}"
    with mock.patch.dict(os.environ, access.save(node.folder)):
        return run_cell(name, column, node.bootstrap, tag, timeout_s=timeout_s)


def _wrong(name: str, access: Access, node: SecuredNode) -> Cell | None:
    """With another password nothing may come through; ``None`` where there is no password."""
    if not access.mechanism or access.mechanism == TOKEN:
        return None
    cell = _cell(name, "none", replace(access, password="wrong"), node, REFUSED_S)
    if cell.verdict == NOT_OFFERED:
        return cell
    if cell.verdict == OK:
        return Cell(FAILED, "a wrong password came through", cell.seconds)
    return Cell(OK, "", cell.seconds)


def _told(console: Console, names: Sequence[str], ways: Sequence[str], cells: Cells) -> int:
    table = Table(title="Unmodified clients at a secured broker: checks that passed, of those that ran")
    table.add_column("")
    shown = [name for name in names if any(name == of for of, _ in cells)]
    for name in shown:
        table.add_column(name, justify="center")
    for way in ways:
        table.add_row(way, *(_share(cells.get((name, way), {})) for name in shown))
    console.print(table)
    wrong = [
        f"{name}, {way}, {column}: {cell.note}"
        for (name, way), row in cells.items()
        for column, cell in row.items()
        if cell.verdict == FAILED
    ]
    for line in wrong:
        console.print(f"✗ {line}", style="red", markup=False)
    passed = sum(cell.verdict == OK for row in cells.values() for cell in row.values())
    console.print(f"{len(shown)} clients, {passed} checks passed, {len(wrong)} failed")
    return 1 if wrong or not passed else 0


def _share(row: dict[str, Cell]) -> str:
    ran = [cell for cell in row.values() if cell.verdict != NOT_OFFERED]
    return f"{sum(cell.verdict == OK for cell in ran)}/{len(ran)}" if ran else MARKS[NOT_OFFERED]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m campaigns security",
        description="Unmodified Kafka clients against a broker with TLS and SASL: each way in, each client.",
    )
    parser.add_argument("--only", default="", metavar="NAMES", help=f"some of: {', '.join(NAMES)}")
    parser.add_argument(
        "--columns", default="", metavar="NAMES", help=f"some of: {', '.join((*COLUMNS, REFUSED))}"
    )
    parser.add_argument(
        "--way", default="", metavar="TEXT", help="ways in whose name has this text: SASL_SSL"
    )
    parser.add_argument("--transport", choices=TRANSPORTS, default=TRANSPORTS[0])
    parser.add_argument(
        "--peer",
        default=os.environ.get(PEER_VARIABLE, ""),
        metavar="PATH",
        help=f"a script that runs Kafka's tools as 'PATH tool CLASS …' (default: ${PEER_VARIABLE})",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
