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
from campaigns.bad_input import batches, frames, mutations, real_clients, requests, start_up
from campaigns.bad_input.case import Case, Result
from campaigns.bad_input.run_cases import run_cases
from campaigns.bad_input.target import Target

PEAK_BYTES_MAX = 512 * 1024 * 1024
"""The broker's resident memory at its highest: our bound on one decompressed batch is 100 MiB."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if everything came as it must, the broker served on and lost nothing; else 1."""
    given = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 150)
    with tempfile.TemporaryDirectory(prefix="blumfeld-bad-input-") as folder:
        if given.bootstrap:
            results, wrong = _against(given.bootstrap, wire_cases(), given.only, console)
        else:
            results, wrong = _against_our_own(Path(folder), given.only, console)
    console.print(_table(results))
    for line in wrong:
        console.print(f"[red]✗ {escape(line)}[/]", highlight=False)
    bad = sum(not result.good for result in results)
    console.print(f"{len(results)} cases, {len(results) - bad} as they must be, {bad} not", highlight=False)
    return 1 if bad or wrong or not results else 0


def wire_cases() -> list[Case]:
    """What a running broker is given."""
    return [*frames.cases(), *requests.cases(), *batches.cases(), *real_clients.cases(), *mutations.cases()]


def _against(
    address: str, cases: Iterable[Case], only: str, console: Console
) -> tuple[list[Result], list[str]]:
    target = Target(address, _tag())
    results = run_cases(_wanted(cases, only), target, lambda result: _say(console, result))
    lost = target.lost()
    console.print(
        f"ledger: {target.acknowledged} records acknowledged, {lost or 'all there'}", highlight=False
    )
    return results, [f"lost: {lost}"] if lost else []


def _against_our_own(folder: Path, only: str, console: Console) -> tuple[list[Result], list[str]]:
    """A broker of this build; at the end it is stopped and started again, and the ledger is read once more."""
    broker = BrokerProcess(folder / "broker")
    broker.folder.mkdir()
    broker.start()
    console.print(broker.ready_line, highlight=False)
    try:
        target = Target(broker.address, _tag())
        cases = [*start_up.cases(folder / "start", broker.address, broker.folder / "data"), *wire_cases()]
        results = run_cases(_wanted(cases, only), target, lambda result: _say(console, result))
        wrong = [f"lost: {lost}"] if (lost := target.lost()) else []
        peak = broker.peak_rss_bytes()
        if peak > PEAK_BYTES_MAX:
            wrong.append(f"the broker took {peak >> 20} MiB at its highest")
        if status := broker.stop():
            wrong.append(f"after SIGTERM the exit status was {status}")
        broker.start()
        wrong += [f"lost after a restart: {lost}"] if (lost := target.lost()) else []
        if "Traceback" in (printed := broker.log_path.read_text()):
            wrong.append(f"the broker's log has a traceback:\n{printed[printed.index('Traceback') :][:1000]}")
    finally:
        broker.stop()
    console.print(
        f"ledger: {target.acknowledged} records acknowledged and there, also after a restart;"
        f" memory at its highest {peak >> 20} MiB",
        highlight=False,
    )
    return results, wrong


def _wanted(cases: Iterable[Case], only: str) -> list[Case]:
    return [case for case in cases if only.lower() in case.title.lower()]


def _tag() -> str:
    return f"bad-{time.time_ns() // 1_000_000:x}"


def _say(console: Console, result: Result) -> None:
    if console.is_terminal or not result.good:
        mark = "[green]✓[/]" if result.good else "[red]✗[/]"
        console.print(f"{mark} {escape(result.case.title)}", highlight=False)


def _table(results: Iterable[Result]) -> Table:
    table = Table(title="What the broker makes of nonsense", title_justify="left")
    for column in ("", "what it got", "what came back", "serves on"):
        table.add_column(column, overflow="fold")
    for result in results:
        came = escape(result.came)
        if not result.case.holds(result.came):
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
        description="Wrong manifests, broken frames and batches: what comes back, and whether the broker serves on.",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose title has this in it")
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="the cases of the wire, against a running broker"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
