"""SIGKILL of the driver, a worker, the JVM and the broker while a feed is archived, then checks of the archive."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import attrs

from campaigns.archive.common import ledger
from campaigns.archive.common.brokers import Broker, our_broker, peer_broker
from campaigns.archive.common.process import Archive, Command
from campaigns.archive.common.report import Report
from campaigns.archive.common.tallies import rows_in
from campaigns.archive.common.topics import make_topic
from campaigns.archive.crashes.feed import Feed, TransactionalFeed
from campaigns.archive.crashes.killer import VICTIMS, Killed, Killer
from campaigns.archive.golden import counted, look, step
from campaigns.clients.load.log_contents import log_ends

TOPIC = "kills"
PARTITIONS = 2
CATCH_UP_S = 600.0
PLAIN, TRANSACTIONS = "plain", "transactions"
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
        folder / "plain", report, plan, reader, our_broker(folder / "b", (), plan.patience), Feed, "feed"
    )


def transactional_kills(folder: Path, report: Report, plan: Plan, *, reader: str, peer: str) -> None:
    """Kills while a feed in transactions is archived, some of them aborted, with a broker of this build. With a peer
    the same again with the peer as broker.
    """
    broker = our_broker(folder / "tb", TRANSACTIONS_HERE, plan.patience)
    _archived(folder / "txn", report, plan, reader, broker, TransactionalFeed, "transactions")
    if peer:
        theirs = peer_broker(peer, folder / "peer")
        name = "transactions of the peer"
        _archived(folder / "peer-txn", report, plan, reader, theirs, TransactionalFeed, name)


def _archived(
    folder: Path, report: Report, plan: Plan, reader: str, broker: Broker, kind: type[Feed], name: str
) -> None:
    with ExitStack() as stack:
        feed = _fed(stack, broker, kind, plan)
        settings = {"decoders": ["binance-usdm"], "reader": reader, "trigger_ms": 300}
        archive = Archive(folder, broker.address, [TOPIC], **settings)
        done = killed(report, archive, broker, feed, plan, name)
        step(report, f"{name}: archive once", archive.run("once", timeout_s=CATCH_UP_S * plan.patience))
        end = log_ends(broker.address, TOPIC, PARTITIONS)
        expected = feed.expected()
        report.add(f"{name}: expected", f"{feed.acknowledged:,} messages: {counted(expected)}", feed.wrong)
        look(report, archive.root, expected, ("duckdb", "polars", "pyarrow"), f"{name}: ")
        wrong = ledger.incomplete(archive.root, end)
        report.add(f"{name}: ledger", f"{ledger.commits(archive.root)} commits reach {dict(end)}", wrong)
        verified = archive.look("verify", "--deep", timeout_s=CATCH_UP_S * plan.patience)
        step(report, f"{name}: archive verify --deep", verified)
        if isinstance(feed, TransactionalFeed):
            ends = f"{feed.committed} committed, {feed.aborted} aborted ({feed.messages_aborted:,} messages)"
            report.add(f"{name}: transactions", ends, [] if feed.aborted else ["none was aborted"])
        else:
            gaps = rows_in(archive.root, "gaps")
            report.add(f"{name}: gaps", gaps, ["the feed has none"] if gaps else [])
        report.numbers[f"{name}: kills"] = told_of(done)
        left = len(list((archive.root / "_staging").glob("*.inprogress")))
        report.numbers[f"{name}: staged files left for vacuum"] = left


def killed(report: Report, archive: Archive, broker: Broker, feed: Feed, plan: Plan, name: str) -> Killed:
    """Does the kills, adds a check and returns the result. The feed has ended afterwards, whatever happened."""

    def start(max_offsets: int) -> Command:
        return archive.start("run", max_offsets_per_trigger=max_offsets)

    def commits() -> int:
        return ledger.commits(archive.root)

    killer = Killer(start, commits, broker, plan.seed, plan.say, plan.patience)
    began = time.monotonic()
    try:
        killer.run(plan.kills, plan.victims)
    except RuntimeError as error:
        plan.say(str(error))
    finally:
        feed.stop()
    done = killer.result
    total = sum(done.kills.values())
    wrong = [*done.wrong, *([] if total == plan.kills else [f"{total} kills of {plan.kills}"])]
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(done.kills.items()))
    report.add(f"{name}: kills", f"{total}: {kinds}; {done.starts} starts", wrong, time.monotonic() - began)
    return done


def told_of(done: Killed) -> str:
    """Returns what the drivers did, for people."""
    ends = ", ".join(f"{kind} ×{number}" for kind, number in sorted(done.ended.items()))
    return f"{dict(done.kills)}; went on {done.survived}×; ended by itself: {ends}"


def _fed(stack: ExitStack, broker: Broker, kind: type[Feed], plan: Plan) -> Feed:
    stack.callback(broker.kill)
    broker.start()
    make_topic(broker.address, TOPIC, PARTITIONS)
    feed = kind(broker.address, TOPIC, PARTITIONS, plan.rate, plan.seed)
    feed.start()
    return feed
