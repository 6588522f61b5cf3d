"""``python -m campaigns group-kills``: kill a broker under load and groups of real clients; exit 1 on any loss."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from blumfeld_kit.simulation.seeds import seeds_of
from campaigns.group_kills.report import KillReport, table
from campaigns.group_kills.rounds import KINDS, Kills
from campaigns.terminal import console_of, print_wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if no record and no committed offset was lost and all members came back; else 1."""
    given = _parser().parse_args(arguments)
    console = console_of()
    reports: dict[int, KillReport] = {}
    for seed in given.seeds:
        with tempfile.TemporaryDirectory(prefix="blumfeld-group-kills-") as folder:
            reports[seed] = Kills(Path(folder), seed, given.rounds, given.rate).run()
        print_wrong(console, [f"seed {seed}: {line}" for line in reports[seed].wrong])
    console.print(table(reports))
    return 1 if any(report.wrong for report in reports.values()) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m campaigns group-kills",
        description="kill -9 of a broker in the middle of rebalances and commits, while it starts and while it stops.",
    )
    parser.add_argument("--seeds", type=seeds_of, default=[0], help="0, or 0-9")
    parser.add_argument("--rounds", type=int, default=len(KINDS), help="kills of each seed")
    parser.add_argument("--rate", type=int, default=300, help="records a second")
    return parser


if __name__ == "__main__":
    sys.exit(main())
