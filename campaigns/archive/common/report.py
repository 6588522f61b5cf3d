"""The report of a subcommand: a list of checks and their results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
from rich.console import Console
from rich.markup import escape
from rich.table import Table


@attrs.frozen
class Check:
    """One check: its title, its result, and what is wrong (empty if nothing is)."""

    title: str
    found: str
    wrong: str = ""
    seconds: float | None = None


@attrs.define
class Report:
    """All checks of a subcommand."""

    title: str
    checks: list[Check] = attrs.field(factory=list)
    numbers: dict[str, Any] = attrs.field(factory=dict)
    """Further numbers, for people and for ``--json``."""

    def add(
        self, title: str, outcome: object, wrong: Iterable[str] = (), seconds: float | None = None
    ) -> None:
        """Adds a check. It fails if ``wrong`` names a reason."""
        self.checks.append(Check(title, str(outcome), "; ".join(wrong), seconds))

    @property
    def good(self) -> bool:
        """Whether there was a check and all passed."""
        return bool(self.checks) and not any(check.wrong for check in self.checks)

    def show(self, console: Console) -> None:
        """Prints the table, the numbers and a closing line."""
        table = Table(title=self.title, title_justify="left")
        for column in ("", "what", "found", "s"):
            table.add_column(column, overflow="fold", justify="right" if column == "s" else "left")
        for check in self.checks:
            text = escape(check.found) + (f"\n[red]{escape(check.wrong)}[/]" if check.wrong else "")
            table.add_row(
                "[red]✗[/]" if check.wrong else "[green]✓[/]",
                escape(check.title),
                text,
                "" if check.seconds is None else f"{check.seconds:.1f}",
            )
        console.print(table)
        for name, value in self.numbers.items():
            console.print(f"{name}: {value}", highlight=False, markup=False)
        bad = sum(bool(check.wrong) for check in self.checks)
        console.print(f"{len(self.checks)} checks, {len(self.checks) - bad} as they must be, {bad} not")
