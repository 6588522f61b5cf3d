"""Topics, messages and settings for the tests of the Spark driver."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from blumfeld_sink_spark.reading.producing.load import Record
from blumfeld_sink_spark.records import OffsetRange
from blumfeld_sink_spark.rows import RAW_ROWS, RAW_ROWS_WITH_HEADERS
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.topics.client import Topics
from blumfeld_sink_spark.spark.topics.fetch import read_range

TIME_MS = 1_723_161_256_299
"""Timestamp of the first message of each ``produce``."""


def make_topic(
    bootstrap: str,
    name: str,
    partitions: int = 1,
    root: Path | None = None,
    config: Mapping[str, str] | None = None,
    **settings: Any,
) -> ArchiveSettings:
    """Makes a topic that keeps records with old timestamps, and returns settings of an archive of it.

    :param config: further configuration of the topic
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, partitions, 1, config={"retention.ms": "-1", **(config or {})})
    for future in admin.create_topics([topic]).values():
        future.result(30)
    given = {
        "kafka": {"default.api.timeout.ms": "3000"},
        "root": str(root or "unused"),
        "master": "local[2]",
        "spark": {"spark.driver.memory": "1g"},
        **settings,
    }
    return ArchiveSettings(bootstrap=bootstrap, topics=(name,), **given)


def delete_records(bootstrap: str, topic: str, before: int) -> None:
    """Deletes the records of partition 0 before an offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result(10)


def produce(bootstrap: str, topic: str, count: int, transactions: str = "", partition: int = 0) -> None:
    """Sends ``count`` messages. With transactions (``c`` commits, ``a`` aborts) each has so many of them."""
    config: dict[str, str | int] = {"bootstrap.servers": bootstrap, "linger.ms": 0}
    producer = Producer(config | ({"transactional.id": topic} if transactions else {}))
    if transactions:
        producer.init_transactions(30)
    for end in transactions or "-":
        if transactions:
            producer.begin_transaction()
        for number in range(count):
            producer.produce(
                topic,
                f"{end}{number}",
                key="k",
                timestamp=TIME_MS + number,
                partition=partition,
                headers={"h": b"1"},
            )
        assert producer.flush(30) == 0
        if end == "c":
            producer.commit_transaction(30)
        elif end == "a":
            producer.abort_transaction(30)


def send(bootstrap: str, topic: str, values: Sequence[bytes]) -> None:
    """Sends these messages to partition 0, all with one timestamp."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, timestamp=TIME_MS, partition=0)
    assert producer.flush(30) == 0


def committed_end(settings: ArchiveSettings, wanted: int) -> int:
    """Waits, a minute at most, until the end of partition 0 for readers of committed records is ``wanted``, and returns
    the end. Kafka writes a transaction's marker some time after it has answered the producer.
    """
    topics, place = Topics(settings), (settings.topics[0], 0)
    until = time.monotonic() + 60
    while (end := topics.latest([place])[place]) != wanted and time.monotonic() < until:
        time.sleep(0.05)
    return end


def rows_of(settings: ArchiveSettings, start: int, end: int) -> pa.Table:
    """Reads a range of partition 0 as a task does."""
    batches = list(read_range(settings, OffsetRange(settings.topics[0], 0, start, end)))
    return pa.Table.from_batches(batches, RAW_ROWS_WITH_HEADERS if settings.with_headers else RAW_ROWS)


def read_topic(bootstrap: str, topic: str, ends: Mapping[int, int]) -> list[Record]:
    """Returns the records of each partition up to an offset, partition after partition.

    :raises AssertionError: offsets aren't dense from 0, or the broker doesn't give them within a minute
    """
    config = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer({**config, "auto.offset.reset": "earliest"})
    records_by_partition: dict[int, list[Record]] = {partition: [] for partition in sorted(ends)}
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in records_by_partition])
        while missing := sum(end - len(records_by_partition[partition]) for partition, end in ends.items()):
            messages: list[Any] = consumer.consume(min(missing, 5000), timeout=60)
            assert messages, f"only {[len(part) for part in records_by_partition.values()]} of {ends}"
            for message in messages:
                assert message.error() is None, message.error()
                part = records_by_partition[message.partition()]
                assert message.offset() == len(part)
                part.append(
                    Record(
                        value=message.value(),
                        key=message.key(),
                        timestamp_ms=message.timestamp()[1],
                        partition=message.partition(),
                        headers=message.headers(),
                        stream="",
                    )
                )
    finally:
        consumer.close()
    return [record for part in records_by_partition.values() for record in part]
