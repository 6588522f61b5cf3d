"""``python -m campaigns tiered``: kill nodes with tiered storage under load; exit 1 on any loss."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from campaigns.figures import save, table
from campaigns.terminal import console_of, print_wrong
from campaigns.tiered.kills import KillReport, Kills


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if nothing was lost or served twice, and the sweep left no orphan; else 1."""
    given = _parser().parse_args(arguments)
    console = console_of()
    reports: list[KillReport] = []
    for nodes in given.nodes:
        with tempfile.TemporaryDirectory(prefix="blumfeld-tiered-") as folder:
            home = Path(folder) if given.folder is None else given.folder / f"nodes{nodes}"
            reports.append(Kills(home, nodes, given.kills, given.seed, given.rate).run())
        print_wrong(console, reports[-1].wrong)
        save(given.out, reports)
    columns = (
        "kills",
        "a segment in pieces",
        "acknowledged",
        "lost",
        "doubled",
        "disordered",
        "read beside",
        "s",
    )
    figures = table("kill -9 under load with tiered storage", ("nodes", "the store at the end"), columns)
    for report in reports:
        account = report.account
        counts = (report.kills, report.in_pieces, account.acked, account.lost, account.doubled)
        more = (account.disordered, report.reads, round(report.seconds))
        figures.add_row(str(report.nodes), report.verified, *map(str, (*counts, *more)))
    console.print(figures)
    return 1 if any(report.wrong for report in reports) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m campaigns tiered", description=__doc__)
    parser.add_argument(
        "--nodes", type=int, nargs="+", default=[1, 3], help="a run with so many nodes, for each"
    )
    parser.add_argument("--kills", type=int, default=20, help="of each run")
    parser.add_argument("--seed", type=int, default=0, help="moments and nodes are drawn from it")
    parser.add_argument("--rate", type=float, default=1000, help="records of 2 KB a second")
    parser.add_argument("--folder", type=Path, help="data, logs and store; it must be new, and is kept")
    parser.add_argument("--out", type=Path, help="result file, JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
