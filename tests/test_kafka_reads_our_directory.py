"""The data directory is Kafka's: its tools read every file without a complaint, it starts on it, and serves the
same.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from blumfeld.testing.process import BrokerProcess
from tests.kafka_peer import kafka_on, peer_script, tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC = "oracle"
RECORDS = 400
COMPLAINTS = ("mismatch", "corrupt", "exception", "error", "invalid", "isvalid: false", "warn")

Seen = dict[int, list[tuple[bytes | None, bytes | None, int, Any]]]


def fill(bootstrap: str) -> None:
    """Two partitions of every codec, keys, tombstones, headers, many segments, an idempotent producer, a group's
    offsets.
    """
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap})
    small = {"internal.segment.bytes": "16384", "index.interval.bytes": "512"}
    admin.create_topics([NewTopic(TOPIC, 2, 1, config=small)])[TOPIC].result(timeout=20)
    for codec in CODECS:
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

        def delivered(error: object, _message: object, failed: list[str] = failed) -> None:
            if error is not None:
                failed.append(str(error))

        for number in range(RECORDS):
            value = None if number % 50 == 7 else f"{codec} {number} ".encode() * 8
            producer.produce(
                TOPIC,
                value=value,
                key=f"{codec}-{number % 20}".encode(),
                partition=number % 2,
                headers=[("codec", codec.encode()), ("none", None)],
                on_delivery=delivered,
            )
        assert producer.flush(30) == 0
        assert not failed


def consume(bootstrap: str, group: str, commit: bool) -> Seen:
    """Everything in the topic, by partition."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, p, OFFSET_BEGINNING) for p in (0, 1)])
    seen: Seen = {0: [], 1: []}
    while sum(map(len, seen.values())) < RECORDS * len(CODECS):
        message = consumer.poll(20)
        assert message is not None, "nothing arrived for 20 s"
        assert message.error() is None, message.error()
        records = seen[message.partition() or 0]
        assert message.offset() == len(records)
        records.append((message.key(), message.value(), message.timestamp()[1], message.headers()))
    if commit:
        consumer.commit(asynchronous=False)
    consumer.close()
    return seen


def committed(bootstrap: str, group: str) -> list[int]:
    """The group's offsets. A coordinator that has just started may not have loaded them yet."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    deadline = time.monotonic() + 30
    while True:
        try:
            found = consumer.committed([TopicPartition(TOPIC, p) for p in (0, 1)], timeout=10)
            break
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
    consumer.close()
    return [part.offset for part in found]


def check_files(peer: str, data: Path) -> None:
    """Kafka's own reader on every file of ours."""
    partitions = [p for p in sorted(data.iterdir()) if p.is_dir() and any(p.glob("*.log"))]
    topic_files = [
        str(file)
        for partition in partitions
        if partition.name.startswith((TOPIC, "__consumer_offsets"))
        for file in sorted(partition.iterdir())
        if file.suffix in (".log", ".index", ".timeindex", ".snapshot") and file.stat().st_size
    ]
    assert len([f for f in topic_files if f.endswith(".index")]) > 4
    assert any(f.endswith(".snapshot") for f in topic_files)
    dump = "org.apache.kafka.tools.DumpLogSegments"
    printed = tool(peer, dump, "--deep-iteration", "--files", ",".join(topic_files))
    assert not [line for line in printed.lower().splitlines() if any(word in line for word in COMPLAINTS)]
    metadata = sorted(str(f) for f in (data / "__cluster_metadata-0").glob("*.log"))
    printed = tool(peer, dump, "--cluster-metadata-decoder", "--files", ",".join(metadata))
    assert "TOPIC_RECORD" in printed
    assert not [line for line in printed.lower().splitlines() if any(word in line for word in COMPLAINTS)]


@pytest.mark.parametrize("crash", [False, True], ids=["clean stop", "kill -9"])
def test_kafka_serves_what_we_wrote(tmp_path: Path, crash: bool) -> None:
    """Records, offsets, timestamps, headers and committed offsets; after a clean stop and after a kill."""
    peer = peer_script()
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        fill(broker.address)
        ours = consume(broker.address, "readers", commit=True)
        offsets = committed(broker.address, "readers")
    finally:
        if crash:
            broker.kill()
        else:
            assert broker.stop() == 0
    if not crash:
        check_files(peer, tmp_path / "data")
    theirs_dir = tmp_path / "theirs"
    shutil.copytree(tmp_path / "data", theirs_dir / "data")
    with kafka_on(peer, theirs_dir) as bootstrap:
        assert committed(bootstrap, "readers") == offsets
        assert consume(bootstrap, "others", commit=False) == ours
