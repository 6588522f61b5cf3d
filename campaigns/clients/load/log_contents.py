"""The contents of a topic's log, as librdkafka's consumer reads them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

READ_S = 180.0
"""Longest time for the reading of one partition."""
ENDS_S = 60.0
NO_LOGIN: Mapping[str, Any] = MappingProxyType({})


class UnreadableError(Exception):
    """A partition could not be read to its end; the message says how far."""


def read_partition(
    bootstrap: str,
    topic: str,
    partition: int,
    isolation: str = "read_uncommitted",
    limit_s: float = READ_S,
    login: Mapping[str, Any] = NO_LOGIN,
) -> Iterator[Message]:
    """Yield every record of a partition, from its start to its end.

    :param login: librdkafka's settings by which the reader logs in
    :raises UnreadableError: the end was not reached in time
    """
    reader = _reader(bootstrap, {"enable.partition.eof": True, "isolation.level": isolation, **login})
    reader.assign([TopicPartition(topic, partition, 0)])
    deadline = time.monotonic() + limit_s
    count, last = 0, ""
    try:
        while time.monotonic() < deadline:
            for message in reader.consume(1000, timeout=0.5):
                error = message.error()
                if error is None:
                    count += 1
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    return
                else:
                    last = f": {error}"
    finally:
        reader.close()
    raise UnreadableError(f"partition {partition}: {count} records could be read, and then not its end{last}")


def log_ends(
    bootstrap: str, topic: str, partitions: int, login: Mapping[str, Any] = NO_LOGIN
) -> dict[tuple[str, int], int]:
    """Return the end of each partition.

    :param login: librdkafka's settings by which the reader logs in
    :raises UnreadableError: a leader doesn't say it in time
    """
    reader = _reader(bootstrap, login)
    try:
        return {
            (topic, at): reader.get_watermark_offsets(TopicPartition(topic, at), timeout=ENDS_S)[1]
            for at in range(partitions)
        }
    except KafkaException as error:
        raise UnreadableError(f"the ends of the partitions: {error}") from error
    finally:
        reader.close()


def _reader(bootstrap: str, config: Mapping[str, Any]) -> Consumer:
    given = {"bootstrap.servers": bootstrap, "group.id": "log-contents", "enable.auto.commit": False}
    return Consumer({**given, "auto.offset.reset": "earliest", "log_level": 0, **config})
