"""The producer of the load: librdkafka in a thread.

It sends numbered records at a steady rate over all partitions in turn, idempotent and with acks=all, and tells of each
record once. The cluster is measured, not the patience of its client. So it gives a request up after 2 s and tries again
soon, where by default it waits 60 s for a paused leader and up to 10 s before it connects again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import KafkaError, Message, Producer

SEND_AT_ONCE = 500
FINISH_S = 120.0
"""Longest wait for the acknowledgements that are open when the last fault is over."""
CUT_SHORT_S = 2.0
"""The same where the run was broken off: the cluster may be gone, and nothing is counted any more."""
LIBRDKAFKA: Mapping[str, Any] = {
    "socket.timeout.ms": 2000,
    "socket.connection.setup.timeout.ms": 2000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "log_level": 0,
}
"""Settings other than librdkafka's defaults."""


class Watcher(Protocol):
    """A listener that a producer tells of its records, from a thread of its own."""

    def acknowledged(self, partition: int, number: int, offset: int) -> None:
        """A record was acknowledged. Offset -1: the broker had it already and doesn't tell where."""
        ...

    def refused(self, error: str) -> None:
        """The producer has given a record up. It may be in the log or not."""
        ...

    def failed(self, error: str) -> None:
        """The producer itself failed."""
        ...


class LoadProducer(Protocol):
    """A producer of numbered records."""

    sent: list[int]
    """Records sent so far, by partition."""

    @property
    def is_alive(self) -> bool:
        """Whether it still sends or waits for answers."""
        ...

    def start(self, watcher: Watcher) -> None:
        """Begin; send until :meth:`finish`."""
        ...

    def finish(self, wait_s: float = FINISH_S) -> None:
        """Send nothing new, and wait until every record is acknowledged or refused, for ``wait_s`` at most."""
        ...


class Librdkafka:
    """The producer of librdkafka, in a thread."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate_per_s: float, **config: Any) -> None:
        """:param config: laid over :data:`LIBRDKAFKA`, such as ``debug`` with a ``logger``"""
        self.sent = [0] * partitions
        """Records sent so far, by partition."""
        self._config = {"bootstrap.servers": bootstrap, **config}
        self._topic = topic
        self._rate_per_s = rate_per_s
        self._done = threading.Event()
        self._moves = threading.Event()
        self._wait_s = FINISH_S
        self._thread: threading.Thread | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it still sends or waits for answers."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def rate_per_s(self) -> float:
        """Records a second, as of now."""
        return self._rate_per_s

    @property
    def is_exhausted(self) -> bool:
        """Whether there is no record any more."""
        return False

    def record(self, nth: int, number: int) -> tuple[bytes | None, bytes]:
        """Return key and value of the ``nth`` record of all, which is the one with this number in its partition."""
        return None, b"%d %0100d" % (number, number)

    def start(self, watcher: Watcher) -> None:
        """Begin; send until :meth:`finish`."""
        self._thread = threading.Thread(target=self._guarded, args=(watcher,), name="load", daemon=True)
        self._thread.start()

    def move(self, bootstrap: str, **config: Any) -> None:
        """Go on as a new client with these settings, when every record of the present one has its answer."""
        self._config = {"bootstrap.servers": bootstrap, **config}
        self._moves.set()

    def finish(self, wait_s: float = FINISH_S) -> None:
        """Send nothing new, and wait until every record is acknowledged or refused, for ``wait_s`` at most."""
        if self._thread is None:
            return
        self._wait_s = wait_s
        self._done.set()
        self._thread.join(2 * wait_s)

    def _guarded(self, watcher: Watcher) -> None:
        try:
            while not self._done.is_set():
                self._moves.clear()
                self._produce(watcher)
        except Exception as error:
            watcher.failed(repr(error))

    def _produce(self, watcher: Watcher) -> None:
        def failed(error: KafkaError) -> None:
            if error.fatal():
                watcher.failed(str(error))

        idempotent = {"acks": "all", "enable.idempotence": True, "linger.ms": 2}
        producer = Producer({**LIBRDKAFKA, **idempotent, "error_cb": failed, **self._config})
        before, due = time.monotonic(), 0.0
        while not (self._done.is_set() or self._moves.is_set()):
            now = time.monotonic()
            due += (now - before) * self.rate_per_s
            before = now
            for _ in range(min(int(due), SEND_AT_ONCE)):
                due -= not self.is_exhausted and self._send(producer, watcher)
            producer.poll(0.002)
        if left := producer.flush(self._wait_s):
            watcher.failed(f"{left} records were neither acknowledged nor refused in {self._wait_s:g} s")

    def _send(self, producer: Producer, watcher: Watcher) -> bool:
        """Send the next record, partitions taking turns; return whether the producer took it."""
        nth = sum(self.sent)
        partition = nth % len(self.sent)
        number = self.sent[partition]

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                watcher.refused(str(error))
                return
            offset = message.offset()
            watcher.acknowledged(partition, number, -1 if offset is None else offset)

        key, value = self.record(nth, number)
        try:
            producer.produce(self._topic, value, key, partition=partition, on_delivery=delivered)
        except BufferError:
            producer.poll(0.01)  # it is full while the cluster is away
            return False
        self.sent[partition] += 1
        return True


Make = Callable[[str, str, int, float], LoadProducer]
"""Makes a producer for bootstrap servers, a topic, its number of partitions and a rate."""


def with_log(path: Path) -> Make:
    """Return what makes a producer whose words about its producer id and epoch go to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    logger = logging.Logger("librdkafka")
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    return partial(Librdkafka, debug="eos", log_level=7, logger=logger)
