"""Producers of the load: librdkafka in this process, the others in processes of their own.

Each sends numbered records at a steady rate over all partitions in turn, idempotent and with acks=all, and tells of
each record once. The cluster is measured, not the patience of its client. So each gives a request up after 2 s and
tries again soon, where by default they wait 30 s to 60 s for a paused leader and up to 10 s before they connect again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import KafkaError, Message, Producer

from campaigns.clients.programs import franz_go_command, java_command

CLIENTS = ("librdkafka", "java", "franz-go", "kafka-python")
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
"""What differs from librdkafka's defaults. The other clients have the same in their programs."""


class Watcher(Protocol):
    """What a producer tells, from a thread of its own."""

    def acknowledged(self, partition: int, number: int, offset: int) -> None:
        """A record was acknowledged. Offset -1: the broker had it already and doesn't tell where."""
        ...

    def refused(self, error: str) -> None:
        """The producer has given a record up. It may be in the log or not."""
        ...

    def failed(self, error: str) -> None:
        """The producer itself failed."""
        ...


class SteadyProducer(Protocol):
    """Sends from :meth:`start` to :meth:`finish`."""

    @property
    def sent(self) -> Sequence[int]:
        """Records sent so far, by partition. A producer in a process of its own knows them only at the end."""
        ...

    @property
    def is_alive(self) -> bool:
        """Whether it still sends or waits for answers."""
        ...

    def start(self, watcher: Watcher) -> None:
        """Begin."""
        ...

    def finish(self, wait_s: float = FINISH_S) -> None:
        """Send nothing new, and wait until every record is acknowledged or refused, for ``wait_s`` at most. Does
        nothing before :meth:`start`.
        """
        ...


class Librdkafka:
    """The producer of librdkafka, in a thread."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate_per_s: float, **config: Any) -> None:
        """:param config: laid over :data:`LIBRDKAFKA`, such as ``debug`` with a ``logger``"""
        self.sent = [0] * partitions
        self._config = config
        self._topic = topic
        self._rate_per_s = rate_per_s
        self._bootstrap = bootstrap
        self._done = threading.Event()
        self._wait_s = FINISH_S
        self._thread: threading.Thread | None = None

    @property
    def is_alive(self) -> bool:
        """See :class:`SteadyProducer`."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, watcher: Watcher) -> None:
        """See :class:`SteadyProducer`."""
        self._thread = threading.Thread(
            target=self._guarded, args=(watcher,), name="cluster-load", daemon=True
        )
        self._thread.start()

    def finish(self, wait_s: float = FINISH_S) -> None:
        """See :class:`SteadyProducer`."""
        if self._thread is None:
            return
        self._wait_s = wait_s
        self._done.set()
        self._thread.join(2 * wait_s)

    def _guarded(self, watcher: Watcher) -> None:
        try:
            self._produce(watcher)
        except Exception as error:
            watcher.failed(repr(error))

    def _produce(self, watcher: Watcher) -> None:
        def failed(error: KafkaError) -> None:
            if error.fatal():
                watcher.failed(str(error))

        producer = Producer(
            {
                **LIBRDKAFKA,
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "error_cb": failed,
                **self._config,
            }
        )
        began = time.monotonic()
        while not self._done.is_set():
            due = int((time.monotonic() - began) * self._rate_per_s) - sum(self.sent)
            for _ in range(min(due, SEND_AT_ONCE)):
                self._send(producer, watcher)
            producer.poll(0.002)
        if left := producer.flush(self._wait_s):
            watcher.failed(f"{left} records were neither acknowledged nor refused in {self._wait_s:g} s")

    def _send(self, producer: Producer, watcher: Watcher) -> None:
        partition = sum(self.sent) % len(self.sent)
        number = self.sent[partition]

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                watcher.refused(str(error))
                return
            offset = message.offset()
            watcher.acknowledged(partition, number, -1 if offset is None else offset)

        value = b"%d %0100d" % (number, number)
        try:
            producer.produce(self._topic, value, partition=partition, on_delivery=delivered)
        except BufferError:
            producer.poll(0.01)  # it is full while the cluster is away
            return
        self.sent[partition] += 1


class Program:
    """A producer in a process of its own, which prints ``acked``, ``refused`` and ``sent`` lines until stdin ends."""

    def __init__(self, command: Sequence[str], request: str, partitions: int) -> None:
        """:param request: the first line of its stdin; none if empty"""
        self.sent: list[int] = [0] * partitions
        self._command = command
        self._request = request
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_alive(self) -> bool:
        """See :class:`SteadyProducer`."""
        return self._process is not None and self._process.poll() is None

    def start(self, watcher: Watcher) -> None:
        """See :class:`SteadyProducer`."""
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._process.stdin is not None
        if self._request:
            self._process.stdin.write(self._request + "\n")
        self._thread = threading.Thread(target=self._hear, args=(watcher,), name="cluster-load", daemon=True)
        self._thread.start()

    def finish(self, wait_s: float = FINISH_S) -> None:
        """See :class:`SteadyProducer`."""
        if self._process is None or self._thread is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            self._process.stdin.close()
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(wait_s)

    def _hear(self, watcher: Watcher) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        ended = False
        with self._process.stdout as lines:
            for line in lines:
                ended = take(line, watcher, self.sent) or ended
        if not ended:
            watcher.failed("its program ended before it had said how much it sent")


def take(line: str, watcher: Watcher, sent: list[int]) -> bool:
    """Take a line of a program; return whether it was the last one. Lines of other words mean nothing."""
    word, _, rest = line.strip().partition(" ")
    if word == "acked":
        partition, number, offset = map(int, rest.split())
        watcher.acknowledged(partition, number, offset)
    elif word == "refused":
        watcher.refused(rest.split(" ", 2)[2])
    elif word == "sent":
        sent[:] = map(int, rest.split())
        return True
    return False


Make = Callable[[str, str, int, float], SteadyProducer]
"""Makes a producer for bootstrap servers, a topic, its number of partitions and a rate."""


def maker_of(client: str, peer: Path | None, log_path: Path | None = None) -> Make:
    """Return what makes the producer of this client.

    :param peer: the script that runs Kafka's classes, for the Java client
    :param log_path: a file for what librdkafka says of its producer id and epoch; the other clients write none
    :raises NoClientError: the client can't be run here
    """
    if client == "java":
        return _told_by_arguments(java_command(peer, "SteadyProducer.java"))
    if client == "kafka-python":
        return _told_by_arguments((sys.executable, "-m", "campaigns.cluster.kafka_python_producer"))
    if client == "franz-go":
        return _franz_go(franz_go_command())
    return Librdkafka if log_path is None else partial(Librdkafka, **_logged(log_path))


def _logged(path: Path) -> dict[str, Any]:
    path.parent.mkdir(parents=True, exist_ok=True)
    logger = logging.Logger("librdkafka")
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    return {"debug": "eos", "log_level": 7, "logger": logger}


def _told_by_arguments(command: Sequence[str]) -> Make:
    def make(bootstrap: str, topic: str, partitions: int, rate_per_s: float) -> SteadyProducer:
        return Program([*command, bootstrap, topic, str(partitions), str(rate_per_s)], "", partitions)

    return make


def _franz_go(command: Sequence[str]) -> Make:
    def make(bootstrap: str, topic: str, partitions: int, rate_per_s: float) -> SteadyProducer:
        request = {
            "operation": "steady",
            "bootstrap": bootstrap,
            "topic": topic,
            "partitions": partitions,
            "ratePerS": rate_per_s,
        }
        return Program(command, json.dumps(request), partitions)

    return make
