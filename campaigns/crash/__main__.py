"""``python -m campaigns crash``: crash storage everywhere, kill brokers under load; exit 1 on any loss."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from blumfeld.plugging.errors import ManifestError
from blumfeld.wire.errors import PluginContractError
from blumfeld_kit.crash.machine import make_storage
from blumfeld_kit.crash.points import Count, UnfitStorageError, try_points
from campaigns.group_kills.report import table
from campaigns.group_kills.rounds import Kills
from campaigns.terminal import console_of, print_wrong, refused


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if nothing that was promised was lost, doubled or out of order; else 1. 2: the storage can't be crashed."""
    given = _parser().parse_args(arguments)
    console = console_of()
    wrong: list[str] = []
    limit = None if given.points == "all" else int(given.points)
    try:
        make = make_storage(given.storage)
    except (ManifestError, PluginContractError) as error:
        return refused("crash", f"--storage {given.storage}: {error}")
    if limit != 0:
        started = time.monotonic()
        try:
            outcome = try_points(make, seed=given.seed, limit=limit)
        except UnfitStorageError as error:
            return refused(
                "crash",
                f"--storage {given.storage}: {error}. Only a storage is crashed that keeps its records over a restart, "
                "in files of its Runtime; --points 0 leaves these crashes out and kills a real broker only",
            )
        seconds = time.monotonic() - started
        title = f"{given.storage} dies at every file operation: {outcome.points} crashes, {seconds:.0f} s"
        console.print(_points_table(outcome.phases, title, "while it does"))
        console.print(
            _points_table(outcome.kinds, "The same by the operation that it died before", "operation")
        )
        wrong += outcome.failures
    if given.rounds:
        with tempfile.TemporaryDirectory(prefix="blumfeld-crash-") as folder:
            report = Kills(Path(folder), given.seed, given.rounds, given.rate, given.storage).run()
        console.print(table({given.seed: report}))
        wrong += report.wrong
    print_wrong(console, wrong)
    broken = f"{len(wrong)} promises broken" if wrong else "nothing lost"
    console.print(f"seed {given.seed}: {broken}")
    return 1 if wrong else 0


def _points_table(counts: dict[str, Count], title: str, first: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in (first, "file operations", "killed", "power cuts", "and again in recovery", "lost"):
        table.add_column(column, justify="left" if column == first else "right")
    total = Count()
    for count in counts.values():
        for field in Count.__struct_fields__:
            setattr(total, field, getattr(total, field) + getattr(count, field))
    for name, count in {**counts, "all": total}.items():
        table.add_row(
            name,
            str(count.operations),
            str(count.kills),
            str(count.power_cuts),
            str(count.second),
            f"[red]{count.lost}[/]" if count.lost else "0",
            end_section=name == next(reversed(counts)),
        )
    return table


def _points(text: str) -> str:
    if text != "all" and not text.isdecimal():
        raise argparse.ArgumentTypeError("a number of crash points, or all")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m campaigns crash",
        description="Crashes of storage before every file operation of a script, and kill -9 of a broker under load.",
    )
    parser.add_argument("--rounds", type=int, default=5, help="kills of a real broker; 0: none")
    parser.add_argument(
        "--seed", type=int, default=0, help="of what a power cut takes, and when a broker is killed"
    )
    parser.add_argument(
        "--points", type=_points, default="all", help="crash points of storage: all, or so many"
    )
    parser.add_argument("--storage", default="storage_local", help="the storage plug-in that is crashed")
    parser.add_argument("--rate", type=int, default=1000, help="records a second while a broker is killed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
