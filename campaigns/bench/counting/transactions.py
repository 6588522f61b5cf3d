"""Requests over many partitions in lock-step: Produce requests of one batch to each, and whole transactions.

They are loads for :mod:`campaigns.bench.counting.instructions`, like those of :mod:`campaigns.bench.counting.lockstep`.
The transactions are those of ``blumfeld bench --workload transactions``: the same requests, built by its driver's
frames.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence

from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld_bench.drivers.frames import Frame
from blumfeld_bench.drivers.transactions.frames import (
    OWN_EPOCHS,
    AddPartitionsFrame,
    EndFrame,
    ProduceFrame,
)
from blumfeld_bench.drivers.transactions.producer import RETRIABLE
from blumfeld_bench.drivers.transactions.requests import begin_producer
from campaigns.bench.counting.lockstep import RECORD_BYTES, connect, make_topic

TOPIC = "many"
PARTITIONS = 100
WARM_UP_REQUESTS = 64
RETRIES = 100
RETRY_S = 0.05
"""A leader needs a moment after its topic was created, and a marker may be under way yet."""
MARKERS_S = 0.3
"""Pause before the next transactions, in which the markers of the last ones are written. EndTxn is answered before.
In a server that is slowed down for counting a producer would come back too early, and repeat its requests."""


class ManyPartitions:
    """A :class:`~campaigns.bench.counting.lockstep.Load`: Produce requests of one batch to each of 100 partitions."""

    warm_up_requests = WARM_UP_REQUESTS

    def __init__(self, port: int, connections: int) -> None:
        make_topic(port, TOPIC, PARTITIONS)
        self._sockets = [connect(port) for _ in range(connections)]
        self._frame = frame = produce_frame(None, 2, transactional=False)
        for _ in range(RETRIES):
            self._sockets[0].send(bytes(frame.data))
            if not frame.codes(bytes(self._sockets[0].receive())):
                break
            time.sleep(RETRY_S)

    def run(self, count: int) -> None:
        """See :meth:`Load.run <campaigns.bench.counting.lockstep.Load.run>`."""
        for _ in range(count // len(self._sockets)):
            for sock in self._sockets:
                sock.send(bytes(self._frame.data))
            for sock in self._sockets:
                codes = self._frame.codes(bytes(sock.receive()))
                if codes:
                    raise RuntimeError(f"produce was answered with {codes}")

    def close(self) -> None:
        """Close the connections."""
        for sock in self._sockets:
            sock.close()


class Transactions:
    """A :class:`~campaigns.bench.counting.lockstep.Load`: each producer writes one batch to each of 100 partitions and
    commits. A request is a whole transaction, with the requests of ``transaction.version`` 2.
    """

    warm_up_requests = WARM_UP_REQUESTS
    version = 2

    def __init__(self, port: int, connections: int) -> None:
        make_topic(port, TOPIC, PARTITIONS)
        self._producers = [_Producer(port, f"counted-{at}", self.version) for at in range(connections)]

    def run(self, count: int) -> None:
        """See :meth:`Load.run <campaigns.bench.counting.lockstep.Load.run>`."""
        for _ in range(count // len(self._producers)):
            for _ in zip(*(producer.transaction() for producer in self._producers), strict=True):
                pass
            time.sleep(MARKERS_S)

    def close(self) -> None:
        """Close the connections."""
        for producer in self._producers:
            producer.close()


class OldTransactions(Transactions):
    """The same with the requests of ``transaction.version`` 0."""

    version = 0


class _Producer:
    """One producer and its connection, which is to the only broker."""

    def __init__(self, port: int, transactional_id: str, version: int) -> None:
        _, (self._id, self._epoch) = begin_producer(("127.0.0.1", port), transactional_id)
        self._own_epochs = version >= OWN_EPOCHS
        self._add: AddPartitionsFrame | None = None
        if not self._own_epochs:
            producer = (self._id, self._epoch)
            self._add = AddPartitionsFrame(transactional_id, producer, TOPIC, range(PARTITIONS))
        self._produce = produce_frame(transactional_id, version, transactional=True)
        self._end = EndFrame(transactional_id, version)
        self._sequences: dict[int, int] = {}
        self._socket = connect(port)

    def transaction(self) -> Iterator[None]:
        """One transaction. Each request is sent with one step, and its answer is read with the next. Its batches are
        sealed before: between two sends that would give the server time for a turn.
        """
        self._produce.seal(self._id, self._epoch, self._sequences)
        yield
        if self._add is not None:
            for _ in self._ask(self._add, self._add.codes):
                yield
        for _ in self._ask(self._produce, self._produce.codes):
            yield
        self._end.of(self._id, self._epoch)
        for _ in self._ask(self._end, self._ended):
            yield

    def _ask(self, frame: Frame, codes: Callable[[bytes], Sequence[int]]) -> Iterator[None]:
        self._socket.send(bytes(frame.data))
        yield
        tries = RETRIES
        while (
            (error_codes := set(codes(bytes(self._socket.receive())))) and error_codes <= RETRIABLE and tries
        ):
            tries -= 1
            time.sleep(RETRY_S)
            self._socket.send(bytes(frame.data))
        if error_codes:
            raise RuntimeError(f"{type(frame).__name__} was answered with {sorted(error_codes)}")
        yield

    def _ended(self, answer: bytes) -> Sequence[int]:
        code, following = self._end.outcome(answer)
        if code:
            return (code,)
        if following is not None:
            self._id, self._epoch = following
        else:
            self._sequences = {at: self._sequences.get(at, 0) + 1 for at in range(PARTITIONS)}
        return ()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def produce_frame(transactional_id: str | None, version: int, *, transactional: bool) -> ProduceFrame:
    """Return a Produce request of one record to each partition."""
    now_ms = time.time_ns() // 1_000_000
    batches = {}
    for index in range(PARTITIONS):
        record = Record(offset=0, timestamp=now_ms, key=None, value=os.urandom(RECORD_BYTES))
        batches[index] = bytes(build_batch([record], transactional=transactional))
    return ProduceFrame(transactional_id, TOPIC, batches, version)
