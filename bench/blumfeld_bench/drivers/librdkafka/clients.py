"""Build the librdkafka driver's clients: producers, settings of consumers, and the records to be sent."""

from __future__ import annotations

import random
import struct
from collections import deque
from functools import partial
from time import monotonic_ns
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from blumfeld_bench.drivers.frames import STAMP_BYTES
from blumfeld_bench.drivers.meter import Meter
from blumfeld_bench.drivers.spec import ProcessSpec
from blumfeld_bench.workload import Consume, Produce

BATCH_LINGER_MS = 5.0
QUEUE_MESSAGES = 1_000_000
POOL = 1024

_STAMP = struct.Struct(">q")


class Sender:
    """One Producer, and the due records that its queue had no room for."""

    def __init__(self, spec: ProcessSpec, produce: Produce, meter: Meter) -> None:
        self._topic, self._meter = spec.topic, meter
        self._producer = Producer(
            {
                "bootstrap.servers": f"{spec.host}:{spec.port}",
                "acks": produce.acks,
                "linger.ms": 0 if produce.batch_records == 1 else BATCH_LINGER_MS,
                "batch.num.messages": produce.batch_records,
                "batch.size": 100_000_000,
                "message.max.bytes": 100_000_000,
                "max.in.flight": produce.in_flight,
                "queue.buffering.max.messages": QUEUE_MESSAGES,
                "queue.buffering.max.kbytes": 2_097_151,
                "socket.nagle.disable": True,
                "retries": 0,
                "log_level": 0,
            }
        )
        self.outstanding = 0
        self._over = False
        self.waiting: deque[tuple[int, bytes | None, bytes]] = deque()
        self._callback = self._delivered

    def send(self, intended_ns: int, key: bytes | None, value: bytes) -> None:
        """Hand a record to the library, or keep it until there is room."""
        try:
            self._producer.produce(
                self._topic,
                _STAMP.pack(intended_ns) + value[STAMP_BYTES:] if len(value) >= STAMP_BYTES else value,
                key,
                on_delivery=partial(self._callback, intended_ns, len(value)),
            )
            self.outstanding += 1
        except BufferError:
            self.waiting.append((intended_ns, key, value))

    def serve(self) -> int:
        """Run callbacks and return their number."""
        served: int = self._producer.poll(0)
        while self.waiting and len(self._producer) < QUEUE_MESSAGES // 2:
            self.send(*self.waiting.popleft())
        return served

    def _delivered(self, intended_ns: int, size: int, error: KafkaError | None, _message: Message) -> None:
        now = monotonic_ns()
        self.outstanding -= 1
        if self._over:
            self._meter.ack(
                intended_ns, now
            )  # an undelivered record counts with its age, so that the tail shows it
            return
        if error is not None:
            self._meter.fault(f"Produce: {error.name()}")
            return
        meter = self._meter
        meter.ack(intended_ns, now)
        meter.records += 1
        meter.bytes += size

    def give_up(self, now_ns: int) -> None:
        """Count undelivered records as errors, with their age as latency: the drain is over."""
        self._meter.fault("a record was not delivered before the drain ended", self.outstanding)
        for intended_ns, _, _ in self.waiting:
            self._meter.ack(intended_ns, now_ns)
        self._over = True
        self._producer.purge()
        self._producer.poll(0)


def consumer_config(spec: ProcessSpec, consume: Consume, group: str) -> dict[str, Any]:
    """Return the settings of one consumer of a group: it commits nothing, and is told of the end of a partition."""
    return {
        "bootstrap.servers": f"{spec.host}:{spec.port}",
        "group.id": group,
        "auto.offset.reset": consume.start,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": consume.max_wait_ms,
        "fetch.min.bytes": consume.min_bytes,
        "max.partition.fetch.bytes": consume.partition_max_bytes,
        "fetch.queue.backoff.ms": 1,
        "socket.nagle.disable": True,
        "log_level": 0,
    }


def records(produce: Produce, seed: int) -> list[tuple[bytes | None, bytes]]:
    """Return keys and values to be sent in turn, drawn by the seed; the library chooses the partition."""
    draw = random.Random(seed)
    records: list[tuple[bytes | None, bytes]] = []
    for _ in range(POOL):
        key = b"key-%08d" % draw.randrange(produce.keys) if produce.keys else None
        records.append(
            (key, draw.randbytes(draw.randint(produce.record_bytes_min, produce.record_bytes_max)))
        )
    return records
