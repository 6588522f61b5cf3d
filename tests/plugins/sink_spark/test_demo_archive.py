"""README's way: the demo streams a feed, and the archive of it holds every message, with no gap and no quarantine."""

from __future__ import annotations

import json
import re
import shlex
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from blumfeld.cli.demo.feed import FeedMessage, synthetic_feed
from blumfeld.cli.demo.pipeline import TOPIC
from blumfeld.feeds import RECV_HEADER
from blumfeld.feeds.binance import Message
from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld_sink_spark.commands import app
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.reading.producing.load import Record
from blumfeld_sink_spark.stores.roots import open_store
from campaigns.archive.common.expected_tallies import added, differences, expected_of
from campaigns.archive.common.process import Command, archive_command
from campaigns.archive.common.tallies import READERS
from tests.plugins.sink_spark.archive_tools import archive, rows_of

PARTITIONS = 4
MESSAGES = 4_000
MS = 1_000_000
README = Path(__file__).resolve().parents[3] / "README.md"


def parts(feed: list[FeedMessage]) -> list[list[FeedMessage]]:
    messages_by_partition: list[list[FeedMessage]] = [[] for _ in range(PARTITIONS)]
    for message in feed:
        messages_by_partition[zlib.crc32(message.key) % PARTITIONS].append(message)
    return messages_by_partition


def sent(message: FeedMessage) -> Record:
    return Record(
        value=message.value,
        key=message.key,
        timestamp_ms=message.received_ns // 1_000_000,
        partition=-1,
        headers=[(RECV_HEADER, b"%d" % message.received_ns)],
        stream="",
    )


def check(root: Path, feed: list[FeedMessage]) -> None:
    """Every row of the feed is in the files, and nothing was found wrong with it."""
    ledger = Ledger(open_store(str(root)))
    ledger.load()
    records = [record for query in ledger.queries() for record in ledger.records(query)]
    assert sum(record.messages for record in records) == len(feed)
    assert sum(record.quarantined for record in records) == 0
    assert sum(record.gaps for record in records) == 0
    expected = added(
        expected_of(Message(each.received_ns, each.value) for each in part) for part in parts(feed)
    )
    tallies = READERS["pyarrow"](root)
    assert differences(expected, tallies, "pyarrow") == []
    assert all(tally["rows"] > 0 for tally in expected.values())
    data = [json.loads(each.value).get("data", {}) for each in feed]
    for table, kind in (
        ("trades", "trade"),
        ("bbo", "bookTicker"),
    ):  # the engine's time and the sender's, both
        rows = pq.read_table(root / table)
        times = [(value["T"] * MS, value["E"] * MS) for value in data if value.get("e") == kind]
        assert sorted(zip(rows["ts_event"].to_pylist(), rows["ts_sent"].to_pylist(), strict=True)) == sorted(
            times
        )
    places = {
        (at, nth): each.received_ns for at, part in enumerate(parts(feed)) for nth, each in enumerate(part)
    }
    received = ds.dataset(root / "trades", partitioning="hive").to_table(
        ["k_partition", "k_offset", "ts_recv"]
    )
    for row in received.to_pylist():  # to the nanosecond
        assert row["ts_recv"] == places[row["k_partition"], row["k_offset"]]


def readme_command(verb: str) -> list[str]:
    (line,) = re.findall(rf"^blumfeld {verb} [^#\n]*", README.read_text(), flags=re.M)
    return shlex.split(line)[1:]


def test_the_readmes_line_archives_the_demos_topic(tmp_path: Path) -> None:
    """With the decoders and the topic of README's line, without Spark: zero in quarantine, zero gaps, every row. The
    archive can be replayed, as a later line does.
    """
    command = readme_command("archive once")
    options = list(zip(command[2::2], command[3::2], strict=True))
    assert ("--topics", TOPIC) in options
    decoders = tuple(value for option, value in options if option == "--decoder")
    feed = list(synthetic_feed(MESSAGES, 1))
    rows = [
        rows_of(map(sent, part), TOPIC, partition, headers=True)
        for partition, part in enumerate(parts(feed))
        if part
    ]
    archive(tmp_path, pa.concat_tables(rows), decoders=decoders, batch_rows=700)
    check(tmp_path, feed)
    replay = readme_command("archive replay")[1:]
    with EmbeddedBroker() as broker:
        given = ["--root", str(tmp_path), "--bootstrap", broker.bootstrap_servers, "--json"]
        replayed = CliRunner().invoke(app, [*replay, *given])
        assert replayed.exit_code == 0, replayed.output
    summary = json.loads(replayed.output)
    assert (summary["records"], summary["same_offsets"], summary["partitions"]) == (
        len(feed),
        True,
        PARTITIONS,
    )


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_readmes_lines_one_after_the_other(tmp_path: Path) -> None:
    """The demo into a running broker, then the archive, then its proof: each as a person types it."""
    with EmbeddedBroker() as broker:
        demo = readme_command("demo --bootstrap")
        demo[demo.index("--bootstrap") + 1] = broker.bootstrap_servers
        blumfeld = archive_command("")[:-2]
        command = [*blumfeld, *demo, "--messages", str(MESSAGES), "--rate", "0"]
        streamed = Command(command, tmp_path / "demo").wait(120)
        assert streamed.status == 0, streamed.said
        again = Command(command, tmp_path / "demo-again").wait(60)
        assert (again.status, f"the topic {TOPIC} exists" in again.err) == (2, True), again.said
        once = [*blumfeld, *readme_command("archive once"), "--bootstrap", broker.bootstrap_servers]
        once[once.index("--root") + 1] = str(tmp_path / "archive")
        once += ["--master", "local[2]", "--set", "spark.driver.memory=1g"]
        archived = Command(once, tmp_path / "once").wait(240)
        assert archived.status == 0, archived.said
    check(tmp_path / "archive", list(synthetic_feed(MESSAGES, 1)))
    deep = [*archive_command("verify"), "--deep", "--root", str(tmp_path / "archive")]
    verified = Command(deep, tmp_path / "verify").wait(120)
    assert verified.status == 0, verified.said
