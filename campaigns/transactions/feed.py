"""The capture as an input topic: every line is a record, and the records lie on the partitions in turn."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from campaigns.cluster.producers import LIBRDKAFKA
from campaigns.transactions.oracle import Pair

FINISH_S = 120.0
SEND_AT_ONCE = 500


def read_lines(capture: Path, count: int) -> list[bytes]:
    """Return the first lines of a capture without their line ends; all of them if ``count`` is 0."""
    with gzip.open(capture) as lines:
        return [line.rstrip(b"\n") for line in itertools.islice(lines, count or None)]


def placed(lines: Sequence[bytes], partitions: int) -> list[list[Pair]]:
    """Return the records of each partition. A record's key is the number of its line, from 0 on."""
    found: list[list[Pair]] = [[] for _ in range(partitions)]
    for number, line in enumerate(lines):
        found[number % partitions].append((b"%d" % number, line))
    return found


def sha256_of(lines: Sequence[bytes]) -> str:
    """Return the digest of the lines as a file."""
    whole = hashlib.sha256()
    for line in lines:
        whole.update(line)
        whole.update(b"\n")
    return whole.hexdigest()


class Feed:
    """Writes the records into the input topic: an idempotent producer of librdkafka with acks=all, in a thread.

    It keeps to a rate until :meth:`hurry`, so that there is something to copy while faults go on. The rate falls with
    what is left of the feed, so that the feed doesn't end before the faults do, however long they take.
    """

    def __init__(
        self, bootstrap: str, topic: str, lines: Sequence[bytes], partitions: int, rate_per_s: float
    ) -> None:
        self.sent = 0
        self.wrong: list[str] = []
        self._bootstrap = bootstrap
        self._topic = topic
        self._lines = lines
        self._partitions = partitions
        self._rate_per_s = rate_per_s
        self._hurried = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name="transactions-feed", daemon=True)

    @property
    def is_exhausted(self) -> bool:
        """Whether every record was handed to the producer."""
        return self.sent == len(self._lines)

    @property
    def rate_per_s(self) -> float:
        """Records a second, as of now."""
        return self._rate_per_s * (1 - self.sent / len(self._lines))

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def hurry(self) -> None:
        """Send the rest as fast as it goes."""
        self._hurried.set()

    def finish(self) -> None:
        """Wait until every record is acknowledged."""
        self.hurry()
        self._thread.join(2 * FINISH_S)
        if self._thread.is_alive():
            self.wrong.append("the feed does not come to an end")

    def stop(self) -> None:
        """Break it off."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(FINISH_S)

    def _guarded(self) -> None:
        try:
            self._produce()
        except Exception as error:
            self.wrong.append(f"the feed failed: {error!r}")

    def _produce(self) -> None:
        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                self.wrong.append(f"a record of the feed was not taken: {error}")

        producer = Producer(
            {
                **LIBRDKAFKA,
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
            }
        )
        before, due = time.monotonic(), 0.0
        while not self.is_exhausted and not self._over.is_set():
            now = time.monotonic()
            due += (now - before) * self.rate_per_s
            before = now
            for _ in range(SEND_AT_ONCE if self._hurried.is_set() else int(due)):
                due -= 1
                if not self.is_exhausted:
                    self._send(producer, delivered)
            producer.poll(0.002)
        if producer.flush(0.0 if self._over.is_set() else FINISH_S):
            self.wrong.append("not all records of the feed were acknowledged")

    def _send(self, producer: Producer, delivered: Callable[[KafkaError | None, Message], None]) -> None:
        at = self.sent
        try:
            producer.produce(
                self._topic,
                self._lines[at],
                b"%d" % at,
                partition=at % self._partitions,
                on_delivery=delivered,
            )
        except BufferError:
            producer.poll(0.05)  # it is full while the cluster is away
            return
        self.sent += 1
