"""``python -m campaigns bad-input``: throw nonsense at a broker, print the table, exit 1 on any deviation."""

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

from blumfeld.testing.process import BrokerProcess
from blumfeld_bench.usage import totals
from campaigns.bad_input import batches, frames, mutations
from campaigns.bad_input.case import Case, Result, run_cases
from campaigns.bad_input.target import Target
from campaigns.terminal import console_of, print_wrong

PEAK_BYTES_MAX = 512 * 1024 * 1024
"""The broker's resident memory at its highest: our bound on one decompressed batch is 100 MiB."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if everything came as it must, the broker served on and lost nothing; else 1."""
    given = _parser().parse_args(arguments)
    console = console_of()
    if given.bootstrap:
        results, wrong = _against(given.bootstrap, given.only, console)
    else:
        with tempfile.TemporaryDirectory(prefix="blumfeld-bad-input-") as folder:
            results, wrong = _against_our_own(BrokerProcess(Path(folder)), given.only, console)
    console.print(_table(results))
    print_wrong(console, wrong)
    bad = sum(not result.good for result in results)
    console.print(f"{len(results)} cases, {len(results) - bad} as they must be, {bad} not")
    return 1 if bad or wrong or not results else 0


def wire_cases() -> list[Case]:
    """Return all cases."""
    return [*frames.cases(), *batches.cases(), *mutations.cases()]


def _against(
    address: str, only: str, console: Console, broker: BrokerProcess | None = None
) -> tuple[list[Result], list[str]]:
    """Run the cases; a broker of this build is started again at the end, and what it acknowledged is read once more."""
    target = Target(address, f"bad-{time.time_ns() // 1_000_000:x}")
    cases = [case for case in wire_cases() if only.lower() in case.title.lower()]
    results = run_cases(cases, target, lambda result: _say(console, result))
    wrong = [f"lost: {lost}"] if (lost := target.lost()) else []
    if broker is not None:
        if (peak := totals([broker.pid]).rss_max_bytes) > PEAK_BYTES_MAX:
            wrong.append(f"the broker took {peak >> 20} MiB at its highest")
        if status := broker.stop():
            wrong.append(f"after SIGTERM the exit status was {status}")
        broker.start()
        wrong += [f"lost after a restart: {lost}"] if (lost := target.lost()) else []
        wrong += filter(None, [broker.traceback()])
    console.print(f"{target.acknowledged} records acknowledged, {'lost some' if wrong else 'all there'}")
    return results, wrong


def _against_our_own(broker: BrokerProcess, only: str, console: Console) -> tuple[list[Result], list[str]]:
    broker.start()
    console.print(broker.ready_line)
    try:
        return _against(broker.address, only, console, broker)
    finally:
        broker.stop()


def _say(console: Console, result: Result) -> None:
    if console.is_terminal or not result.good:
        mark = "[green]✓[/]" if result.good else "[red]✗[/]"
        console.print(f"{mark} {escape(result.case.title)}")


def _table(results: Iterable[Result]) -> Table:
    table = Table(title="What the broker makes of nonsense", title_justify="left")
    for column in ("", "what it got", "what came back", "serves on"):
        table.add_column(column, overflow="fold")
    for result in results:
        came = escape(result.came)
        if result.came != result.case.expected:
            came = f"[red]{came}[/], must be {escape(result.case.expected)}"
        elif result.case.kafka:
            came += f" [dim](Kafka: {escape(result.case.kafka)})[/]"
        table.add_row(
            "[green]✓[/]" if result.good else "[red]✗[/]",
            escape(result.case.title),
            came,
            f"[red]{escape(result.serves_on)}[/]" if result.serves_on else "✓",
        )
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m campaigns bad-input",
        description="Broken frames, batches and requests: what comes back, and whether the broker serves on.",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose title has this in it")
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="a running broker instead of one of this build"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
