"""``python -m campaigns connection-faults``: the table of what is left of each fault; exit 1 if anything is."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from campaigns.connection_faults import crowds, deaths, exhaustion, handshakes, slow_clients, strangers
from campaigns.connection_faults.fault import Fault, Result
from campaigns.connection_faults.rounds import REPETITIONS, run
from campaigns.terminal import console_of, print_wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if nothing leaked and the background load saw nothing of it; else 1."""
    given = _parser().parse_args(arguments)
    console = console_of(190)
    wanted = [fault for fault in all_faults() if _is_wanted(fault, given.only)]
    if not wanted:
        console.print(f"no fault is named like {' or '.join(given.only)}")
        return 1
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="blumfeld-faults-") as folder:
        results = run(
            wanted,
            Path(folder),
            given.set,
            given.scale,
            lambda line: console.print(escape(line)),
            lambda result: _say(console, result),
        )
    console.print(_table(results))
    bad = [result for result in results if result.wrong]
    print_wrong(console, [f"{result.fault.name}: {line}" for result in bad for line in result.wrong])
    console.print(
        f"{len(results)} faults, {REPETITIONS} times or more each, in {time.monotonic() - started:.0f} s:"
        f" {len(bad)} left something behind or were noticed by others",
    )
    return 1 if bad else 0


def all_faults() -> list[Fault]:
    """In the order of the table."""
    modules = (deaths, slow_clients, crowds, exhaustion, handshakes, strangers)
    return [fault for module in modules for fault in module.faults()]


def _is_wanted(fault: Fault, only: Sequence[str]) -> bool:
    return not only or any(text.lower() in fault.name.lower() for text in only)


def _say(console: Console, result: Result) -> None:
    mark = "[red]✗[/]" if result.wrong else "[green]✓[/]"
    said = "; ".join(result.wrong) if result.wrong else result.said
    console.print(f"{mark} {escape(result.fault.name)}: {escape(said)}")


def _table(results: Iterable[Result]) -> Table:
    table = Table(title="Before → after each fault, with the load of others at rest", title_justify="left")
    for column in ("", "fault", "each time"):
        table.add_column(column, overflow="fold")
    for column in (
        "sockets",
        "files",
        "other fds",
        "tasks",
        "connections",
        "parked",
        "RSS MiB",
        "others' worst ms",
    ):
        table.add_column(column, justify="right")
    for result in results:
        before, after = result.before, result.after
        table.add_row(
            "[red]✗[/]" if result.wrong else "[green]✓[/]",
            escape(result.fault.name),
            escape(result.said),
            _change(before.fds["socket"], after.fds["socket"]),
            _change(before.fds["file"], after.fds["file"]),
            _change(_others(result.before.fds), _others(result.after.fds)),
            _change(before.tasks, after.tasks),
            _change(before.connections, after.connections),
            _change(before.parked, after.parked),
            " ".join(f"{size / (1 << 20):.1f}" for size in result.rss_bytes),
            f"{result.worst_ms:.0f} / {result.worst_end_to_end_ms:.0f}",
        )
    return table


def _others(fds: dict[str, int]) -> int:
    return sum(count for kind, count in fds.items() if kind not in ("socket", "file"))


def _change(before: int, after: int) -> str:
    return f"{before} → {after}" if before != after else str(before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m campaigns connection-faults",
        description="Clients that are killed, slow, idle or many: what leaks, who notices.",
    )
    laid = "laid over the broker's manifest"
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help=laid)
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="faults whose name has this in it"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="how much of it (1: thousands of each)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
