"""Load on a broker that is killed: an idempotent producer and a group that commits, both unmodified librdkafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from campaigns.crash.records import RecordLedger

TOPIC = "crash-load"
GROUP = "crash-group"
PARTITIONS = 4
WAIT_S = 60.0
COMMIT_EVERY_S = 0.1
_QUICK: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "log_level": 0,
}


class Load:
    """Produces at a rate and consumes, in two threads, until :meth:`finish`; the ledger keeps what was promised."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        self.ledger = RecordLedger(PARTITIONS)
        self.sent = [0] * PARTITIONS
        self._consumed = [0] * PARTITIONS
        self._rate = rate
        self._config = {"bootstrap.servers": bootstrap, **_QUICK}
        self._done = threading.Event()
        self._quiet = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"crash-{work.__name__}", daemon=True)
            for work in (self._produce, self._consume)
        ]

    def start(self) -> None:
        """Make the topic and begin; the group has committed once when this returns."""
        admin = AdminClient(self._config)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(timeout=WAIT_S)
        for thread in self._threads:
            thread.start()
        deadline = time.monotonic() + WAIT_S
        while not self.ledger.commits and not self.ledger.wrong and time.monotonic() < deadline:
            time.sleep(0.01)

    def finish(self) -> None:
        """Send nothing new; wait until everything is acknowledged, consumed and committed."""
        self._done.set()
        self._threads[0].join(2 * WAIT_S)
        self._quiet.set()
        self._threads[1].join(2 * WAIT_S)
        if any(thread.is_alive() for thread in self._threads):
            self.ledger.wrong.append("the clients did not come to an end")

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except Exception as error:
            self.ledger.wrong.append(f"{work.__name__[1:]}: {error!r}")

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self.ledger.wrong.append(f"a client failed: {error}")

    def _produce(self) -> None:
        producer = Producer(
            {
                **self._config,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": int(WAIT_S * 1000),
                "error_cb": self._failed,
            }
        )
        started = time.monotonic()
        while not self._done.is_set():
            due = int((time.monotonic() - started) * self._rate) - sum(self.sent)
            for _ in range(min(due, 500)):
                self._send(producer)
            producer.poll(0.002)
        if left := producer.flush(WAIT_S):
            self.ledger.wrong.append(f"{left} messages were not acknowledged within {WAIT_S:.0f} s")

    def _send(self, producer: Producer) -> None:
        partition = sum(self.sent) % PARTITIONS
        number = self.sent[partition]

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.ledger.wrong.append(f"partition {partition}: message {number} was given up: {error}")
            else:
                offset = message.offset()
                self.ledger.ack(partition, number, -1 if offset is None else offset)

        try:
            producer.produce(
                TOPIC, b"%d %0100d" % (number, number), partition=partition, on_delivery=delivered
            )
        except BufferError:
            producer.poll(0.01)  # it is full while the broker is away
            return
        self.sent[partition] += 1

    def _consume(self) -> None:
        consumer = Consumer(
            {
                **self._config,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
                "fetch.wait.max.ms": 50,
                "on_commit": self._committed,
                "error_cb": self._failed,
            }
        )
        consumer.subscribe([TOPIC])
        commit_at = deadline = time.monotonic()
        while not (self._quiet.is_set() and self.ledger.committed >= self.sent):
            for message in consumer.consume(500, timeout=0.05):
                partition, offset = message.partition(), message.offset()
                if message.error() is None and partition is not None and offset is not None:
                    self._consumed[partition] = max(self._consumed[partition], offset + 1)
            now = time.monotonic()
            if now >= commit_at:
                commit_at = now + COMMIT_EVERY_S
                self._commit(consumer)
            if not self._quiet.is_set():
                deadline = now + WAIT_S
            elif now > deadline:
                self.ledger.wrong.append(
                    f"the group stays at {self.ledger.committed}, of {self.sent} sent messages"
                )
                break
        consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        offsets = [TopicPartition(TOPIC, at, offset) for at, offset in enumerate(self._consumed) if offset]
        if offsets:
            try:
                consumer.commit(offsets=offsets, asynchronous=True)
            except KafkaException:
                return  # no assignment yet, or no broker: the next one comes soon

    def _committed(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        if error is None:
            for part in offsets:
                if part.error is None:
                    self.ledger.commit(part.partition, part.offset)

    # What the broker says

    def check_committed(self) -> None:
        """Committed offsets, after a restart: none is behind what was promised, or beyond the log."""
        promised = list(self.ledger.committed)
        reader = Consumer({**self._config, "group.id": GROUP})
        try:
            parts = [TopicPartition(TOPIC, at) for at in range(PARTITIONS)]
            committed = [part.offset for part in reader.committed(parts, timeout=WAIT_S)]
            ends = [reader.get_watermark_offsets(part, timeout=WAIT_S)[1] for part in parts]
        finally:
            reader.close()
        self.ledger.check_committed(promised, [max(-1, offset) for offset in committed], ends)

    def read(self, partition: int) -> Iterator[tuple[int, int]]:
        """(offset, number) of every record of a partition."""
        reader = Consumer(
            {
                **self._config,
                "group.id": "crash-audit",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        reader.assign([TopicPartition(TOPIC, partition, 0)])
        deadline = time.monotonic() + WAIT_S
        try:
            while time.monotonic() < deadline:
                for message in reader.consume(1000, timeout=0.5):
                    error, offset = message.error(), message.offset()
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:
                        return
                    if error is None and offset is not None:
                        yield offset, int((message.value() or b"").split()[0])
            self.ledger.wrong.append(f"partition {partition}: could not be read within {WAIT_S:.0f} s")
        finally:
            reader.close()
