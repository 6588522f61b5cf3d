"""Clients that take as much as they get: librdkafka in threads of this process, Java's by Kafka's tools."""

from __future__ import annotations

import subprocess
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, Self

RECORD_BYTES = 1_000
FOREVER = 1_000_000_000
"""Records that no client gets to."""
QUIET = {"log_level": 2}
FULL_WAIT_S = 0.05
TOOLS = "org.apache.kafka.tools."
MIB = 1 << 20
END_S = 20.0


class Taking(Protocol):
    """A client at work."""

    def taken_bytes(self) -> float:
        """Bytes of values that it has had so far, where the client itself counts them."""
        ...

    def check(self) -> None:
        """Raises RuntimeError if it has ended by itself."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Thread:
    """The loop of a client of librdkafka."""

    def __init__(self) -> None:
        self.count_bytes = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def _run(self) -> None:
        while not self._ends.is_set():
            self.step()

    def step(self) -> None:
        """Do some work."""
        raise NotImplementedError

    def check(self) -> None:
        """As ``Taking.check``."""
        if not self._thread.is_alive():
            raise RuntimeError(f"{type(self).__name__} has ended")

    def taken_bytes(self) -> float:
        """As ``Taking.taken_bytes``."""
        return self.count_bytes

    def close(self) -> None:
        """End the loop."""
        self._ends.set()
        self._thread.join(END_S)


class LibrdkafkaProducer(Thread):
    """A producer whose queue is always full."""

    def __init__(self, bootstrap: str, topic: str, client_id: str, record_bytes: int, linger_ms: int) -> None:
        super().__init__()
        kafka: Any = import_module("confluent_kafka")
        self._topic = topic
        self._value = bytes(record_bytes)
        self._producer = kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "linger.ms": linger_ms,
                "acks": 1,
                "queue.buffering.max.messages": 5_000,
                "message.timeout.ms": 300_000,
                **QUIET,
            }
        )

    def step(self) -> None:
        """Fill the queue, and wait until there is room."""
        try:
            for _ in range(100):
                self._producer.produce(self._topic, self._value)
        except BufferError:
            self._producer.poll(FULL_WAIT_S)
        self._producer.poll(0)

    def close(self) -> None:
        """End it, and forget what is queued."""
        super().close()
        self._producer.purge()


class LibrdkafkaConsumer(Thread):
    """A consumer from the start of a topic."""

    def __init__(self, bootstrap: str, topic: str, client_id: str) -> None:
        super().__init__()
        kafka: Any = import_module("confluent_kafka")
        self._consumer = kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "group.id": client_id,
                "auto.offset.reset": "earliest",
                "queued.max.messages.kbytes": 4_096,
                **QUIET,
            }
        )
        self._consumer.subscribe([topic])

    def step(self) -> None:
        """Take what is there."""
        for message in self._consumer.consume(500, 0.2):
            self.count_bytes += len(message.value() or b"")

    def close(self) -> None:
        """End it."""
        super().close()
        self._consumer.close()


def mib_of(line: str) -> float | None:
    """Return the MiB that a report of ConsumerPerformance says were consumed until then; ``None`` for other lines."""
    fields = line.split(", ")
    try:
        return float(fields[2]) if len(fields) > 3 and fields[0][:1].isdigit() else None
    except ValueError:
        return None


class JavaTool:
    """One of Kafka's tools for performance. Its output is read as it comes."""

    def __init__(self, peer: Path, tool: str, *words: str) -> None:
        command = [str(peer), "tool", TOOLS + tool, *words]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        self._mib: list[tuple[float, float]] = []
        """(time, MiB consumed until then) of each line."""
        self.said = ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said = line
            mib = mib_of(line)
            if mib is not None:
                self._mib.append((time.monotonic(), mib))

    def check(self) -> None:
        """As ``Taking.check``."""
        if self._process.poll() is not None:
            raise RuntimeError(f"{' '.join(self._process.args)} has ended: {self.said}")  # type: ignore[arg-type]

    def taken_bytes(self) -> float:
        """As ``Taking.taken_bytes``: between the last two reports it goes on as between them."""
        if len(self._mib) < 2:
            return 0.0
        (before_s, before), (last_s, last) = self._mib[-2:]
        rate = (last - before) / max(last_s - before_s, 1e-3)
        return (last + rate * (time.monotonic() - last_s)) * MIB

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def java_producer(
    peer: Path, bootstrap: str, topic: str, client_id: str, record_bytes: int, *properties: str
) -> JavaTool:
    """A producer by ProducerPerformance."""
    words = ("--topic", topic, "--record-size", str(record_bytes), "--num-records", str(FOREVER))
    given = (f"client.id={client_id}", f"bootstrap.servers={bootstrap}", "acks=1", *properties)
    return JavaTool(peer, "ProducerPerformance", *words, "--throughput", "-1", "--command-property", *given)


def java_consumer(peer: Path, bootstrap: str, topic: str, client_id: str) -> JavaTool:
    """A consumer from the start of a topic by ConsumerPerformance."""
    shown = ("--show-detailed-stats", "--hide-header", "--reporting-interval", "500", "--timeout", "60000")
    words = ("--topic", topic, "--num-records", str(FOREVER), "--bootstrap-server", bootstrap, *shown)
    return JavaTool(peer, "ConsumerPerformance", *words, "--command-property", f"client.id={client_id}")
