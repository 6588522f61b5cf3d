"""The cleaner at work in a real broker, with real clients."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

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
    messages: list[tuple[int, bytes, bytes]] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            messages.append((message.offset() or 0, message.key() or b"", message.value() or b""))
            if message.offset() == end - 1:
                break
    consumer.close()
    return messages


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "in time"
        time.sleep(0.02)


def rounds(broker: EmbeddedBroker) -> float:
    gauges = broker.call(lambda: {metric.name: metric.read() for metric in broker.node.broker.gauges()})
    assert gauges["blumfeld_log_cleaner_uncleanable_partitions"] == 0
    return float(gauges["blumfeld_log_cleaner_passes_total"])


@pytest.mark.parametrize("network", NETWORKS)
def test_a_consumer_sees_the_newest_values_while_producing_goes_on(network: str) -> None:
    with EmbeddedBroker(
        storage="storage_local", config=CONFIG, manifest={"network": {"plugin": network}}
    ) as broker:
        create(broker, "state")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
        for start in range(0, 60, 20):
            before = rounds(broker)
            produce(producer, "state", range(start, start + 20))
            wait_until(lambda before=before: rounds(broker) > before)  # type: ignore[misc]
        messages = consume(broker, "state")
        offsets = [offset for offset, _, _ in messages]
        assert offsets == sorted(set(offsets))
        assert len(messages) < 30 * KEYS
        newest = {key: value for _, key, value in messages}
        assert newest == {b"%d" % key: b"59" * 20 for key in range(KEYS)}
