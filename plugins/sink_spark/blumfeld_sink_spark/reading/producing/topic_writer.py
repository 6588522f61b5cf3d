"""Writes to a topic through librdkafka. The topic is created if it is missing, and every record is acknowledged."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.logins import for_librdkafka, not_let_in
from blumfeld_sink_spark.reading.producing.pace import LONGEST_WAIT_S, Pace

ANSWER_S = 10.0
FLUSH_S = 120.0
KEEP_FOREVER = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}
"""Config of a new topic. Records keep their original timestamps, and retention goes by them: Kafka's default of a week
would delete last year's data at once."""

Headers = Sequence[tuple[str, bytes | None]]


def _library() -> Any:
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise ArchiveError(
            "confluent-kafka isn't installed; pip install blumfeld-archive brings it"
        ) from error
    return confluent_kafka


def _client_config(bootstrap: str, kafka: Mapping[str, str]) -> dict[str, Any]:
    # Level 0: librdkafka prints each failed connection otherwise, and a failure reaches us as an error anyway.
    return {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "client.id": "blumfeld-archive",
        **for_librdkafka(kafka),
    }


class Topic:
    """A topic of a running broker, through an admin client.

    :param answer_s: time that the broker has for an answer
    :raises ArchiveError: (every method) no broker answers at ``bootstrap``, or it refuses
    """

    def __init__(
        self,
        bootstrap: str,
        name: str,
        kafka: Mapping[str, str] | None = None,
        *,
        answer_s: float = ANSWER_S,
    ) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self._answer_s = answer_s
        self._kafka = dict(kafka or {})
        self._lib = _library()
        self._admin = self._lib.admin.AdminClient(_client_config(bootstrap, self._kafka))

    def partitions(self) -> int:
        """Returns the number of partitions; 0 if there is no such topic."""
        try:
            known = self._admin.list_topics(
                timeout=self._answer_s
            ).topics  # all topics: a request that names one may create it (auto.create.topics.enable)
        except self._lib.KafkaException as error:
            reason = not_let_in(self.bootstrap, self._kafka)
            told = reason or f"no broker answers at {self.bootstrap} ({error.args[0].str()})"
            raise ArchiveError(told) from error
        return len(known[self.name].partitions) if self.name in known else 0

    def make(self, partitions: int, config: Mapping[str, str] = KEEP_FOREVER) -> None:
        """Creates the topic and waits until the broker lists it."""
        new = self._lib.admin.NewTopic(self.name, num_partitions=partitions, config=dict(config))
        try:
            self._admin.create_topics([new])[self.name].result(timeout=self._answer_s)
        except self._lib.KafkaException as error:
            raise ArchiveError(f"topic {self.name} can't be created: {error.args[0].str()}") from error
        deadline = time.monotonic() + self._answer_s
        while self.partitions() < partitions:
            if time.monotonic() > deadline:
                raise ArchiveError(
                    f"topic {self.name} was created, but {self.bootstrap} doesn't list it; try again"
                )
            time.sleep(0.05)

    def ends(self) -> dict[int, tuple[int, int]]:
        """Returns (log start offset, log end offset) by partition."""
        count = self.partitions()
        spec, lib = self._lib.admin.OffsetSpec, self._lib
        places = [lib.TopicPartition(self.name, partition) for partition in range(count)]
        ends = []
        for which in (spec.earliest(), spec.latest()):
            futures = self._admin.list_offsets(dict.fromkeys(places, which), request_timeout=self._answer_s)
            try:
                ends.append({place.partition: future.result().offset for place, future in futures.items()})
            except lib.KafkaException as error:
                raise ArchiveError(f"topic {self.name}: {error.args[0].str()}") from error
        return {partition: (ends[0][partition], ends[1][partition]) for partition in range(count)}

    def writer(self, compression: str = "none", pace: Pace | None = None) -> TopicWriter:
        """Returns a producer for the topic."""
        config = {
            **_client_config(self.bootstrap, self._kafka),
            "enable.idempotence": True,
            "compression.type": compression,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 262_144,
            "delivery.report.only.error": True,  # a callback for each record would halve the rate
            "delivery.timeout.ms": int(FLUSH_S * 1000),
        }
        try:
            producer = self._lib.Producer(config)
        except self._lib.KafkaException as error:
            raise ArchiveError(f"client configuration: {error.args[0].str()}") from error
        return TopicWriter(producer, self.name, pace or Pace())


class TopicWriter:
    """Sends records with an idempotent producer: each partition keeps their order, and a retry duplicates none."""

    def __init__(self, producer: Any, topic: str, pace: Pace) -> None:
        self._producer = producer
        self._topic = topic
        self._pace = pace
        self._failed: str = ""
        self.records = 0
        self.bytes = 0

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp_ms: int,
        partition: int = -1,
        headers: Headers | None = None,
    ) -> None:
        """Waits until the record is due and hands it to the producer.

        :param partition: -1 lets the key choose
        :raises ArchiveError: an earlier record was refused
        """
        self._wait(timestamp_ms)
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    key,
                    partition,
                    on_delivery=self._delivered,
                    timestamp=timestamp_ms,
                    headers=headers or None,
                )
                break
            except BufferError:  # the queue is full
                self._producer.poll(LONGEST_WAIT_S)
                self._check()
        self.records += 1
        self.bytes += len(value or b"") + len(key or b"")
        self._pace.sent()
        if self.records % 1000 == 0:
            self._producer.poll(0)
            self._check()

    def flush(self) -> None:
        """Waits until every record is acknowledged.

        :raises ArchiveError: a record was refused, or some weren't acknowledged within ``FLUSH_S``
        """
        left = self._producer.flush(FLUSH_S)
        self._check()
        if left:
            raise ArchiveError(
                f"{left} of {self.records} records to {self._topic} weren't acknowledged in {FLUSH_S:g} s; the topic "
                "may hold some of them. Is the broker up?"
            )

    def _wait(self, timestamp_ms: int) -> None:
        if self._pace.is_flat_out:
            return
        while (left := self._pace.wait_s(timestamp_ms)) > 0:
            self._producer.poll(min(left, LONGEST_WAIT_S))
            self._check()

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None and not self._failed:
            self._failed = error.str()

    def _check(self) -> None:
        if self._failed:
            raise ArchiveError(f"a record to {self._topic} was refused: {self._failed}")
