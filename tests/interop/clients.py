"""What the tests ask of a running cluster, by librdkafka. Each call has clients of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

WAIT_S = 60.0


def wait_for(condition: Callable[[], bool], why: Callable[[], str]) -> None:
    """Wait until the condition holds. ``why`` says what is absent where it doesn't come to that."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, why()
        time.sleep(0.2)


def make_topic(
    addresses: str, name: str, replicas: Sequence[Sequence[int]], config: Mapping[str, str]
) -> None:
    """Create a topic with these replicas by partition, the preferred leader first."""
    topic = NewTopic(
        name, len(replicas), replica_assignment=[list(each) for each in replicas], config=dict(config)
    )
    admin = AdminClient({"bootstrap.servers": addresses})  # its answers come only while it lives
    admin.create_topics([topic])[name].result(timeout=WAIT_S)


def produce(
    addresses: str, topic: str, values: Sequence[str], keys: Sequence[str | None] = (), **config: str | int
) -> None:
    """Write records to partition 0; all are acknowledged by the replicas in sync when this returns."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": addresses, "enable.idempotence": True, **config})
    for value, key in zip(values, keys or [None] * len(values), strict=True):
        producer.produce(topic, value, key, partition=0, on_delivery=delivered)
    assert producer.flush(WAIT_S) == 0
    assert not failed


def read(addresses: str, topic: str, isolation: str = "read_committed") -> list[tuple[int, str, str]]:
    """Return offset, key and value of each record of partition 0, as its leader gives them."""
    config: dict[str, str | bool] = {
        "bootstrap.servers": addresses,
        "group.id": "reader",
        "isolation.level": isolation,
    }
    reader = Consumer({**config, "enable.partition.eof": True, "enable.auto.commit": False})
    reader.assign([TopicPartition(topic, 0, 0)])
    messages: list[tuple[int, str, str]] = []
    deadline = time.monotonic() + WAIT_S
    try:
        while time.monotonic() < deadline:
            for message in reader.consume(500, timeout=0.5):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return messages
                if error is None:
                    messages.append((message.offset() or 0, _text(message.key()), _text(message.value())))
    finally:
        reader.close()
    raise AssertionError(f"{topic} could not be read to its end in {WAIT_S:g} s: {len(messages)} records")


def values(addresses: str, topic: str) -> list[str]:
    """Return the value of each committed record of partition 0."""
    return [value for _, _, value in read(addresses, topic)]


def _text(data: bytes | str | None) -> str:
    return data.decode() if isinstance(data, bytes) else data or ""


def committed(addresses: str, group: str, topic: str) -> int | None:
    """Return the group's committed offset of partition 0; negative if there is none."""
    asking = Consumer({"bootstrap.servers": addresses, "group.id": group})
    try:
        return asking.committed([TopicPartition(topic, 0)], timeout=WAIT_S)[0].offset
    finally:
        asking.close()


def commit(member: Consumer, offsets: Sequence[TopicPartition] = ()) -> None:
    """Commit these offsets, or what was read. A coordinator that moved a moment ago is asked again."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            if offsets:
                member.commit(offsets=list(offsets), asynchronous=False)
            else:
                member.commit(asynchronous=False)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def take(member: Consumer, count: int) -> list[Message]:
    """Return the next records of a member."""
    messages: list[Message] = []
    deadline = time.monotonic() + WAIT_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} records came"
        messages += [
            each for each in member.consume(count - len(messages), timeout=0.5) if each.error() is None
        ]
    return messages
