"""``python -m campaigns group-kills --seeds 0-9``: kill a broker under groups of real clients; 1 on any loss."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from campaigns.group_kills.rounds import GroupKilling, KillReport

FAILURES_SHOWN = 20
COLUMNS = ("seed", "kills", "commits acked", "gone back", "records", "skipped", "again", "recovery ms", "s")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if no committed offset went back, no record was skipped and all members came back; else 1."""
    given = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 150)
    reports: dict[int, KillReport] = {}
    for seed in given.seeds:
        with tempfile.TemporaryDirectory(prefix="blumfeld-group-kills-") as folder:
            reports[seed] = GroupKilling(Path(folder), seed, given.rounds, given.rate).run()
        for line in reports[seed].wrong[:FAILURES_SHOWN]:
            console.print(f"[red]seed {seed}: ✗ {escape(line)}[/]", highlight=False)
    console.print(table(reports))
    return 1 if any(report.wrong for report in reports.values()) else 0


def table(reports: dict[int, KillReport]) -> Table:
    """A row for each seed, and the sum."""
    found = Table(title="kill -9 of a broker under classic and KIP-848 groups", title_justify="left")
    for column in COLUMNS:
        found.add_column(column, justify="left" if column == "kills" else "right")
    for seed, report in reports.items():
        kills = ", ".join(f"{count} {kind}" for kind, count in report.kills.items())
        found.add_row(str(seed), kills, *_numbers([report]), end_section=seed == next(reversed(reports)))
    everything = list(reports.values())
    kills_of_all = sum(count for report in everything for count in report.kills.values())
    found.add_row("all", str(kills_of_all), *_numbers(everything))
    return found


def _numbers(reports: list[KillReport]) -> list[str]:
    sums = [
        sum(getattr(report, name) for report in reports)
        for name in ("commits", "went_back", "consumed", "skipped", "doubled")
    ]
    slowest = max((report.recovery_ms for report in reports), default=0.0)
    return [*map(str, sums), f"{slowest:.0f}", f"{sum(report.seconds for report in reports):.0f}"]


def _seeds(text: str) -> list[int]:
    first, _, last = text.partition("-")
    if not first.isdecimal() or (last and not last.isdecimal()):
        raise argparse.ArgumentTypeError("a seed, or the first and the last: 0-9")
    return list(range(int(first), int(last or first) + 1))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m campaigns group-kills",
        description="kill -9 of a broker in the middle of rebalances and commits.",
    )
    parser.add_argument("--seeds", type=_seeds, default=[0], help="0, or 0-9")
    parser.add_argument("--rounds", type=int, default=6, help="kills of each seed")
    parser.add_argument("--rate", type=int, default=300, help="records a second")
    return parser


if __name__ == "__main__":
    sys.exit(main())
