"""What requests of the straight way append to, and how each of them waits and is answered."""

from __future__ import annotations

from typing import Protocol

from blumfeld.broker.ports import Ports
from blumfeld.broker.produce.frame import OneBatch
from blumfeld.broker.replicas.partition import Partition
from blumfeld.broker.replicas.waiting_appends import ACKS_ALL
from blumfeld.broker.serving.dispatch import ApiCounts
from blumfeld.spi.transport import Exchange
from blumfeld.wire.errors import ErrorCode

PREFIXES_MAX = 4096
"""Request prefixes that are remembered for each version. A client can send any number of them, so at this bound all are
forgotten and resolved again."""
_NONE = ErrorCode.NONE


class StraightWay(Protocol):
    """The straight way of one version of Produce, as transactional requests and requests that wait know it."""

    ports: Ports
    counts: ApiCounts | None
    """Counters of Produce; ``None`` where nothing is counted."""
    general_bits: int
    """Attribute bits that send a batch the general way."""
    generation: int
    """The partitions' generation for which remembered targets hold."""

    def target_of(self, prefix: bytes) -> Target | None:
        """Returns the target of requests with this prefix; ``None`` if they go the general way."""
        ...


class Target:
    """The partition that requests with one prefix append to, and the way to answer them."""

    __slots__ = ("acks", "one", "partition", "response", "waiter")

    def __init__(self, one: OneBatch, partition: Partition, version: int) -> None:
        self.one = one
        self.acks = one.acks
        self.partition = partition
        self.response = one.response if version >= 5 else one.response_v3
        self.waiter = OneCommitted if one.acks == ACKS_ALL else OneWritten


class OneWritten:
    """A request with acks=0 or acks=1 that waits until its batch is written. Implements ``AppendWaiter``."""

    __slots__ = (
        "append_ms",
        "base_offset",
        "correlation_id",
        "exchange",
        "fast",
        "frame_bytes",
        "received_ms",
        "target",
    )

    append_ms: int
    base_offset: int
    received_ms: float
    """Monotonic time of the partition's first append in this turn: the start of the request's measured time. One clock
    reading serves all requests of the turn."""

    def __init__(
        self, fast: StraightWay, exchange: Exchange, target: Target, correlation_id: int, frame_bytes: int
    ) -> None:
        self.fast = fast
        self.exchange = exchange
        self.target = target
        self.correlation_id = correlation_id
        self.frame_bytes = frame_bytes

    @property
    def commit_wait_ms(self) -> float | None:
        """As ``AppendWaiter.commit_wait_ms``: nothing is waited for but the write."""
        return None

    def placed(self) -> None:
        """Let the connection's next request start: this batch has its offsets, so order is kept."""
        partition = self.target.partition
        self.append_ms = partition.append_ms
        self.received_ms = partition.placing_began_ms
        self.exchange.let_next_start()

    def appended(self, code: ErrorCode) -> None:
        """As ``AppendWaiter.appended``."""
        target = self.target
        answer = b""
        if target.acks == 0:
            self.exchange.no_answer()
            if code is not _NONE:
                self._count_error(code)
                self.exchange.connection.close(f"produce with acks=0 failed: {code.name}")
        else:
            if code is _NONE:
                start = target.partition.log.log_start_offset
                answer = target.response(self.correlation_id, 0, self.base_offset, self.append_ms, start)
            else:
                self._count_error(code)
                answer = target.response(self.correlation_id, int(code), -1, -1, -1)
            self.exchange.answer((answer,))
        counts = self.fast.counts
        if counts is not None:
            elapsed_ms = target.partition.told_ms - self.received_ms
            if counts.measured and not counts.above_ms < elapsed_ms <= counts.up_to_ms:
                counts.enter_bucket(elapsed_ms)
            counts.requests += 1
            counts.time_ms += elapsed_ms
            counts.request_bytes += self.frame_bytes
            counts.response_bytes += len(answer)

    def _count_error(self, code: ErrorCode) -> None:
        if self.fast.counts is not None:
            self.fast.counts.failed(int(code))


class OneCommitted(OneWritten):
    """A request with acks=all that waits until its batch is committed."""

    __slots__ = ()

    @property
    def commit_wait_ms(self) -> float | None:
        """As ``AppendWaiter.commit_wait_ms``."""
        return self.target.one.timeout_ms
