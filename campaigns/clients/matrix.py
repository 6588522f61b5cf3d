"""Run the checks of each client, each in a process of its own, and make the table of what came of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from campaigns.clients.catalogue import client_class
from campaigns.clients.checks.columns import COLUMNS, COLUMNS_OF, columns_of
from campaigns.clients.lacking import brokers_lack
from campaigns.consensus import KRAFT
from campaigns.supervision import kill_tree

STEP_TIMEOUT_S = 300.0
"""For one check of one client; beyond, it is killed with all that it started."""

NOTHING: Mapping[str, str] = MappingProxyType({})

OK, FAILED, NOT_OFFERED = "ok", "failed", "not offered"
MARKS = {OK: "✓", FAILED: "✗", NOT_OFFERED: "–"}


@dataclass(frozen=True)
class Cell:
    """The result of one check of one client."""

    verdict: str
    note: str
    seconds: float


@dataclass
class Row:
    """One client: why it did not run, or its version and a cell for each column."""

    name: str
    absent: str | None = None
    version: str = ""
    cells: dict[str, Cell] = field(default_factory=dict)

    @property
    def failed(self) -> list[tuple[str, Cell]]:
        """Columns that the client offers and that did not work."""
        return [(column, cell) for column, cell in self.cells.items() if cell.verdict == FAILED]


def run_matrix(
    names: Iterable[str],
    columns: Iterable[str],
    bootstrap: str,
    said: Callable[[Row, str, Cell], None],
    consensus: str = KRAFT,
    timeout_s: float = STEP_TIMEOUT_S,
) -> list[Row]:
    """All checks of these clients that are among these columns, one after the other.

    :param said: called after each check
    :param consensus: what keeps the brokers' metadata; it may have no way to serve a column
    :param timeout_s: for each check
    """
    rows, wanted = [], set(columns)
    for name in names:
        client = client_class(name)
        row = Row(name, client.absent())
        rows.append(row)
        if row.absent is not None:
            continue
        row.version = client.version()
        for column in columns_of(name):
            if column not in wanted:
                continue
            tag = f"{name}-{column}-{time.time_ns() // 1_000_000:x}"
            reason = brokers_lack(consensus, column)
            row.cells[column] = (
                Cell(NOT_OFFERED, reason, 0.0)
                if reason
                else run_cell(name, column, bootstrap, tag, consensus, timeout_s)
            )
            said(row, column, row.cells[column])
    return rows


def run_cell(
    name: str,
    column: str,
    bootstrap: str,
    tag: str,
    consensus: str = KRAFT,
    timeout_s: float = STEP_TIMEOUT_S,
    environment: Mapping[str, str] = NOTHING,
) -> Cell:
    """One check in its own process and session, in this environment beside the campaign's. It is killed with all that
    it started when its time is over, or an exception such as that of SIGTERM ends the campaign.
    """
    command = [sys.executable, "-m", "campaigns.clients.step", name, column, bootstrap, tag, consensus]
    pipe = subprocess.PIPE
    started = time.monotonic()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        start_new_session=True,
        env={**os.environ, **environment},
    ) as step:
        try:
            out, errors = step.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as late:
            said = _last_line(late.stderr or b"")
            note = f"killed after {timeout_s:.0f} s{': ' if said else ''}{said}"
            return Cell(FAILED, note, timeout_s)
        finally:
            if step.poll() is None:
                kill_tree(step.pid)
    seconds = time.monotonic() - started
    try:
        said = json.loads(out.decode(errors="replace").strip().splitlines()[-1])
        return Cell(said["verdict"], said["note"], seconds)
    except (IndexError, ValueError, KeyError, TypeError):
        return Cell(FAILED, f"died with status {step.returncode}: {_last_line(errors)}", seconds)


def _last_line(printed: bytes) -> str:
    return " ".join(printed.decode(errors="replace").strip().splitlines()[-1:])


def problems(rows: Iterable[Row]) -> list[str]:
    """A line for each thing that a client offers and that did not work."""
    return [f"{row.name}, {column}: {cell.note}" for row in rows for column, cell in row.failed]


def remarks(rows: Iterable[Row]) -> list[str]:
    """A line for each reason why something was not tried."""
    lines = []
    for row in rows:
        if row.absent is not None:
            lines.append(f"{row.name} did not run: {row.absent}")
        reasons: dict[str, list[str]] = {}
        for column, cell in row.cells.items():
            if cell.verdict == NOT_OFFERED:
                reasons.setdefault(cell.note, []).append(column)
        lines += [f"{row.name}, {', '.join(columns)}: {note}" for note, columns in reasons.items()]
    return lines


ALL_COLUMNS = tuple(dict.fromkeys([*COLUMNS, *(c for own in COLUMNS_OF.values() for c in own)]))
