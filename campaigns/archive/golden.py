"""One feed through a broker into files, counted by four readers that know nothing of the archive."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from blumfeld.feeds.binance import MadeFeed, Message
from blumfeld.testing.process import BrokerProcess
from campaigns.archive.common import ledger
from campaigns.archive.common.brokers import our_broker
from campaigns.archive.common.capture import decoder_of, read_capture, write_capture
from campaigns.archive.common.expected_tallies import WORDS, Tallies, differences, expected_of
from campaigns.archive.common.process import Archive, Command, Outcome, archive_command
from campaigns.archive.common.report import Report
from campaigns.archive.common.tallies import READERS
from campaigns.clients.load.log_contents import log_ends

MADE_MESSAGES = 6_000
TOPIC = "feed"
LOAD_S, ONCE_S = 180.0, 300.0
GOLDEN = {"trades": 21_313, "bbo": 66_089, "book_deltas": 443_521}
"""Rows of the USD-M capture of 8 August 2024, by its README. :mod:`.common.expected_tallies` must count the same."""
GOLDEN_NAME = "btcusdt_20240808.gz"


def golden(
    folder: Path, report: Report, *, capture: Path | None, decoder: str, reader: str, readers: tuple[str, ...]
) -> None:
    """Archives one feed and adds a check for each step and each reader."""
    path = capture or write_capture(folder / "made.gz", MadeFeed(1).messages(MADE_MESSAGES))
    messages = read_capture(path)
    decoder = decoder or decoder_of(messages)
    expected = expected_of(messages)
    golden_too = path.name == GOLDEN_NAME and decoder == "binance-usdm"
    wrong = [
        f"{table}: {int(expected[table]['rows'])} rows, the capture is known to have {rows}"
        for table, rows in GOLDEN.items()
        if golden_too and expected[table]["rows"] != rows
    ]
    report.add(f"expected of {path.name} by json.loads and Decimal", counted(expected), wrong)
    with ExitStack() as stack:
        broker = started(stack, folder)
        archive = Archive(folder / "sink", broker.address, [TOPIC], decoders=[decoder], reader=reader)
        step(report, "archive load", load(folder, broker.address, path))
        end = log_ends(broker.address, TOPIC, 1)
        lost = [] if end == {(TOPIC, 0): len(messages)} else [f"the topic has {end}"]
        report.add("messages in the topic", f"{len(messages):,}", lost)
        step(report, f"archive once, reader {reader}", archive.run("once", timeout_s=ONCE_S))
        look(report, archive.root, expected, readers)
        wrong = ledger.incomplete(archive.root, {(TOPIC, 0): len(messages)})
        report.add("commits", ledger.commits(archive.root), wrong)
        step(report, "archive verify --deep", archive.look("verify", "--deep"))
        again = archive.run("once", timeout_s=ONCE_S)
        step(report, "archive once, again", again)
        look(report, archive.root, expected, ("duckdb",), "after once more: ")
        report.numbers.update(sizes(archive.root, expected, messages))


def started(stack: ExitStack, folder: Path) -> BrokerProcess:
    """Starts a broker of this build that runs until the stack ends."""
    broker = our_broker(folder / "broker")
    broker.start()
    stack.callback(broker.stop)
    return broker


def load(folder: Path, bootstrap: str, path: Path, topic: str = TOPIC) -> Outcome:
    """Runs ``archive load`` with a capture."""
    arguments = [str(path), "--topic", topic, "--bootstrap", bootstrap]
    return Command([*archive_command("load"), *arguments], folder / f"load-{topic}.log").wait(LOAD_S)


def step(report: Report, title: str, outcome: Outcome) -> bool:
    """Adds a check that a command ended well. Returns whether it did."""
    good = outcome.status == 0
    end = f"exit status {outcome.status}" if outcome.status is not None else "did not end in time"
    report.add(title, end, [] if good else [outcome.said], outcome.seconds)
    return good


def look(report: Report, root: Path, expected: Tallies, readers: tuple[str, ...], prefix: str = "") -> None:
    """Adds a check for each reader: its counts, and where counts or sums differ from the expected ones."""
    for name in readers:
        began = time.monotonic()
        try:
            tallies = READERS[name](root)
        except Exception as error:  # whatever a reader makes of a broken file is the finding
            report.add(f"{prefix}{name}", "can't read it", [f"{type(error).__name__}: {str(error)[:300]}"])
            continue
        wrong = differences(expected, tallies, name)
        report.add(f"{prefix}{name}", counted(tallies), wrong[:6], time.monotonic() - began)


def counted(tallies: Tallies) -> str:
    """Returns the number of rows of each table, for people."""
    return ", ".join(f"{int(tally['rows']):,} {WORDS[table]}" for table, tally in tallies.items())


def sizes(root: Path, expected: Tallies, messages: list[Message]) -> dict[str, object]:
    """Returns the size of the feed and of each table's files, per row and as a ratio."""
    bytes_in = sum(len(message.value) for message in messages)
    figures: dict[str, object] = {"MB of JSON": round(bytes_in / 1e6, 2)}
    total = 0
    for table, tally in expected.items():
        size = sum(path.stat().st_size for path in (root / table).rglob("*.parquet"))
        total += size
        per_row = size / max(1, int(tally["rows"]))
        figures[f"{table}: MB, bytes a row"] = f"{size / 1e6:.3f}, {per_row:.2f}"
    figures["MB of Parquet"] = round(total / 1e6, 3)
    figures["ratio"] = round(bytes_in / total, 2) if total else None
    return figures
