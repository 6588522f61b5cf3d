"""One process of the librdkafka driver: ``python -m blumfeld_bench.drivers.librdkafka``.

It makes the load with confluent-kafka: a Producer for each connection, real groups with ``subscribe``, and the
library's own threads, batching and partitioner. Latency counts from the intended time to the delivery callback, or to
the record's arrival in the consumer. The process polls for callbacks, every :data:`NAP_NS` when it is idle. This
interval, and contention with the library's threads, is part of every latency. The library does not report requests,
so records divided by the batch size are counted instead.
"""

from __future__ import annotations

import random
import struct
import time
from collections import deque
from functools import partial
from time import monotonic_ns
from typing import Any, BinaryIO

from confluent_kafka import Consumer, KafkaError, Message, Producer

from blumfeld_bench.drivers.connections import connect_idle
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.frames import STAMP_BYTES
from blumfeld_bench.drivers.load import DRAIN_NS, Load, live
from blumfeld_bench.drivers.meter import Meter
from blumfeld_bench.drivers.schedule import Schedule
from blumfeld_bench.drivers.spec import Begin, ProcessSpec, share
from blumfeld_bench.security import librdkafka_at
from blumfeld_bench.workload import Consume, Produce

NAP_NS = 50_000
OFFERS_MAX = 64
CONSUME_MAX = 500
JOIN_TIMEOUT_S = 60.0
QUIET_NS = 700_000_000
"""Silence, once all records are acknowledged, after which a consumer has received everything."""

_STAMP = struct.Struct(">q")


BATCH_LINGER_MS = 5.0
QUEUE_MESSAGES = 1_000_000
POOL = 1024


class Sender:
    """One Producer, and the due records that its queue had no room for."""

    def __init__(self, spec: ProcessSpec, produce: Produce, meter: Meter) -> None:
        self._topic, self._meter = spec.topic, meter
        self._producer = Producer(
            {
                **librdkafka_at(spec.command_config),
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
        **librdkafka_at(spec.command_config),
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


class LibrdkafkaLoad(Load):
    """All clients of this process, through the phases of a step."""

    def __init__(self, spec: ProcessSpec, out: BinaryIO) -> None:
        super().__init__(spec, out)
        self._idle = connect_idle(spec)
        self._senders: list[Sender] = []
        self._records: list[tuple[bytes | None, bytes]] = []
        produce, consume = self._step.produce, self._step.consume
        if produce is not None:
            mine = share(produce.connections, spec.index, spec.processes)
            self._senders = [Sender(spec, produce, self._meter) for _ in mine]
            self._records = records(produce, spec.seed * 7919 + spec.index)
        self._assigned = 0
        self._ends: set[tuple[int, int]] = set()
        """Consumer and partition of each end that was reached."""
        self._consumers = [] if consume is None else self._join(consume)
        self._schedule: Schedule | None = None
        self._sent = 0
        self._may_end = self._reads_what_is_there
        self._requests_of = produce.batch_records if produce is not None else 1
        self._left_over = 0

    @property
    def _reads_what_is_there(self) -> bool:
        """Whether the step only reads existing data. Then nothing is fetched before the start: what the library
        prefetched would count as fast.
        """
        consume = self._step.consume
        return self._step.produce is None and consume is not None and consume.start == "earliest"

    def _start(self, begin: Begin) -> None:
        if self._reads_what_is_there:
            for consumer in self._consumers:
                consumer.resume(consumer.assignment())
        produce = self._step.produce
        if produce is not None and produce.rate_per_s and self._senders:
            rate = produce.rate_per_s * len(self._senders) / produce.connections
            seed = self._spec.seed * 1009 + self._spec.index
            self._schedule = Schedule(seed, rate, 1, begin.begin_ns, begin.end_ns)

    def _wait(self, until_ns: int, now_ns: int) -> None:
        self._serve()

    def _turn(self, now_ns: int, lap_ns: int) -> None:
        if not (self._offer(now_ns) + self._serve()):
            self._nap(lap_ns)

    def _offer(self, now_ns: int) -> int:
        """Send what is due, or, in a closed loop, as much as there is room for; return the number of records."""
        produce, schedule = self._step.produce, self._schedule
        if produce is None:
            return 0
        sent = 0
        if schedule is None:
            room = produce.in_flight * produce.batch_records
            for sender in self._senders:
                while sender.outstanding < room and sent < OFFERS_MAX * len(self._senders):
                    sender.send(monotonic_ns(), *self._record())
                    sent += 1
            return sent
        while schedule.due_ns <= now_ns and not schedule.over and sent < OFFERS_MAX:
            sender = self._senders[self._sent % len(self._senders)]
            if schedule.intended_ns >= self._meter.measure_ns:
                self._meter.late.append(monotonic_ns() - schedule.due_ns)
            sender.send(schedule.intended_ns, *self._record())
            schedule.advance()
            sent += 1
        return sent

    def _record(self) -> tuple[bytes | None, bytes]:
        self._sent += 1
        return self._records[self._sent % len(self._records)]

    def _serve(self) -> int:
        """Run callbacks and take records; return their number."""
        served = sum(sender.serve() for sender in self._senders)
        for number, consumer in enumerate(self._consumers):
            messages = consumer.consume(CONSUME_MAX, 0)
            if messages:
                served += len(messages)
                self._take(number, messages, monotonic_ns())
        return served

    def _take(self, number: int, messages: list[Message], now_ns: int) -> None:
        meter = self._meter
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self._ends.add((number, message.partition() or 0))
                else:
                    meter.fault(f"Fetch: {error.name()}")
                continue
            value = message.value() or b""
            meter.received_records += 1
            meter.received_bytes += len(value)
            if len(value) >= STAMP_BYTES:
                meter.end_to_end(_STAMP.unpack_from(value)[0], now_ns)
        meter.fetches += 1

    def _all_done(self) -> bool:
        """Whether the ends of all partitions were reached."""
        return len(self._ends) >= self._assigned

    def _nap(self, until_ns: int) -> None:
        began = monotonic_ns()
        due = self._schedule.due_ns if self._schedule is not None else until_ns
        time.sleep(max(0, min(NAP_NS, due - began, until_ns - began)) / 1e9)
        self._loop.idle_ns += monotonic_ns() - began

    def _lap_ends(self) -> None:
        meter = self._meter
        meter.requests, self._left_over = divmod(meter.records + self._left_over, self._requests_of)

    def _drain(self, end_ns: int) -> None:
        deadline = end_ns + DRAIN_NS
        schedule = self._schedule
        last_ns = end_ns
        while (now := monotonic_ns()) < deadline:
            if schedule is not None:
                self._offer(now)
            open_ = any(sender.outstanding or sender.waiting for sender in self._senders)
            if schedule is not None and not schedule.over:
                open_ = True
            served = self._serve()
            last_ns = now if open_ or served else last_ns
            quiet = now - last_ns > QUIET_NS
            if not open_ and (self._step.produce is None or not self._consumers or quiet):
                break
            if not served:
                self._nap(deadline)
        for sender in self._senders:
            sender.give_up(monotonic_ns())

    def _join(self, consume: Consume) -> list[Consumer]:
        """Join, and wait until every consumer of this process has its partitions."""
        spec = self._spec
        consumers = []
        answered: set[int] = set()

        def assigned(number: int, consumer: Consumer, partitions: list[Any]) -> None:
            answered.add(number)
            self._assigned += len(partitions)
            if self._reads_what_is_there:
                consumer.assign(partitions)
                consumer.pause(partitions)

        def revoked(_consumer: Consumer, partitions: list[Any]) -> None:
            self._assigned -= len(partitions)

        for number in share(consume.groups * consume.members, spec.index, spec.processes):
            group = f"{spec.topic}-{spec.step.name}-{spec.seed}-{number // consume.members}"
            consumer = Consumer(consumer_config(spec, consume, group))
            consumer.subscribe([spec.topic], on_assign=partial(assigned, number), on_revoke=revoked)
            consumers.append(consumer)
        deadline = time.monotonic() + JOIN_TIMEOUT_S
        while len(answered) < len(consumers):
            if time.monotonic() > deadline:
                raise DriverError(f"{len(consumers) - len(answered)} consumers got no assignment")
            for number, consumer in enumerate(consumers):
                messages = consumer.consume(CONSUME_MAX, 0.01)
                if messages:
                    self._take(number, messages, monotonic_ns())
        return consumers

    def close(self) -> None:
        """Leave the groups and close the connections."""
        for consumer in self._consumers:
            consumer.close()
        for sock in self._idle:
            sock.close()
        super().close()


if __name__ == "__main__":
    live(LibrdkafkaLoad)
