"""``python -m campaigns tiered``: hurt nodes with tiered storage under load; exit 1 on any loss.

Parts: ``full-disk``, ``kills``. ``--only PART`` runs some of them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from campaigns.cluster.disks import NoDisksError
from campaigns.figures import save, table
from campaigns.terminal import console_of, print_wrong, refused
from campaigns.tiered.full_disk import DiskReport, fill_disks
from campaigns.tiered.kills import KillReport, Kills


class Report(Protocol):
    """The result of one run of any part."""

    wrong: list[str]


class Campaign:
    """All parts that were asked for, and what they found."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._console = console_of()
        self._reports: dict[str, list[Report]] = {}
        self.is_wrong = False

    def run(self) -> None:
        """Run the parts. A disk is mounted by a process without threads, so that part is the first.

        :raises NoDisksError: it can't be mounted
        """
        for part in (FULL_DISK, KILLS):
            if part in self._given.only:
                self._console.print(f"[bold]{part}[/]")
                {FULL_DISK: self._fill_disks, KILLS: self._kill}[part]()

    def _take(self, part: str, report: Report) -> None:
        self._reports.setdefault(part, []).append(report)
        self.is_wrong |= bool(report.wrong)
        print_wrong(self._console, report.wrong)
        save(self._given.out, msgspec.to_builtins(self._reports))

    @contextmanager
    def _folder(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="blumfeld-tiered-") as folder:
            yield Path(folder) / name if self._given.folder is None else self._given.folder / name

    def _fill_disks(self) -> None:
        reports: list[DiskReport] = []

        def done(report: DiskReport) -> None:
            reports.append(report)
            self._take(FULL_DISK, report)

        with self._folder(FULL_DISK) as folder:
            fill_disks(folder, done, self._given.scenario)
        columns = ("acknowledged MB", "lost", "doubled", "longest pause s", "disk MB at most", "copies")
        figures = table("a disk that fills", ("topic", "the store at the end"), columns)
        for report in reports:
            account = report.account
            counts = (report.acked_mb, account.lost, account.doubled, report.pause_s, report.used_mb_max)
            figures.add_row(report.scenario, report.verified, *map(str, (*counts, report.remote_segments)))
        self._console.print(figures)

    def _kill(self) -> None:
        given, reports = self._given, list[KillReport]()
        for nodes in given.nodes:
            with self._folder(f"{KILLS}{nodes}") as folder:
                reports.append(Kills(folder, nodes, given.kills, given.seed, given.rate).run())
            self._take(KILLS, reports[-1])
        columns = ("kills", "a segment in pieces", "acknowledged", "lost", "doubled", "disordered")
        words = ("nodes", "the store at the end")
        figures = table("kill -9 under load with tiered storage", words, (*columns, "read beside", "s"))
        for report in reports:
            account = report.account
            counts = (report.kills, report.in_pieces, account.acked, account.lost, account.doubled)
            more = (account.disordered, report.reads, round(report.seconds))
            figures.add_row(str(report.nodes), report.verified, *map(str, (*counts, *more)))
        self._console.print(figures)


FULL_DISK, KILLS = "full-disk", "kills"
PARTS = (FULL_DISK, KILLS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if nothing was lost or served twice, and the sweep left no orphan; else 1."""
    campaign = Campaign(_parser().parse_args(arguments))
    try:
        campaign.run()
    except NoDisksError as error:
        return refused("tiered", f"{error}; the other parts run with --only")
    return 1 if campaign.is_wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m campaigns tiered", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help="run these parts"
    )
    parser.add_argument("--scenario", nargs="+", default=(), help="of full-disk: run these alone")
    parser.add_argument(
        "--nodes", type=int, nargs="+", default=[1, 3], help="of kills: a run with so many nodes, for each"
    )
    parser.add_argument("--kills", type=int, default=20, help="of each run")
    parser.add_argument("--seed", type=int, default=0, help="moments and nodes are drawn from it")
    parser.add_argument("--rate", type=float, default=1000, help="of kills: records of 2 KB a second")
    parser.add_argument("--folder", type=Path, help="data, logs and store; it must be new, and is kept")
    parser.add_argument("--out", type=Path, help="result file, JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
