"""Reads a range of one partition through librdkafka: with all its settings, and with one object for each message.

A range ends at its end offset even if its last offsets hold transaction markers or aborted records, or were compacted
away. So the reader goes by positions and by the consumer's end-of-partition event, never by the number of rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from blumfeld_sink_spark import stamps
from blumfeld_sink_spark.errors import ArchiveError, AwayError
from blumfeld_sink_spark.fetching.batches import BATCH_ROWS
from blumfeld_sink_spark.range_counter import Skips
from blumfeld_sink_spark.range_counts import HIDDEN, LOST
from blumfeld_sink_spark.records import OffsetRange
from blumfeld_sink_spark.rows import HEADERS, RAW_ROWS, RAW_ROWS_WITH_HEADERS
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.topics.client import client_config, passing, patience_s
from blumfeld_sink_spark.spark.topics.lost import first_left

WAIT_S = 0.1
"""Time that one call gathers messages. A range that ends in markers waits for it once."""

_BIG_FETCHES = {
    "fetch.max.bytes": 52_428_800,
    "max.partition.fetch.bytes": 8_388_608,
    "queued.max.messages.kbytes": 65_536,
    "queued.min.messages": 50_000,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 5,  # librdkafka's default stops fetching for a second each time the queue is full
    "fetch.error.backoff.ms": 100,
    "socket.receive.buffer.bytes": 1_048_576,
    "check.crcs": True,
    "reconnect.backoff.max.ms": 1_000,
}


def consume_range(
    settings: ArchiveSettings, wanted: OffsetRange, skips: Skips | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields batches of raw rows in the order of the offsets, until the range's end.

    librdkafka passes control records, aborted records and compacted offsets in silence; ``skips`` gets them as hidden.
    Where the topic has lost the start of the range, that is an error; without ``fail_on_data_loss`` it is skipped.

    :raises AwayError: no message came within ``default.api.timeout.ms``
    :raises ArchiveError: records are lost, or the broker refuses
    """
    from confluent_kafka import TopicPartition

    consumer = _consumer(msgspec.json.encode(_config(settings)))
    try:
        consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start)])
        yield from _Range(settings, wanted, consumer, Skips() if skips is None else skips).batches()
    finally:
        consumer.unassign()


@lru_cache(maxsize=1)
def _consumer(config: bytes) -> Any:
    """Returns this process's consumer. Spark reuses its workers, so the connections stay open from task to task."""
    from confluent_kafka import Consumer

    return Consumer(msgspec.json.decode(config))


def _config(settings: ArchiveSettings) -> dict[str, Any]:
    return {
        **_BIG_FETCHES,
        **client_config(settings),
        "group.id": f"blumfeld-archive-{settings.name}",  # never joined: no offset is committed
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": settings.isolation,
    }


class _Range:
    def __init__(self, settings: ArchiveSettings, wanted: OffsetRange, consumer: Any, skips: Skips) -> None:
        self._skips = skips
        self._settings = settings
        self._wanted = wanted
        self._consumer = consumer
        self._next = wanted.start
        self._name = f"{wanted.topic}-{wanted.partition}"

    def batches(self) -> Iterator[pa.RecordBatch]:
        patience = patience_s(self._settings)
        heard = time.monotonic()
        while self._next < self._wanted.end:
            before = self._next
            messages = self._consumer.consume(min(BATCH_ROWS, self._wanted.end - self._next), WAIT_S)
            kept = [message for message in messages if self._keep(message)]
            if kept:
                yield to_batch(kept, with_headers=self._settings.with_headers)
            now = time.monotonic()
            if self._next > before:
                heard = now
            elif now - heard > patience:
                raise AwayError(
                    f"{self._settings.bootstrap} has sent no record of {self._name} from offset {self._next} on for "
                    f"{patience:g} s, and the range ends at {self._wanted.end}. Is the broker up?"
                )

    def _keep(self, message: Any) -> bool:
        error = message.error()
        if error is not None:
            self._event(error, message)
            return False
        self._skip(HIDDEN, message.offset())
        self._next = message.offset() + 1
        return bool(self._next <= self._wanted.end)

    def _skip(self, reason: str, end: int) -> None:
        """Goes on at ``end`` and notes the offsets before it as skipped."""
        self._skips.add(reason, self._next, end)
        self._next = max(self._next, end)

    def _event(self, error: Any, message: Any) -> None:
        from confluent_kafka import KafkaError, TopicPartition

        if error.code() == KafkaError._PARTITION_EOF:
            self._skip(HIDDEN, message.offset())
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            first = first_left(self._settings, self._wanted, self._next)
            self._skip(LOST, first)
            if first < self._wanted.end:
                self._consumer.assign([TopicPartition(self._wanted.topic, self._wanted.partition, first)])
        elif (error.code() > 0 and not passing(error)) or error.code() in (
            KafkaError._UNKNOWN_PARTITION,
            KafkaError._AUTHENTICATION,
            KafkaError._BAD_MSG,
        ):
            raise ArchiveError(f"{self._name} at offset {self._next}: {error.str()}")


def to_batch(messages: list[Any], *, with_headers: bool) -> pa.RecordBatch:
    """Returns messages of one partition as raw rows. A record without a timestamp has -1 ms, as in Spark's source."""
    times = [message.timestamp() for message in messages]
    micros = stamps.record_us(np.array([time[1] for time in times], np.int64))
    count = len(messages)
    columns = [
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        pa.repeat(pa.scalar(messages[0].topic(), pa.string()), count),
        pa.repeat(pa.scalar(messages[0].partition(), pa.int32()), count),
        pa.array([message.offset() for message in messages], pa.int64()),
        pa.array(micros).cast(RAW_ROWS.field("timestamp").type),
        pa.array([time[0] - 1 for time in times], pa.int32()),
    ]
    if with_headers:
        columns.append(pa.array([_headers(message.headers()) for message in messages], HEADERS))
    return pa.RecordBatch.from_arrays(columns, schema=RAW_ROWS_WITH_HEADERS if with_headers else RAW_ROWS)


def _headers(headers: list[tuple[str, bytes]] | None) -> list[dict[str, Any]] | None:
    return [{"key": key, "value": value} for key, value in headers] if headers else None
