"""``python -m campaigns tiered``: hurt nodes with tiered storage under load; exit 1 on any loss.

Parts: ``full-disk``, ``kills``, ``store-away``, ``tools`` (with ``--peer``), ``history``. ``--only PART`` runs some of
them.
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
from campaigns.consensus import CONSENSUS, KRAFT
from campaigns.figures import save, table
from campaigns.terminal import console_of, print_wrong, refused
from campaigns.tiered.full_disk import DiskReport, fill_disks
from campaigns.tiered.history import History
from campaigns.tiered.kills import KillReport, Kills
from campaigns.tiered.store_away import AwayReport, take_away
from campaigns.tiered.tools import compare
from campaigns.zookeeper_server import consensus_settings


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
        runs = {
            FULL_DISK: self._fill_disks,
            KILLS: self._kill,
            AWAY: self._take_away,
            TOOLS: self._compare_tools,
            HISTORY: self._read_history,
        }
        for part, run in runs.items():
            if part in self._given.only:
                self._console.print(f"[bold]{part}[/]")
                run()

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
            with (
                self._folder(f"{KILLS}{nodes}") as folder,
                consensus_settings(given.consensus, folder / "zookeeper", nodes) as settings,
            ):
                kills = Kills(folder, nodes, given.kills, given.seed, given.rate, settings)
                reports.append(kills.run())
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

    def _take_away(self) -> None:
        given, reports = self._given, list[AwayReport]()
        for nodes in given.nodes:
            with self._folder(f"{AWAY}{nodes}") as folder:
                reports.append(take_away(folder, nodes, given.away, given.seed))
            self._take(AWAY, reports[-1])
        columns = (
            "away s",
            "kills",
            "acknowledged",
            "lost",
            "doubled",
            "pause s",
            "tail s",
            "remote s",
            "caught up s",
        )
        words = ("nodes", "remote reads", "the store at the end")
        figures = table("a store that is away", words, columns)
        for report in reports:
            account = report.account
            answers = ", ".join(f"{name}: {count}" for name, count in report.remote_answers.items())
            counts = (round(report.away_s), report.kills, account.acked, account.lost, account.doubled)
            times = (report.pause_s, report.tail_pause_s, report.remote_answer_s, report.caught_up_s)
            figures.add_row(str(report.nodes), answers, report.verified, *map(str, (*counts, *times)))
        self._console.print(figures)

    def _compare_tools(self) -> None:
        if self._given.peer is None:
            self._console.print("needs Kafka: --peer")
            return
        with self._folder(TOOLS) as folder:
            report = compare(folder, self._given.peer)
        self._take(TOOLS, report)
        figures = table("Kafka's tools on a history in the store", ("command", "this build", "Kafka"), ())
        for command in report.same:
            figures.add_row(command, "the same", "the same")
        for command, said in report.differs.items():
            figures.add_row(command, *said)
        self._console.print(figures)

    def _read_history(self) -> None:
        given = self._given
        with self._folder(HISTORY) as folder:
            in_place = not given.through_cache
            report = History(
                folder, given.gigabytes, given.history_rate, given.rounds, read_in_place=in_place
            ).run()
        self._take(HISTORY, report)
        figures = table("a history that is read from offset 0 while writes go on", ("figure",), ("",))
        account, plain = report.account, report.plain_p99_ms
        tail, beside = report.tail_p99_ms, report.beside_p99_ms
        for name, value in (
            ("GB at the end", f"{report.gigabytes:.1f}"),
            ("written, MB/s", f"{given.gigabytes * 1e3 / report.written_s:.0f}"),
            ("in the store alone", f"{report.remote_share:.3f}"),
            ("on the disk, MB", f"{report.local_bytes / 1e6:,.0f}"),
            ("read, MB/s", f"{report.gigabytes * 1e3 / report.read_s:.0f}"),
            ("acknowledged, lost", f"{account.acked:,}, {account.lost}"),
            ("doubled, disordered", f"{account.doubled}, {account.disordered}"),
            ("highest RSS, MB", f"{report.rss_max_bytes / 1e6:.0f}"),
            ("most in the cache, MB", f"{report.cache_max_bytes / 1e6:.1f}"),
            ("tail p99 ms, not tiered", _listed(plain)),
            ("tail p99 ms, tiered", f"{_listed(tail)}: {report.ratio(plain, tail)}"),
            (
                "the same beside the reader",
                f"{_listed(beside)}: {report.ratio(tail, beside)}",
            ),
        ):
            figures.add_row(name, value)
        self._console.print(figures)


def _listed(values: Sequence[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


FULL_DISK, KILLS, AWAY, TOOLS, HISTORY = "full-disk", "kills", "store-away", "tools", "history"
PARTS = (FULL_DISK, KILLS, AWAY, TOOLS, HISTORY)


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
        "--nodes",
        type=int,
        nargs="+",
        default=[1, 3],
        help="of kills and store-away: a run with so many nodes, for each",
    )
    parser.add_argument("--away", type=float, default=300, help="of store-away: seconds without the store")
    parser.add_argument(
        "--peer", type=Path, help="of tools: start script of Apache Kafka: PEER start DIR PORT"
    )
    parser.add_argument(
        "--consensus",
        choices=CONSENSUS,
        default=KRAFT,
        help="of kills: what keeps the nodes' metadata; a ZooKeeper is started",
    )
    parser.add_argument("--kills", type=int, default=20, help="of each run")
    parser.add_argument("--seed", type=int, default=0, help="moments and nodes are drawn from it")
    parser.add_argument("--rate", type=float, default=1000, help="of kills: records of 2 KB a second")
    parser.add_argument("--gigabytes", type=float, default=2, help="of history")
    parser.add_argument(
        "--history-rate", type=float, default=2000, help="of history: records of 100 kB a second"
    )
    parser.add_argument("--rounds", type=int, default=4, help="of history: measurements of each tail")
    parser.add_argument(
        "--through-cache", action="store_true", help="of history: a folder is read through the cache"
    )
    parser.add_argument("--folder", type=Path, help="data, logs and store; it must be new, and is kept")
    parser.add_argument("--out", type=Path, help="result file, JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
