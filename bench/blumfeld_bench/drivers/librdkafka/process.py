"""One process of the librdkafka driver: ``python -m blumfeld_bench.drivers.librdkafka.process``.

It makes the load with confluent-kafka: a Producer for each connection, real groups with ``subscribe``, and the
library's own threads, batching and partitioner. Latency counts from the intended time to the delivery callback, or to
the record's arrival in the consumer. The process polls for callbacks, every :data:`NAP_NS` when it is idle. This
interval, and contention with the library's threads, is part of every latency. The library does not report requests,
so records divided by the batch size are counted instead.
"""

from __future__ import annotations

import struct
import time
from functools import partial
from time import monotonic_ns
from typing import Any, BinaryIO

from confluent_kafka import Consumer, KafkaError, Message

from blumfeld_bench.drivers.connecting import connect_idle, live, say
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.frames import STAMP_BYTES
from blumfeld_bench.drivers.librdkafka.clients import Sender, consumer_config, records
from blumfeld_bench.drivers.meter import Meter
from blumfeld_bench.drivers.schedule import Schedule
from blumfeld_bench.drivers.spec import LAP_NS, Begin, ProcessSpec, share
from blumfeld_bench.workload import Consume

NAP_NS = 50_000
OFFERS_MAX = 64
CONSUME_MAX = 500
JOIN_TIMEOUT_S = 60.0
DRAIN_NS = 15_000_000_000
QUIET_NS = 700_000_000
"""Silence, once all records are acknowledged, after which a consumer has received everything."""

_STAMP = struct.Struct(">q")


class LibrdkafkaLoad:
    """All clients of this process, through the phases of a step."""

    def __init__(self, spec: ProcessSpec, out: BinaryIO) -> None:
        self._spec, self._step, self._out = spec, spec.step, out
        self._meter = Meter()
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
        self._idle_ns = 0
        self._requests_of = produce.batch_records if produce is not None else 1
        self._left_over = 0

    def run(self, begin: Begin) -> None:
        """Warm up, measure, drain, and report the counts."""
        while monotonic_ns() < begin.begin_ns:
            self._serve()
        self._meter.begin(begin)
        self._idle_ns = 0
        self._begin(begin)
        if begin.measure_ns > begin.begin_ns:
            self._pass(begin.measure_ns)
        over = self._pass(begin.end_ns)
        self._drain(begin.end_ns if not over else monotonic_ns())
        say(self._out, self._meter.done())

    @property
    def _reads_what_is_there(self) -> bool:
        """Whether the step only reads existing data. Then nothing is fetched before the start: what the library
        prefetched would count as fast.
        """
        consume = self._step.consume
        return self._step.produce is None and consume is not None and consume.start == "earliest"

    def _begin(self, begin: Begin) -> None:
        if self._reads_what_is_there:
            for consumer in self._consumers:
                consumer.resume(consumer.assignment())
        produce = self._step.produce
        if produce is not None and produce.rate_per_s and self._senders:
            rate = produce.rate_per_s * len(self._senders) / produce.connections
            seed = self._spec.seed * 1009 + self._spec.index
            self._schedule = Schedule(seed, rate, 1, begin.begin_ns, begin.end_ns)

    def _pass(self, until_ns: int) -> bool:
        """Work until ``until_ns`` and report laps. Return whether all data was read before."""
        lap_ns = min(until_ns, monotonic_ns() + LAP_NS)
        while True:
            now = monotonic_ns()
            if now >= lap_ns:
                self._lap(now)
                if now >= until_ns:
                    return False
                lap_ns = min(until_ns, now + LAP_NS)
            if not (self._offer(now) + self._serve()):
                self._nap(lap_ns)
            if self._all_read():
                self._lap(monotonic_ns())
                return True

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

    def _all_read(self) -> bool:
        """Whether a step that only reads existing data has reached the end of all partitions."""
        return self._reads_what_is_there and len(self._ends) >= self._assigned

    def _nap(self, until_ns: int) -> None:
        began = monotonic_ns()
        due = self._schedule.due_ns if self._schedule is not None else until_ns
        time.sleep(max(0, min(NAP_NS, due - began, until_ns - began)) / 1e9)
        self._idle_ns += monotonic_ns() - began

    def _lap(self, now_ns: int) -> None:
        meter = self._meter
        meter.requests, self._left_over = divmod(meter.records + self._left_over, self._requests_of)
        meter.idle_ns, self._idle_ns = self._idle_ns, 0
        say(self._out, meter.lap(now_ns, self._step.produce is not None))

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


if __name__ == "__main__":
    live(LibrdkafkaLoad)
