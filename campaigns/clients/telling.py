"""What the campaigns that run the matrix print: a line for each check as it ends, and at last what went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape

from campaigns.clients.matrix import FAILED, MARKS, NOT_OFFERED, OK, Cell, Row, problems, remarks

COLOURS = {OK: "green", FAILED: "bold red", NOT_OFFERED: "dim"}
NOTE_CHARS = 240


def say(console: Console, row: Row, column: str, cell: Cell) -> None:
    """Print a check that has ended."""
    note = escape(cell.note[:NOTE_CHARS])
    console.print(f"{row.name:16} {column:12} {marked(cell)} {cell.seconds:5.1f} s {note}".rstrip())


def marked(cell: Cell) -> str:
    """Return the verdict as a mark in its colour."""
    return f"[{COLOURS[cell.verdict]}]{MARKS[cell.verdict]}[/]"


def tell_end(console: Console, ran: Mapping[str, Sequence[Row]]) -> int:
    """Print why something was not tried, what failed, and how many checks passed. Return the exit status: 1 if
    something failed or nothing ran.

    :param ran: the rows by the name of their run, which stands before what failed; empty if there is one run
    """
    rows = [row for of_run in ran.values() for row in of_run]
    for line in dict.fromkeys(remarks(rows)):
        console.print(f"– {line}", style="dim", markup=False)
    wrong = [f"{run}: {line}" if run else line for run, its in ran.items() for line in problems(its)]
    for line in wrong:
        console.print(f"✗ {line}", style="red", markup=False)
    cells = [cell for row in rows for cell in row.cells.values()]
    clients = len({row.name for row in rows if row.absent is None})
    passed = sum(cell.verdict == OK for cell in cells)
    console.print(f"{clients} clients, {passed} checks passed, {len(wrong)} failed")
    return 1 if wrong or not cells else 0
