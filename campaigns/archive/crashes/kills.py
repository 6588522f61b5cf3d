"""SIGKILL of the driver, a worker, the JVM and the broker while a feed is archived, then checks of the archive."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs

from campaigns.archive.common import ledger
from campaigns.archive.common.brokers import Broker, PeerBroker, our_broker
from campaigns.archive.common.expected import SUMMED
from campaigns.archive.common.process import Archive, Command
from campaigns.archive.common.report import Report
from campaigns.archive.common.topics import ends, make_topic
from campaigns.archive.crashes import file_sink
from campaigns.archive.crashes.feeding import Feeding, TransactionalFeeding
from campaigns.archive.crashes.killing import VICTIMS, Killed, Killing
from campaigns.archive.golden import counted, look, step

TOPIC = "kills"
PARTITIONS = 2
CATCH_UP_S = 600.0
KEYS = {
    "trades": "symbol, trade_id",
    "bbo": "k_partition, k_offset",
    "book_deltas": "k_partition, k_offset, side, price",
}
"""Columns that no two rows of a table may share."""
PLAIN, TRANSACTIONS, FILE_SINK = "plain", "transactions", "file-sink"
TRANSACTIONS_HERE = ('transactions.plugin="transactions"',)
Say = Callable[[str], None]


@attrs.frozen
class Plan:
    """The options of a run."""

    kills: int
    seed: int
    rate: int
    """Rate of the feed, messages a second."""
    say: Say
    patience: float = 1.0
    victims: tuple[str, ...] = VICTIMS


def kills(folder: Path, report: Report, plan: Plan, *, reader: str) -> None:
    """Kills while a feed without transactions is archived, with a broker of this build."""
    _archived(
        folder / "plain", report, plan, reader, our_broker(folder / "b", (), plan.patience), Feeding, "feed"
    )


def transactional_kills(folder: Path, report: Report, plan: Plan, *, reader: str, peer: str) -> None:
    """Kills while a feed in transactions is archived, some of them aborted, with a broker of this build. With a peer
    the same again with the peer as broker.
    """
    broker = our_broker(folder / "tb", TRANSACTIONS_HERE, plan.patience)
    _archived(folder / "txn", report, plan, reader, broker, TransactionalFeeding, "transactions")
    if peer:
        theirs = PeerBroker(peer, folder / "peer")
        name = "transactions of the peer"
        _archived(folder / "peer-txn", report, plan, reader, theirs, TransactionalFeeding, name)


def _archived(
    folder: Path, report: Report, plan: Plan, reader: str, broker: Broker, kind: type[Feeding], name: str
) -> None:
    with ExitStack() as stack:
        feeding = _fed(stack, broker, kind, plan)
        settings = {"decoders": ["binance-usdm"], "reader": reader, "trigger_ms": 300}
        archive = Archive(folder, broker.address, [TOPIC], **settings)
        done = killed(report, ArchiveSink(archive), broker, feeding, plan, name, plan.victims)
        step(report, f"{name}: archive once", archive.run("once", timeout_s=CATCH_UP_S * plan.patience))
        end = ends(broker.address, TOPIC, PARTITIONS)
        expected = feeding.expected()
        report.add(
            f"{name}: expected", f"{feeding.acknowledged:,} messages: {counted(expected)}", feeding.wrong
        )
        look(report, archive.root, expected, ("duckdb", "polars", "pyarrow"), f"{name}: ")
        _no_row_twice(report, archive.root, f"{name}: rows that are there twice")
        wrong = ledger.incomplete(archive.root, TOPIC, end)
        report.add(f"{name}: ledger", f"{ledger.commits(archive.root)} commits reach {dict(end)}", wrong)
        step(
            report,
            f"{name}: archive verify --deep",
            archive.look("verify", "--deep", timeout_s=CATCH_UP_S * plan.patience),
        )
        if isinstance(feeding, TransactionalFeeding):
            told = f"{feeding.committed} committed, {feeding.aborted} aborted ({feeding.messages_aborted:,} messages)"
            report.add(f"{name}: transactions", told, [] if feeding.aborted else ["none was aborted"])
        else:
            gaps = rows_in(archive.root, "gaps")
            report.add(f"{name}: gaps", gaps, ["the feed has none"] if gaps else [])
        report.numbers[f"{name}: kills"] = told_of(done)
        left = len(list((archive.root / "_staging").glob("*.inprogress")))
        report.numbers[f"{name}: staged files left for vacuum"] = left


def against_file_sink(folder: Path, report: Report, plan: Plan) -> None:
    """Kills Spark's own file sink in the same way. The rows that readers by glob find are reported, not judged."""
    broker = our_broker(folder / "fb", (), plan.patience)
    with ExitStack() as stack:
        feeding = _fed(stack, broker, Feeding, plan)
        sink = FileSink(folder / "file-sink", broker.address)
        name = "Spark's file sink"
        done = killed(report, sink, broker, feeding, plan, name, ("driver", "jvm", "broker"))
        step(report, "Spark's file sink: the rest", sink.start(0, "once").wait(CATCH_UP_S * plan.patience))
        expected = int(feeding.expected()["trades"]["rows"])
        found = file_sink.inspect(sink.root)
        report.numbers["Spark's file sink: trades expected"] = expected
        report.numbers["Spark's file sink: rows by glob, duplicates, unreadable files, files"] = (
            f"{found.rows:,}, {found.duplicates:,}, {found.unreadable}, {found.files}"
        )
        report.add("Spark's file sink: trades that are there at all", f"{found.rows - found.duplicates:,}")
        report.numbers["Spark's file sink: kills"] = told_of(done)


def killed(
    report: Report,
    sink: Any,
    broker: Broker,
    feeding: Feeding,
    plan: Plan,
    name: str,
    victims: tuple[str, ...] = VICTIMS,
) -> Killed:
    """Does the kills, adds a check and returns the result. The feed has ended afterwards, whatever happened."""
    killing = Killing(sink, broker, plan.seed, plan.say, plan.patience)
    began = time.monotonic()
    try:
        killing.run(plan.kills, victims)
    except RuntimeError as error:
        plan.say(str(error))
    finally:
        feeding.stop()
    done = killing.result
    total = sum(done.kills.values())
    wrong = [*done.wrong, *([] if total == plan.kills else [f"{total} kills of {plan.kills}"])]
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(done.kills.items()))
    report.add(f"{name}: kills", f"{total}: {kinds}; {done.starts} starts", wrong, time.monotonic() - began)
    return done


def told_of(done: Killed) -> str:
    """Returns what the drivers did, for people."""
    ends = ", ".join(f"{kind} ×{number}" for kind, number in sorted(done.ended.items()))
    return f"{dict(done.kills)}; went on {done.survived}×; ended by itself: {ends}"


class ArchiveSink:
    """The archive under test: ``archive run``."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def start(self, max_offsets: int) -> Command:
        """Starts a driver with at most this many messages a batch."""
        return self._archive.start("run", max_offsets_per_trigger=max_offsets)

    def progress(self) -> int:
        """Returns the number of commit records."""
        return ledger.commits(self._archive.root)


class FileSink:
    """Spark's own file sink, by :mod:`.file_sink`."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        folder.mkdir(parents=True)
        self.root = folder / "trades"
        self._folder = folder
        self._bootstrap = bootstrap
        self._starts = 0

    def start(self, max_offsets: int, *arguments: str) -> Command:
        """Starts a query with at most this many messages a batch; 0 is no limit."""
        import sys

        self._starts += 1
        given = [self._bootstrap, TOPIC, str(self.root), str(self._folder / "checkpoint")]
        command = [sys.executable, "-m", file_sink.__name__, *given, str(max_offsets or 10**9), *arguments]
        return Command(command, self._folder / f"{self._starts:03d}.log")

    def progress(self) -> int:
        """Returns the number of Spark's own commits."""
        return sum(path.name.isdecimal() for path in (self._folder / "checkpoint" / "commits").glob("*"))


def rows_in(root: Path, table: str) -> int:
    """Returns the number of rows in all files of a table."""
    import duckdb

    if not any((root / table).rglob("*.parquet")):
        return 0
    found = duckdb.sql(f"SELECT count(*) FROM read_parquet('{root}/{table}/**/*.parquet')").fetchall()
    return int(found[0][0])


def _no_row_twice(report: Report, root: Path, title: str) -> None:
    import duckdb

    twice = {}
    for table in SUMMED:
        if any((root / table).rglob("*.parquet")):
            snapshots = " WHERE NOT is_snapshot" if table == "book_deltas" else ""
            found = duckdb.sql(
                f"SELECT count(*) - count(DISTINCT ({KEYS[table]}))"
                f" FROM read_parquet('{root}/{table}/**/*.parquet'){snapshots}"
            )
            twice[table] = int(found.fetchall()[0][0])
    wrong = [f"{table}: {count}" for table, count in twice.items() if count]
    report.add(title, ", ".join(f"{count} {table}" for table, count in twice.items()), wrong)


def _fed(stack: ExitStack, broker: Broker, kind: type[Feeding], plan: Plan) -> Feeding:
    stack.callback(broker.kill)
    broker.start()
    make_topic(broker.address, TOPIC, PARTITIONS)
    feeding = kind(broker.address, TOPIC, PARTITIONS, plan.rate, plan.seed)
    feeding.start()
    return feeding
