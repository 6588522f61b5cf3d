"""One transactional producer of a driver process: its connections, and its transactions one after the other."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic_ns

import attrs

from blumfeld.client.errors import error_name
from blumfeld.wire.errors import ErrorCode
from blumfeld_bench.drivers.frames import Frame
from blumfeld_bench.drivers.line import Line
from blumfeld_bench.drivers.loop import Loop
from blumfeld_bench.drivers.meter import Meter
from blumfeld_bench.drivers.transactions.frames import (
    OWN_EPOCHS,
    AddPartitionsFrame,
    EndFrame,
    ProduceFrame,
)

Address = tuple[str, int]
Later = Callable[[int, Callable[[], None]], None]
"""Type of a function that calls back after a number of milliseconds."""

FIRST_RETRY_MS = 20
"""Java's pause before it adds partitions to a transaction whose predecessor isn't complete yet."""
RETRY_MS = 100
"""Java's ``retry.backoff.ms``."""
RETRIABLE = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    )
)


@attrs.frozen
class Writes:
    """The requests of a transaction on one set of partitions."""

    partitions: Sequence[int]
    add: AddPartitionsFrame | None
    """The request that adds partitions; only a transaction of version 0 sends it."""
    produce: Mapping[Address, ProduceFrame]
    """The Produce request of each leader."""


class TransactionalProducer:
    """Begins a transaction, writes one batch to each of its partitions, commits, and begins the next.

    Every step waits for the answers of the step before, as in the clients. The latency of a transaction counts from
    its first request to the answer that it is committed. A pause that the broker asks for is part of it.
    """

    def __init__(
        self,
        *,
        loop: Loop,
        meter: Meter,
        later: Later,
        sockets: Mapping[Address, socket.socket],
        coordinator: Address,
        producer: tuple[int, int],
        version: int,
        writes: Sequence[Writes],
        end: EndFrame,
        batch_records: int,
        value_bytes: int,
    ) -> None:
        """:param sockets: a connection to each broker that leads a partition, and to the coordinator
        :param producer: producer id and epoch
        :param value_bytes: bytes of record values of a transaction
        """
        self._meter, self._later = meter, later
        self._lines = {address: _Requests(loop, sock, self.fail) for address, sock in sockets.items()}
        self._coordinator = self._lines[coordinator]
        self._id, self._epoch = producer
        self._own_epochs = version >= OWN_EPOCHS
        self._writes: Iterator[Writes] = itertools.cycle(writes)
        self._now = writes[0]
        self._end = end
        self._batch_records, self._value_bytes = batch_records, value_bytes
        self._sequences: dict[int, int] = {}
        self._left = 0
        self._began_ns = 0
        self._stopped = False
        self.busy = False
        """Whether a transaction is open."""
        self.failed = False
        self.committed_records = 0
        self.pauses = 0
        """Number of pauses before a request was sent again."""

    def start(self) -> None:
        """Begin transactions from now on."""
        self._begin()

    def stop(self) -> None:
        """Begin no more transactions; an open one goes on to its commit."""
        self._stopped = True

    def fail(self, what: object) -> None:
        """Begin no more transactions: the connection or the transaction has ended."""
        if not self.failed:
            self._meter.fault(f"a producer ended: {what}")
        self.failed, self.busy = True, False

    def _begin(self) -> None:
        self.busy = True
        self._began_ns = monotonic_ns()
        self._now = next(self._writes)
        if self._now.add is None:
            self._produce()
        else:
            self._add()

    def _add(self) -> None:
        add = self._now.add
        assert add is not None

        def added(answer: bytes) -> None:
            codes = add.codes(answer)
            if not codes:
                self._produce()
            else:
                self._again(codes, FIRST_RETRY_MS, self._add, "AddPartitionsToTxn")

        self._coordinator.ask(add, added)

    def _produce(self) -> None:
        self._left = len(self._now.produce)
        for leader, frame in self._now.produce.items():
            frame.seal(self._id, self._epoch, self._sequences)
            self._send(leader, frame)

    def _send(self, leader: Address, frame: ProduceFrame) -> None:
        self._lines[leader].ask(frame, partial(self._produced, leader, frame))

    def _produced(self, leader: Address, frame: ProduceFrame, answer: bytes) -> None:
        codes = frame.codes(answer)
        if codes:
            # A batch that was taken is a repeated one then, and is answered like the first.
            self._again(codes, RETRY_MS, lambda: self._send(leader, frame), "Produce")
            return
        self._left -= 1
        if not self._left:
            self._commit()

    def _commit(self) -> None:
        if not self._own_epochs:
            for index in self._now.partitions:
                self._sequences[index] = self._sequences.get(index, 0) + self._batch_records
        self._ask_end()

    def _ask_end(self) -> None:
        self._end.of(self._id, self._epoch)
        self._coordinator.ask(self._end, self._ended)

    def _ended(self, answer: bytes) -> None:
        code, following = self._end.outcome(answer)
        if code:
            self._again((code,), FIRST_RETRY_MS, self._ask_end, "EndTxn")
            return
        if following is not None:
            self._id, self._epoch = following
        meter, now = self._meter, monotonic_ns()
        records = self._batch_records * len(self._now.partitions)
        meter.ack(self._began_ns, now)
        meter.requests += 1
        meter.records += records
        meter.bytes += self._value_bytes
        self.committed_records += records
        self.busy = False
        if not self._stopped:
            self._begin()

    def _again(self, codes: Sequence[int], delay_ms: int, action: Callable[[], None], what: str) -> None:
        bad = next((code for code in codes if code and code not in RETRIABLE), None)
        if bad is not None:
            self.fail(f"{what}: {error_name(bad)}")
            return
        self.pauses += 1
        self._later(delay_ms, action)

    def close(self) -> None:
        """Close all connections."""
        for line in self._lines.values():
            line.close()


class _Requests:
    """A producer's numbered requests to one broker, one after the other."""

    def __init__(self, loop: Loop, sock: socket.socket, broken: Callable[[Exception], None]) -> None:
        self._line = Line(loop, sock, self._taken, broken)
        self._broken = broken
        self._number = 0
        self._answered: Callable[[bytes], None] | None = None

    def ask(self, frame: Frame, answered: Callable[[bytes], None]) -> None:
        self._number += 1
        frame.number(self._number)
        self._answered = answered
        self._line.send(frame.data)

    def _taken(self, answer: bytes) -> None:
        answered, self._answered = self._answered, None
        number = int.from_bytes(answer[:4], "big")
        if answered is None or number != self._number:
            self._broken(ValueError(f"answer {number} where {self._number} was expected"))
            return
        answered(answer)

    def close(self) -> None:
        self._line.close()
