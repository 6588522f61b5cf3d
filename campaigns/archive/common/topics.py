"""Makes and fills topics of the broker under test, and asks for their ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from blumfeld.feeds import RECV_HEADER
from blumfeld.feeds.binance import Message

PATIENCE_S = 60.0
PRODUCER = {
    "enable.idempotence": True,
    "linger.ms": 5,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "message.timeout.ms": 0,
    "log_level": 0,
}


def make_topic(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Makes a topic without retention by time, because the feeds' records are of 2024.

    :raises RuntimeError: the broker refuses it
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    made = admin.create_topics([NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})])[topic]
    try:
        made.result(PATIENCE_S)
    except KafkaException as error:
        raise RuntimeError(f"{topic} can't be made: {error}") from error


def fill(
    bootstrap: str, topic: str, messages: Iterable[Message], *, partition: int = 0, key: bytes = b"BTCUSDT"
) -> int:
    """Sends all messages into one partition, in their order. Returns their number.

    :raises RuntimeError: not all were acknowledged in time
    """
    from confluent_kafka import Producer

    producer = Producer({**PRODUCER, "bootstrap.servers": bootstrap})
    count = 0
    for message in messages:
        count += 1
        send(producer, topic, partition, key, message)
    if left := producer.flush(PATIENCE_S):
        raise RuntimeError(f"{left} messages of {count} were not acknowledged")
    return count


def send(
    producer: Any,
    topic: str,
    partition: int,
    key: bytes,
    message: Message,
    delivered: Callable[[Any, Any], None] | None = None,
) -> None:
    """Puts a message into the producer's queue, stamped with its time of receipt. Waits while the queue is full."""
    stamp_ms = message.received_ns // 1_000_000
    headers: Any = [(RECV_HEADER, b"%d" % message.received_ns)]
    while True:
        try:
            producer.produce(
                topic, message.value, key, partition, delivered, timestamp=stamp_ms, headers=headers
            )
        except BufferError:
            producer.poll(0.05)
            continue
        producer.poll(0)
        return
