"""The contents of a topic, read by librdkafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import confluent_kafka

from blumfeld_sink_spark.reading.producing.load import Record


def read_topic(bootstrap: str, topic: str, ends: Mapping[int, int]) -> list[Record]:
    """Returns the records of each partition up to an offset, partition after partition.

    :raises AssertionError: offsets aren't dense from 0, or the broker doesn't give them within a minute
    """
    config = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**config, "auto.offset.reset": "earliest"})
    found: dict[int, list[Record]] = {partition: [] for partition in sorted(ends)}
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in found])
        while missing := sum(end - len(found[partition]) for partition, end in ends.items()):
            messages: list[Any] = consumer.consume(min(missing, 5000), timeout=60)
            assert messages, f"only {[len(part) for part in found.values()]} of {ends}"
            for message in messages:
                assert message.error() is None, message.error()
                part = found[message.partition()]
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
    return [record for part in found.values() for record in part]
