"""Transactions with aborts, on Kafka and on this build: what is planned and read, and what an archive has of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from blumfeld.testing.process import BrokerProcess
from blumfeld_sink_spark.commands.upkeep.verify import NOT_SHOWN
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.ledger.query_counts import added
from blumfeld_sink_spark.records import OffsetRange
from blumfeld_sink_spark.spark.run.driver import archive
from blumfeld_sink_spark.spark.runtime.session import connector_jars
from blumfeld_sink_spark.spark.topics.client import Topics
from blumfeld_sink_spark.spark.topics.consume import consume_range
from blumfeld_sink_spark.stores.roots import open_store
from tests.kafka_peer import kafka_on, peer_script
from tests.plugins.sink_spark.command import run, said
from tests.plugins.sink_spark.spark_tools import committed_end, make_topic, produce, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=["here", "kafka"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "kafka":
        with kafka_on(peer_script(), tmp_path_factory.mktemp("kafka")) as address:
            yield address
        return
    broker = BrokerProcess(tmp_path_factory.mktemp("here"))
    broker.start()
    yield broker.address
    broker.stop()


def test_ranges_that_end_in_markers_and_aborted_records_end(bootstrap: str) -> None:
    """Five records and a marker in each transaction: offsets 0..5, 6..11, 12..17."""
    settings = make_topic(bootstrap, "transactions")
    produce(bootstrap, "transactions", 5, "cac")
    assert committed_end(settings, 18) == 18
    assert rows_of(settings, 0, 6)["offset"].to_pylist() == [0, 1, 2, 3, 4]
    assert rows_of(settings, 6, 12).num_rows == 0
    assert rows_of(settings, 3, 18)["offset"].to_pylist() == [3, 4, 12, 13, 14, 15, 16]
    assert rows_of(settings, 17, 18).num_rows == 0


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_both_ways_to_read_give_the_same_rows(bootstrap: str, codec: str) -> None:
    """Transactions of two producers side by side, some aborted, with each codec and headers; wherever a range begins
    and ends.
    """
    settings = make_topic(bootstrap, f"same-{codec}", headers=True)
    [topic] = settings.topics
    producers = [
        Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"{codec}-{n}", "compression.type": codec}
        )
        for n in range(2)
    ]
    for producer in producers:
        producer.init_transactions(30)
    for nth in range(6):
        for producer in producers:
            producer.begin_transaction()
        for n in range(40):
            producers[n % 2].produce(
                topic, b"%d" % n * 50, key=None if n % 5 else b"k", headers={"h": b"%d" % n}
            )
            if n % 10 == 9:
                assert [producer.flush(30) for producer in producers] == [0, 0]
        for n, producer in enumerate(producers):
            producer.abort_transaction(30) if (nth + n) % 3 == 0 else producer.commit_transaction(30)
    assert committed_end(settings, 252) == 252
    for isolation in ("read_committed", "read_uncommitted"):
        chosen = msgspec.structs.replace(settings, isolation=isolation)
        for start, end in ((0, 252), (1, 50), (47, 133), (90, 91), (41, 42), (200, 252)):
            ours = rows_of(chosen, start, end)
            theirs = list(consume_range(chosen, OffsetRange(topic, 0, start, end)))
            assert ours == (pa.Table.from_batches(theirs) if theirs else ours.slice(0, 0))
    assert rows_of(settings, 0, 252).num_rows == 160


def test_an_open_transaction_isnt_planned_until_it_ends(bootstrap: str) -> None:
    settings = make_topic(bootstrap, "open")
    produce(bootstrap, "open", 3)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("open", "x")
    assert producer.flush(30) == 0
    topics = Topics(settings)
    assert topics.latest(topics.places()) == {("open", 0): 3}
    producer.commit_transaction(30)
    assert committed_end(settings, 5) == 5


def test_an_archive_covers_the_planned_ranges_and_has_committed_rows_only(
    bootstrap: str, tmp_path: Path
) -> None:
    settings = make_topic(bootstrap, "feed", root=tmp_path / "archive")
    produce(bootstrap, "feed", 20, "caac")
    assert committed_end(settings, 84) == 84
    totals = archive(settings, "once")
    assert (totals.messages, totals.rows) == (40, {"raw": 40})
    ledger = Ledger(open_store(settings.root)).load()
    assert ledger.covered("feed") == (OffsetRange("feed", 0, 0, 84),)


EXPLAINED = {
    "direct": {"aborted": 40, "control": 4},
    "python": {"aborted": 40, "control": 4},
    "jvm": {"hidden": 44},
}


@pytest.mark.parametrize("reader", EXPLAINED)
def test_every_offset_is_counted_by_each_reader(bootstrap: str, tmp_path: Path, reader: str) -> None:
    """Spark's connector shows neither markers nor aborted records: they are hidden until the topic is read again."""
    settings = make_topic(bootstrap, f"counted-{reader}", root=tmp_path / "archive", reader=reader)
    if reader == "jvm" and connector_jars(settings) is None:
        pytest.skip("the Kafka connector's jars aren't here")
    [topic] = settings.topics
    produce(bootstrap, topic, 20, "caac")
    assert committed_end(settings, 84) == 84
    archive(settings, "once")
    ledger = Ledger(open_store(settings.root)).load()
    counts = [count for record in ledger.records(ledger.queries()[0]) for count in record.counts]
    assert added(*(count.skipped for count in counts)) == EXPLAINED[reader]
    assert sum(count.messages for count in counts) == sum(count.with_rows for count in counts) == 40
    verified = run("verify", settings.root, "--deep")
    assert verified.exit_code == (NOT_SHOWN if reader == "jvm" else 0), verified.output
    said("verify", settings.root, "--against", bootstrap)
