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
from blumfeld_bench.drivers.meter import Meter
from blumfeld_bench.drivers.transactions.frames import (
    OWN_EPOCHS,
    AddPartitionsFrame,
    EndFrame,
    Frame,
    ProduceFrame,
)
from blumfeld_bench.drivers.wire.loop import EPOLLOUT, Loop

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
RECEIVE_BYTES = 65536


class Line:
    """A producer's connection to one broker, with at most one request open."""

    def __init__(self, loop: Loop, sock: socket.socket, broken: Callable[[Exception], None]) -> None:
        self._loop, self._socket, self._broken = loop, sock, broken
        self._number = 0
        self._unsent = memoryview(b"")
        self._received = b""
        self._answered: Callable[[bytes], None] | None = None
        loop.add(sock, self._ready)

    def ask(self, frame: Frame, answered: Callable[[bytes], None]) -> None:
        """Send a request. ``answered`` gets its answer, without the size."""
        self._number += 1
        frame.number(self._number)
        self._answered = answered
        self._unsent = memoryview(frame.data)
        self._flush()

    def close(self) -> None:
        """Close the connection; harmless twice."""
        self._loop.remove(self._socket)
        self._socket.close()

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._broken(error)
            return
        self._unsent = self._unsent[sent:]
        if self._unsent:
            self._loop.watch_writing(self._socket, True)

    def _ready(self, mask: int) -> None:
        if mask & EPOLLOUT:
            self._loop.watch_writing(self._socket, False)
            self._flush()
        if not mask & ~EPOLLOUT:
            return
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(error)
            return
        if not data:
            self._broken(ConnectionResetError("the server hung up"))
            return
        self._received += data
        self._take()

    def _take(self) -> None:
        received = self._received
        size = 4 + int.from_bytes(received[:4], "big")
        if len(received) < max(8, size):
            return
        answered, self._answered, self._received = self._answered, None, b""
        number = int.from_bytes(received[4:8], "big")
        if answered is None or number != self._number or len(received) != size:
            self._broken(ValueError(f"answer {number} where {self._number} was expected"))
            return
        answered(received[4:])


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
        self._lines = {address: Line(loop, sock, self.fail) for address, sock in sockets.items()}
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
