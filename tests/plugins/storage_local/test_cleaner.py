"""The cleaner at work in a real broker, with real clients: compacted topics, and the groups' own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from blumfeld.testing import EmbeddedBroker
from tests.plugins.net_uring.ring_tools import needs_ring

KEYS = 50
CONFIG: dict[str, Any] = {"log.cleaner.backoff.ms": 100}
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.05",
}
NETWORKS = ["net_asyncio", pytest.param("net_uring", marks=needs_ring)]


def make_broker(network: str = "net_asyncio", data_dir: str | None = None) -> EmbeddedBroker:
    manifest = {"network": {"plugin": network}}
    return EmbeddedBroker(storage="storage_local", config=CONFIG, manifest=manifest, data_dir=data_dir)


def create(broker: EmbeddedBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1, config=COMPACTED)])[topic].result(10)


def produce(producer: Producer, topic: str, versions: range) -> None:
    """Every key once for each version, in batches of their own."""
    errors: list[object] = []
    for version in versions:
        for key in range(KEYS):
            value = b"%d" % version * 20
            producer.produce(topic, value, key=b"%d" % key, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(10) == 0
    assert errors == [None] * (KEYS * len(versions))


def consume(broker: EmbeddedBroker, topic: str) -> list[tuple[int, bytes, bytes]]:
    """(offset, key, value) of all that is there now."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "all", "enable.auto.commit": False}
    consumer = Consumer(settings)
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes, bytes]] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append((message.offset() or 0, message.key() or b"", message.value() or b""))
            if message.offset() == end - 1:
                break
    consumer.close()
    return found


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "in time"
        time.sleep(0.02)


def rounds(broker: EmbeddedBroker) -> float:
    found = broker.call(lambda: {metric.name: metric.read() for metric in broker.node.broker.gauges()})
    assert found["blumfeld_log_cleaner_uncleanable_partitions"] == 0
    return float(found["blumfeld_log_cleaner_passes_total"])


def log_of(broker: EmbeddedBroker, topic: str) -> Any:
    partitions: Any = cast("Any", broker.node.broker).partitions
    return partitions.find(topic, 0).log


@pytest.mark.parametrize("network", NETWORKS)
def test_a_consumer_sees_the_newest_values_while_producing_goes_on(network: str) -> None:
    with make_broker(network) as broker:
        create(broker, "state")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
        for start in range(0, 60, 20):
            before = rounds(broker)
            produce(producer, "state", range(start, start + 20))
            wait_until(lambda before=before: rounds(broker) > before)  # type: ignore[misc]
        found = consume(broker, "state")
        offsets = [offset for offset, _, _ in found]
        assert offsets == sorted(set(offsets))
        assert len(found) < 30 * KEYS
        newest = {key: value for _, key, value in found}
        assert newest == {b"%d" % key: b"59" * 20 for key in range(KEYS)}


def test_a_group_finds_its_offsets_in_a_compacted_topic(tmp_path: Path) -> None:
    """``__consumer_offsets`` is compacted too; the coordinator's replay needs only the newest of each key."""
    with make_broker(data_dir=str(tmp_path)) as broker:
        create(broker, "t")
        consumers = {
            group: Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
            for group in ("one", "two")
        }
        for offset in range(1, 101):
            for number, consumer in enumerate(consumers.values()):
                at = TopicPartition("t", 0, offset + number)
                consumer.commit(offsets=[at], asynchronous=False)
            if offset % 25 == 0:
                broker.call(log_of(broker, "__consumer_offsets").roll)
        wait_until(lambda: broker.call(lambda: log_of(broker, "__consumer_offsets").cleaned_end_offset) > 100)
        for consumer in consumers.values():
            consumer.close()
    with make_broker(data_dir=str(tmp_path)) as broker:
        for number, group in enumerate(("one", "two")):
            consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
            committed = consumer.committed([TopicPartition("t", 0)], timeout=20)
            assert committed[0].offset == 100 + number
            consumer.close()
