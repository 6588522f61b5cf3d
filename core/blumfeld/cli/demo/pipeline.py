"""Feed → producer → broker → consumer group → ledger, with unmodified librdkafka clients."""

from __future__ import annotations

import threading
import time
import zlib
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from blumfeld.cli.demo.feed import FeedMessage
from blumfeld.cli.demo.ledger import Ledger, Progress, TopicError
from blumfeld.feeds import RECV_HEADER

TOPIC = "market-data"
GROUP = "demo-archive"
SETTLE_S = 0.7
"""Time for librdkafka to get a producer id and begin to fetch (about half a second). It would count as broker
latency.
"""
DRAIN_TIMEOUT_S = 60.0
"""After this time without a new record, missing messages count as lost."""


@attrs.define
class Run:
    """Result of a run."""

    ledger: Ledger
    seconds: float
    latencies_s: Sequence[float]
    lag: int
    """Log end minus the group's committed offset, summed over all partitions."""
    trouble: list[str]


class Pipeline:
    """One producer and one consumer group over one topic on one broker."""

    def __init__(
        self, bootstrap: str, partitions: int, rate: float | None, login: Mapping[str, Any] | None = None
    ) -> None:
        self.bootstrap = bootstrap
        self._client = {**(login or {}), "bootstrap.servers": bootstrap}
        self.rate = rate
        """Messages per second; ``None`` for as many as the client can send."""
        self.partitions = partitions
        self.ledger = Ledger(partitions)
        self.progress = Progress()
        self.latencies_s = array("d")
        self.trouble: list[str] = []
        self._sending_done = threading.Event()
        self._assigned = threading.Event()
        self._failed = threading.Event()

    def create_topic(self) -> None:
        """Create the topic with unlimited retention, because records carry their old receive times.

        :raises TopicError: the topic exists already, or the broker refuses it
        """
        admin = AdminClient(self._client)
        topic = NewTopic(TOPIC, self.partitions, 1, config={"retention.ms": "-1"})
        try:
            admin.create_topics([topic])[TOPIC].result(timeout=30)
        except KafkaException as error:
            problem = error.args[0]
            if problem.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicError(
                    f"the topic {TOPIC} exists at {self.bootstrap}, and the demo checks a topic from its first record "
                    "on: delete it, or leave out --bootstrap"
                ) from error
            raise TopicError(
                f"the topic {TOPIC} can't be made at {self.bootstrap}: {problem.str()}"
            ) from error

    def run(self, feed: Iterable[FeedMessage], halfway: Callable[[], None] | None, count: int) -> Run:
        """Send the feed and receive it; ``halfway()`` is called after half of ``count`` messages were sent."""
        producer = self._producer()
        consumer_thread = threading.Thread(target=self._consume, name="demo-consumer", daemon=True)
        consumer_thread.start()
        if not self._assigned.wait(30):
            self.trouble.append("the consumer group got no assignment within 30 s")
            self._failed.set()
        time.sleep(SETTLE_S)
        started = time.perf_counter()
        try:
            self._produce(producer, feed, halfway, count // 2)
        finally:
            self._sending_done.set()
            consumer_thread.join()
        seconds = time.perf_counter() - started
        return Run(self.ledger, seconds, self.latencies_s, self._lag(), self.trouble)

    def _producer(self) -> Producer:
        return Producer(
            {
                **self._client,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
            }
        )

    def _produce(
        self,
        producer: Producer,
        feed: Iterable[FeedMessage],
        halfway: Callable[[], None] | None,
        half: int,
    ) -> None:
        pace = _Pace(self.rate)
        for number, message in enumerate(feed):
            if self._failed.is_set():
                break
            if number == half and halfway is not None:
                halfway()
            pace.wait(producer)
            self._send(producer, message)
        left = producer.flush(DRAIN_TIMEOUT_S)
        if left:
            self.trouble.append(f"{left} messages were still unacknowledged after {DRAIN_TIMEOUT_S:.0f} s")

    def _send(self, producer: Producer, message: FeedMessage) -> None:
        partition = zlib.crc32(message.key) % self.partitions
        self.ledger.sent(partition, message.value, time.perf_counter())
        self.progress.sent += 1
        while True:
            try:
                producer.produce(
                    TOPIC,
                    value=message.value,
                    key=message.key,
                    partition=partition,
                    timestamp=message.received_ns // 1_000_000,
                    headers=[(RECV_HEADER, b"%d" % message.received_ns)],
                    on_delivery=self._delivered,
                )
                break
            except BufferError:
                producer.poll(0.01)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        if error is not None:
            self.ledger.failed(partition or 0, str(error))
        elif partition is not None:
            self.ledger.acknowledged(partition)

    def _consume(self) -> None:
        consumer = Consumer(self._consumer_config())
        consumer.subscribe([TOPIC], on_assign=lambda *_: self._assigned.set())
        try:
            quiet_since = time.monotonic()
            while not self._failed.is_set():
                first = consumer.poll(0.05)
                batch = [first, *consumer.consume(500, timeout=0)] if first is not None else []
                now = time.perf_counter()
                fresh = [self._received(message, now) for message in batch]
                if any(fresh):
                    quiet_since = time.monotonic()
                if self._sending_done.is_set():
                    if self.ledger.count_received >= self.ledger.count_sent:
                        break
                    if time.monotonic() - quiet_since > DRAIN_TIMEOUT_S:
                        self.trouble.append(f"nothing arrived for {DRAIN_TIMEOUT_S:.0f} s")
                        break
            self._commit(consumer)
        finally:
            consumer.close()

    def _consumer_config(self) -> dict[str, Any]:
        return {
            **self._client,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": True,
            "auto.commit.interval.ms": 500,
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }

    def _received(self, message: Message, now_s: float) -> bool:
        error = message.error()
        if error is not None:
            if error.fatal():
                self.trouble.append(f"the consumer failed: {error}")
                self._failed.set()
            return False
        partition, offset, value = message.partition(), message.offset(), message.value()
        if partition is None or offset is None:
            return False
        latency = self.ledger.received(partition, offset, bytes(value or b""), now_s)
        if latency is not None:
            self.latencies_s.append(latency)
            self.progress.received += 1
        return True

    def _commit(self, consumer: Consumer) -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:  # everything is committed already
                self.trouble.append(f"the last commit failed: {error}")

    def _lag(self) -> int:
        reader = Consumer({**self._client, "group.id": GROUP})
        try:
            parts = [TopicPartition(TOPIC, p) for p in range(self.partitions)]
            committed = reader.committed(parts, timeout=20)
            ends = [reader.get_watermark_offsets(p, timeout=20)[1] for p in parts]
        except KafkaException as error:
            self.trouble.append(f"the lag could not be read: {error}")
            return -1
        finally:
            reader.close()
        return sum(end - max(0, done.offset) for end, done in zip(ends, committed, strict=True))


class _Pace:
    """Sends at a fixed rate by intended send times. After a stall it catches up."""

    def __init__(self, rate: float | None) -> None:
        self.interval_s = 1.0 / rate if rate else 0.0
        self.next_s = time.perf_counter()

    def wait(self, producer: Producer) -> None:
        """Serve the producer's callbacks until the next message is due."""
        producer.poll(0)
        if not self.interval_s:
            return
        ahead = self.next_s - time.perf_counter()
        if ahead > 0.001:
            producer.poll(ahead)
        self.next_s += self.interval_s
