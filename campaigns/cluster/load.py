"""The load on the cluster: an idempotent producer of librdkafka with acks=all, and the reader of all records."""

from __future__ import annotations

import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from campaigns.crash.records import RecordLedger

TOPIC = "cluster-faults"
WAIT_S = 60.0
FINISH_S = 120.0
"""Longest wait for the acknowledgements that are open when the last fault is over."""
SEND_AT_ONCE = 500
CLIENT: Mapping[str, Any] = {
    "socket.timeout.ms": 2000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "log_level": 0,
}
"""What differs from librdkafka's defaults. The cluster is measured, not the patience of its client: by default
librdkafka waits 60 s for a paused leader before it asks the others, and up to 10 s before it connects again.
"""


class Load:
    """Produces numbered records at a steady rate in a thread, over all partitions in turn, until :meth:`finish`."""

    def __init__(
        self, bootstrap: str, partitions: int, rate_per_s: float, client: Mapping[str, Any] = CLIENT
    ) -> None:
        self.ledger = RecordLedger(partitions)
        self.ack_times = [array("d") for _ in range(partitions)]
        """Instants of all acknowledgements (time.monotonic), by partition."""
        self.sent = [0] * partitions
        self.given_up: Counter[str] = Counter()
        """Records that the producer failed to deliver, by error. They may be in the log or not."""
        self._rate_per_s = rate_per_s
        self._config = {"bootstrap.servers": bootstrap, **client}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name="cluster-load", daemon=True)

    @property
    def wrong(self) -> list[str]:
        """What broke a promise, in words."""
        return self.ledger.wrong

    def make_topic(self, replication_factor: int, config: Mapping[str, str]) -> None:
        """Create the topic of the load.

        :raises confluent_kafka.KafkaException: it was refused
        """
        topic = NewTopic(TOPIC, len(self.sent), replication_factor, config=dict(config))
        admin = AdminClient(self._config)  # its answers come only while it lives
        admin.create_topics([topic], request_timeout=WAIT_S)[TOPIC].result(timeout=WAIT_S)

    def start(self) -> None:
        """Begin; every partition has had an acknowledgement when this returns.

        :raises RuntimeError: one had none within a minute
        """
        self._thread.start()
        deadline = time.monotonic() + WAIT_S
        while not all(self.ack_times):
            if time.monotonic() > deadline or not self._thread.is_alive():
                counts = [len(times) for times in self.ack_times]
                raise RuntimeError(f"acknowledged by partition: {counts}; {self.wrong or self.given_up}")
            time.sleep(0.01)

    def await_acks(self, since: float, timeout_s: float) -> bool:
        """Wait until each partition had an acknowledgement after ``since``; return whether it came in time."""
        deadline = time.monotonic() + timeout_s
        while not all(times and times[-1] > since for times in self.ack_times):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def finish(self) -> None:
        """Send nothing new, and wait for open acknowledgements."""
        self._done.set()
        self._thread.join(FINISH_S + WAIT_S)
        if self._thread.is_alive():
            self.wrong.append("the producer did not come to an end")

    def _guarded(self) -> None:
        try:
            self._produce()
        except Exception as error:
            self.wrong.append(f"the producer failed: {error!r}")

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self.wrong.append(f"the producer failed: {error}")

    def _produce(self) -> None:
        producer = Producer(
            {
                **self._config,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "error_cb": self._failed,
            }
        )
        began = time.monotonic()
        while not self._done.is_set():
            due = int((time.monotonic() - began) * self._rate_per_s) - sum(self.sent)
            for _ in range(min(due, SEND_AT_ONCE)):
                self._send(producer)
            producer.poll(0.002)
        if left := producer.flush(FINISH_S):
            self.wrong.append(f"{left} records were neither acknowledged nor refused in {FINISH_S:.0f} s")

    def _send(self, producer: Producer) -> None:
        partition = sum(self.sent) % len(self.sent)
        number = self.sent[partition]

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.given_up[str(error)] += 1
                return
            offset = message.offset()
            self.ledger.ack(partition, number, -1 if offset is None else offset)
            self.ack_times[partition].append(time.monotonic())

        try:
            producer.produce(
                TOPIC, b"%d %0100d" % (number, number), partition=partition, on_delivery=delivered
            )
        except BufferError:
            producer.poll(0.01)  # it is full while the cluster is away
            return
        self.sent[partition] += 1

    def read(self, partition: int) -> Iterator[tuple[int, int]]:
        """Yield (offset, number) of every record of a partition, up to its end."""
        reader = Consumer(
            {
                **self._config,
                "group.id": "cluster-audit",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        reader.assign([TopicPartition(TOPIC, partition, 0)])
        deadline = time.monotonic() + FINISH_S
        try:
            while time.monotonic() < deadline:
                for message in reader.consume(1000, timeout=0.5):
                    error, offset = message.error(), message.offset()
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:
                        return
                    if error is None and offset is not None:
                        yield offset, int((message.value() or b"").split()[0])
            self.wrong.append(f"partition {partition}: could not be read within {FINISH_S:.0f} s")
        finally:
            reader.close()
