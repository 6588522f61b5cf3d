"""One data directory, Apache Kafka's and ours in turn: each opens what the other left, and serves the same
records; Kafka's own tool reads every file without a complaint. Skipped where Kafka or Java is not there.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blumfeld.testing.process import BrokerProcess
from tests.kafka_peer import kafka_on, peer_script

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = {
    "codecs": 2,
    "compacted": 1,
    "compacted-transactions": 1,
    "compacted-later": 1,
    "transactions": 1,
    "unfinished": 1,
    "deleted-from": 1,
}
SMALL = {"internal.segment.bytes": "16384", "index.interval.bytes": "512"}
COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
}
Seen = dict[tuple[str, int], list[tuple[int, bytes | None, bytes | None, int, Any]]]


def make_topics(bootstrap: str) -> None:
    """All of :data:`TOPICS`, in small segments."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics(
        [
            NewTopic(
                name,
                partitions,
                1,
                config=SMALL | (COMPACT if name in ("compacted", "compacted-transactions") else {}),
            )
            for name, partitions in TOPICS.items()
        ]
    )
    for future in made.values():
        future.result(timeout=30)


def produce(bootstrap: str, topic: str, codec: str, count: int, partitions: int = 1, keys: int = 20) -> None:
    """Idempotent, in batches of at most forty; every fiftieth value is null."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.num.messages": 40,
        }
    )
    failed: list[str] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    for number in range(count):
        value = None if number % 50 == 7 else f"{codec} {number} ".encode() * 8
        producer.produce(
            topic,
            value=value,
            key=f"{codec}-{number % keys}".encode(),
            partition=number % partitions,
            headers=[("codec", codec.encode()), ("none", None)],
            on_delivery=delivered,
        )
    assert producer.flush(60) == 0
    assert not failed, failed


def transact(bootstrap: str, topic: str, rounds: int, *, leave_open: bool = False) -> object:
    """Two producers whose transactions overlap; every third is aborted. What is left open stays so, as long as
    the result is held.
    """
    from confluent_kafka import Producer

    producers = []
    for name in ("one", "two"):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"{topic}-{name}",
                "transaction.timeout.ms": 900_000,
                "linger.ms": 5,
            }
        )
        producer.init_transactions(30)
        producers.append(producer)
    for number in range(rounds):
        for who, producer in enumerate(producers):
            producer.begin_transaction()
            for part in range(3):
                producer.produce(topic, value=b"%d %d %d " % (number, who, part) * 20, key=b"k%d" % part)
            assert producer.flush(30) == 0
        for who, producer in enumerate(producers):
            if (number + who) % 3 == 0:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
    if leave_open:
        producers[0].begin_transaction()
        producers[0].produce(topic, value=b"never ended")
        assert producers[0].flush(30) == 0
    return producers


def fill(bootstrap: str) -> object:
    """Every kind of log. Hold what it gives until the broker is down."""
    make_topics(bootstrap)
    for codec in CODECS:
        produce(bootstrap, "codecs", codec, 300, partitions=2)
        produce(bootstrap, "compacted", codec, 300, keys=7)
        produce(bootstrap, "deleted-from", codec, 60)
    transact(bootstrap, "transactions", 40)
    transact(bootstrap, "compacted-transactions", 40)
    transact(bootstrap, "compacted-later", 40)
    delete_records(bootstrap, "deleted-from", 133)
    return transact(bootstrap, "unfinished", 4, leave_open=True)


def make_retained(bootstrap: str) -> None:
    """A topic that keeps little."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    config = SMALL | {"retention.bytes": "10000"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("retained", 1, 1, config=config)])["retained"].result(timeout=30)


def compact(bootstrap: str, topic: str) -> None:
    """From now on the topic is compacted."""
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in COMPACT.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(timeout=30)


def delete_records(bootstrap: str, topic: str, offset: int) -> None:
    """Partition 0 starts at ``offset`` now."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    deleted = admin.delete_records([TopicPartition(topic, 0, offset)])
    for future in deleted.values():
        assert future.result(timeout=30).low_watermark == offset


def latest(records: list[Any]) -> dict[bytes | None, Any]:
    """The newest record of each key that has a value."""
    return {key: row for key, row in {record[1]: record for record in records}.items() if row[2] is not None}


def consume(bootstrap: str, *, committed: bool, topics: dict[str, int] = TOPICS) -> Seen:
    """Everything that a reader is given, by partition, up to the end that it is told of."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "check.crcs": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    wanted = [(topic, p) for topic, count in topics.items() for p in range(count)]
    seen: Seen = {place: [] for place in wanted}
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for topic, p in wanted])
    ended: set[tuple[str, int]] = set()
    deadline = time.monotonic() + 60
    while len(ended) < len(wanted):
        assert time.monotonic() < deadline, f"no end of {sorted(set(wanted) - ended)}"
        message = consumer.poll(5)
        if message is None:
            continue
        place = (message.topic() or "", message.partition() or 0)
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(place)
            continue
        seen[place].append(
            (message.offset() or 0, message.key(), message.value(), message.timestamp()[1], message.headers())
        )
    consumer.close()
    return seen


def watermarks(bootstrap: str, topics: dict[str, int] = TOPICS) -> dict[tuple[str, int], tuple[int, int]]:
    """Log start and last stable offset of every partition; of a broker that has just started, once it leads them."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    offsets: dict[tuple[str, int], tuple[int, int]] = {}
    deadline = time.monotonic() + 30
    for topic, count in topics.items():
        for p in range(count):
            while (topic, p) not in offsets:
                try:
                    offsets[topic, p] = consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=20)
                except KafkaException:
                    assert time.monotonic() < deadline, f"{topic}-{p}"
                    time.sleep(0.2)
    consumer.close()
    return offsets


TOOL_TIMEOUT_S = 200
CLEANED_TOPICS = ("compacted", "compacted-transactions")
CLEANED, STARTS = "cleaner-offset-checkpoint", "log-start-offset-checkpoint"
COMPLAINTS = re.compile(
    r"(?i)mismatch|corrupt|exception|invalid|could not|not valid|isvalid: false|out of order|found log offset"
)
KAFKA_SETTINGS = (
    "log.cleaner.backoff.ms=500",
    "log.flush.start.offset.checkpoint.interval.ms=500",
    "offsets.topic.num.partitions=4",
    "transaction.state.log.num.partitions=4",
)
OUR_SETTINGS = (
    'config."log.cleaner.backoff.ms"=500',
    'config."log.initial.task.delay.ms"=500',
    'config."log.retention.check.interval.ms"=500',
)


def dump(files: list[Path], *options: str) -> str:
    """What ``DumpLogSegments --deep-iteration`` says of these files."""
    command = [peer_script(), "tool", "org.apache.kafka.tools.DumpLogSegments"]
    command += [*(options or ("--deep-iteration",)), "--files", ",".join(map(str, files))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def until(holds: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    """Wait for it."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:.0f} s"
        time.sleep(0.2)


def kept(data: Path, checkpoint: str, topic: str) -> int:
    """The offset of partition 0 in a checkpoint file, or 0."""
    path = data / checkpoint
    lines = path.read_text().splitlines() if path.exists() else []
    return max((int(line.split()[2]) for line in lines if line.startswith(f"{topic} 0 ")), default=0)


def read(address: str) -> tuple[dict[tuple[str, int], tuple[int, int]], Seen, Seen]:
    """(log start and last stable offset, what every reader gets, what a reader of committed records gets)."""
    return watermarks(address), consume(address, committed=False), consume(address, committed=True)


def settled(seen: tuple[dict[tuple[str, int], tuple[int, int]], Seen, Seen]) -> object:
    """The same with, of compacted topics, what no round of cleaning can take: the newest committed of each key."""
    ends, all_records, committed = seen
    return (
        ends,
        {place: rows for place, rows in all_records.items() if not place[0].startswith("compacted")},
        {
            place: latest(rows) if place[0].startswith("compacted") else rows
            for place, rows in committed.items()
        },
    )


def work(address: str, data: Path) -> None:
    """What our broker adds: every codec, rolls, retention, DeleteRecords, more for the cleaner, producers that
    go on.
    """
    before = kept(data, CLEANED, "compacted")
    make_retained(address)
    compact(address, "compacted-later")
    for codec in CODECS:
        produce(address, "codecs", codec, 200, partitions=2)
        produce(address, "compacted", codec, 200, keys=5)
        produce(address, "retained", codec, 300)
    delete_records(address, "deleted-from", 201)
    until(lambda: watermarks(address, {"retained": 1})["retained", 0][0] > 0, "retention")
    until(lambda: kept(data, STARTS, "deleted-from") == 201, "our checkpoint")
    until(lambda: kept(data, CLEANED, "compacted") > before, "our cleaner")
    until(lambda: kept(data, CLEANED, "compacted-later") > 0, "our cleaner, of transactions")


def check_files(data: Path) -> None:
    """Kafka's reader on every file of every topic."""
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = [
        file
        for directory in sorted(data.iterdir())
        if directory.is_dir() and not directory.name.startswith("__cluster_metadata")
        for file in sorted(directory.iterdir())
        if file.suffix in suffixes and file.stat().st_size
    ]
    assert {file.suffix for file in files} == set(suffixes)
    assert len([file for file in files if file.suffix == ".txnindex"]) >= 3
    said = dump(files)
    assert not COMPLAINTS.findall(said)
    assert said.count("Dumping ") == len(files)
    indexes = [file for file in files if file.suffix in (".index", ".timeindex")]
    assert not COMPLAINTS.findall(dump(indexes, "--verify-index-only"))
    assert not COMPLAINTS.findall(dump(indexes, "--index-sanity-check").replace("passed sanity check", ""))


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("crash", [False, True], ids=["clean stops", "kill -9"])
def test_kafkas_directory_is_ours_and_ours_is_kafkas(tmp_path: Path, crash: bool) -> None:
    """Kafka fills a directory with several topics of every codec, one that its cleaner has cleaned, transactions
    with aborts and one that is open; we serve it, go on in it, and Kafka serves what we left.
    """
    peer, data = peer_script(), tmp_path / "data"
    with kafka_on(peer, tmp_path, *KAFKA_SETTINGS, kill=crash) as address:
        held = fill(address)
        for topic in CLEANED_TOPICS:
            until(lambda topic=topic: kept(data, CLEANED, topic) > 0, "Kafka's cleaner")  # type: ignore[misc]
        until(lambda: kept(data, STARTS, "deleted-from") == 133, "Kafka's checkpoint")
        theirs = read(address)
    del held
    (tmp_path / "kafka.log").rename(tmp_path / "kafka-first.log")
    broker = BrokerProcess(tmp_path, settings=OUR_SETTINGS)
    broker.start()
    try:
        assert settled(read(broker.address)) == settled(theirs)
        work(broker.address, data)
        ours = read(broker.address)
        if crash:
            broker.kill()
            broker.start()
            assert settled(read(broker.address)) == settled(ours)
    finally:
        if crash:
            broker.kill()
        else:
            assert broker.stop() == 0, broker.log_path.read_text()
    if not crash:
        check_files(data)
    with kafka_on(peer, tmp_path, *KAFKA_SETTINGS) as address:
        assert settled(read(address)) == settled(ours)
    again = BrokerProcess(tmp_path, settings=OUR_SETTINGS)
    again.start()
    try:
        assert settled(read(again.address)) == settled(ours)
    finally:
        assert again.stop() == 0, again.log_path.read_text()
    check_files(data)
