"""One process of the driver: ``python -m blumfeld_bench.drivers.transactions.process``. Its messages are those of
``spec``.

One thread drives all producers of the step. At the end it reads the topic with read_committed and counts: a step whose
committed records aren't all there has an error.
"""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import BinaryIO

from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld_bench.drivers.connections import connect
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.load import DRAIN_NS, EVENTS_MAX, Load, live
from blumfeld_bench.drivers.spec import Begin, ProcessSpec
from blumfeld_bench.drivers.transactions.frames import (
    OWN_EPOCHS,
    AddPartitionsFrame,
    EndFrame,
    ProduceFrame,
)
from blumfeld_bench.drivers.transactions.producer import Address, TransactionalProducer, Writes
from blumfeld_bench.drivers.transactions.requests import begin_producer, committed_records
from blumfeld_bench.drivers.wire_client import LATEST, Leader, WireClient
from blumfeld_bench.security import security_at
from blumfeld_bench.workload import Produce, Transaction

SETS_MAX = 8
"""Sets of partitions that a producer's transactions go over, one after the other."""


class TransactionsLoad(Load):
    """All producers of a step, through its phases."""

    def __init__(self, spec: ProcessSpec, out: BinaryIO) -> None:
        produce = spec.step.produce
        assert produce is not None
        assert produce.transaction is not None
        super().__init__(spec, out)
        self._security = security_at(spec.command_config)
        self._produce, self._transaction = produce, produce.transaction
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._timer_numbers = itertools.count()
        with WireClient(spec.host, spec.port, security=self._security) as client:
            where = [Leader(0, host, port) for host, port in spec.leaders]
            self._from_offsets = client.offsets(spec.topic, where, LATEST)
        self._producers = [self._connect(number) for number in range(produce.connections)]

    def _start(self, begin: Begin) -> None:
        for producer in self._producers:
            producer.start()

    def _turn(self, now_ns: int, lap_ns: int) -> None:
        timers = self._timers
        while timers and timers[0][0] <= now_ns:
            heapq.heappop(timers)[2]()
        self._loop.serve(min(lap_ns, timers[0][0]) if timers else lap_ns, EVENTS_MAX)

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        due_ns = monotonic_ns() + delay_ms * 1_000_000
        heapq.heappush(self._timers, (due_ns, next(self._timer_numbers), action))

    def _lap_ends(self) -> None:
        if all(producer.failed for producer in self._producers):
            raise DriverError(f"no producer is left: {self._meter.error}")

    def _drain(self, end_ns: int) -> None:
        for producer in self._producers:
            producer.stop()
        deadline = end_ns + DRAIN_NS
        while any(each.busy for each in self._producers) and (now := monotonic_ns()) < deadline:
            self._turn(now, min(deadline, now + 2_000_000))
        open_ones = sum(each.busy for each in self._producers)
        if open_ones:
            self._meter.fault("a transaction was not committed before the drain ended", open_ones)
        self._check_committed()

    def _check_committed(self) -> None:
        if self._meter.errors:
            return
        committed = sum(producer.committed_records for producer in self._producers)
        seen = committed_records(self._spec.topic, self._spec.leaders, self._from_offsets, self._security)
        if seen != committed:
            self._meter.fault(f"read_committed sees {seen} records, and {committed} were committed")

    def _connect(self, number: int) -> TransactionalProducer:
        spec, produce, transaction = self._spec, self._produce, self._transaction
        # An id of its own for each step: its epochs begin at 0.
        transactional_id = f"bench-{spec.seed}-{spec.step.name}-{number}"
        coordinator, producer = begin_producer((spec.host, spec.port), transactional_id, self._security)
        leaders = sorted({*spec.leaders, coordinator})
        writes = _writes(spec, produce, transaction, transactional_id, producer, number)
        records = transaction.partitions * produce.batch_records
        return TransactionalProducer(
            loop=self._loop,
            meter=self._meter,
            later=self._later,
            sockets=dict(zip(leaders, connect(leaders, self._security), strict=True)),
            coordinator=coordinator,
            producer=producer,
            version=transaction.version,
            writes=writes,
            end=EndFrame(transactional_id, transaction.version),
            batch_records=produce.batch_records,
            value_bytes=records * produce.record_bytes_max,
        )

    def close(self) -> None:
        """Close all connections."""
        for producer in self._producers:
            producer.close()
        super().close()


def _writes(
    spec: ProcessSpec,
    produce: Produce,
    transaction: Transaction,
    transactional_id: str,
    producer: tuple[int, int],
    number: int,
) -> list[Writes]:
    """Returns the requests of one producer's transactions, on a few sets of partitions. Its first set depends on its
    number, so that producers don't all write to the same partitions at the same time."""
    draw = random.Random(spec.seed * 7919 + number)
    partitions, count = len(spec.leaders), transaction.partitions
    sets = min(SETS_MAX, max(1, partitions // count))
    made = []
    for nth in range(sets):
        first = (number * 7 + nth) * count
        chosen = [(first + at) % partitions for at in range(count)]
        batches = {index: _batch(draw, produce) for index in chosen}
        by_leader: dict[Address, dict[int, bytes]] = {}
        for index in chosen:
            by_leader.setdefault(spec.leaders[index], {})[index] = batches[index]
        made.append(
            Writes(
                partitions=chosen,
                add=None
                if transaction.version >= OWN_EPOCHS
                else AddPartitionsFrame(transactional_id, producer, spec.topic, chosen),
                produce={
                    leader: ProduceFrame(transactional_id, spec.topic, theirs, transaction.version)
                    for leader, theirs in by_leader.items()
                },
            )
        )
    return made


def _batch(draw: random.Random, produce: Produce) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    records: Sequence[Record] = [
        Record(key=None, value=draw.randbytes(produce.record_bytes_max), timestamp=now_ms)
        for _ in range(produce.batch_records)
    ]
    return bytes(build_batch(records, transactional=True))


if __name__ == "__main__":
    live(TransactionsLoad)
