"""Produce requests of one batch without the codec: the way that nearly every request takes.

What is not plain sailing (another shape, an error, an internal topic, a transaction) goes the general way, which
then finds the same thing and says so: nothing has been changed by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blumfeld.broker.dispatch import Dispatcher, Route
from blumfeld.broker.handlers.common import is_internal
from blumfeld.broker.partitions import ACKS_ALL, Partition
from blumfeld.broker.produce_frame import FrameShape, OneBatch
from blumfeld.spi.runtime import Phase
from blumfeld.spi.transport import Exchange
from blumfeld.wire.compression import Codec
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.record_batch import CODEC_MASK, TRANSACTIONAL_BIT, RecordBatch

if TYPE_CHECKING:
    from blumfeld.broker.broker import Broker

PREFIXES_MAX = 4096
"""Different beginnings of requests that are remembered for a version; then all are forgotten."""
_ZSTD = Codec.ZSTD.value
_NONE = ErrorCode.NONE


class Target:
    """Where requests with a certain prefix go."""

    __slots__ = ("one", "partition", "response")

    def __init__(self, one: OneBatch, partition: Partition, version: int) -> None:
        self.one = one
        self.partition = partition
        self.response = one.response if version >= 5 else one.response_v3


class FastProduce:
    """Serves Produce of one version: implements ``dispatch.Serve`` in front of the general route."""

    def __init__(self, broker: Broker, dispatcher: Dispatcher, general: Route) -> None:
        self.flexible = general.flexible
        self.broker = broker
        self.general = general
        self.counts = None if dispatcher.metrics is None else TurnCounts(broker, dispatcher, general.version)
        self._dispatcher = dispatcher
        self._manager = broker.partitions
        self._shape = shape = FrameShape(general.version)
        self._prefix_bytes, self._name_length_at = shape.prefix_bytes, shape.name_length_at
        self._records = shape.flexible_records if general.flexible else shape.old_records
        self._tail = 3 if general.flexible else 0
        self._old = general.version < 7
        self._targets: dict[bytes, Target] = {}
        self._generation = -1

    def serve(self, exchange: Exchange, frame: memoryview, position: int, correlation_id: int) -> None:
        """As ``Serve.serve``."""
        if self._generation != self._manager.generation:
            self._targets.clear()
            self._generation = self._manager.generation
        try:
            end = position + self._prefix_bytes + frame[position + self._name_length_at]
            prefix = bytes(frame[position:end])
            target = self._targets.get(prefix) or self._resolve(prefix)
            at = self._records(frame, end)
        except IndexError:  # the frame is cut off
            target, at = None, -1
        if target is None or at < 0:
            self.general.serve(exchange, frame, position, correlation_id)
            return
        try:
            batch = RecordBatch(frame, at)
            attributes = batch.attributes
            if (
                batch.size_bytes != len(frame) - at - self._tail
                or attributes & TRANSACTIONAL_BIT
                or (self._old and attributes & CODEC_MASK == _ZSTD)
            ):
                self.general.serve(exchange, frame, position, correlation_id)
                return
            pending = OnePending(self, exchange, target, correlation_id)
            partition = target.partition
            acks = target.one.acks
            pending.base_offset = partition.append(batch, acks, pending)
        except BrokerError:
            self.general.serve(exchange, frame, position, correlation_id)
            return
        pending.append_ms = partition.append_ms
        counts = self.counts
        if counts is not None:
            if not counts.due:
                counts.begin()
            counts.request_bytes += len(frame)
            pending.received_ms = counts.now_ms
        if acks == ACKS_ALL:
            self.broker.runtime.at_end_of_turn(Phase.COMPLETE, pending.park)
        exchange.let_next_start()

    def _resolve(self, prefix: bytes) -> Target | None:
        one = self._shape.parse_prefix(prefix)
        # Who may write is asked for each request, so with an authorizer all go the general way.
        if one is None or one.acks not in (ACKS_ALL, 0, 1) or self._dispatcher.authorizer is not None:
            return None
        if self._shape.topic_ids:
            partition = self._manager.find_by_id(one.topic, one.index)
        else:
            try:
                partition = self._manager.find(one.topic.decode(), one.index)
            except UnicodeDecodeError:
                return None
        if partition is None or is_internal(partition.partition.topic):
            return None
        if len(self._targets) >= PREFIXES_MAX:
            self._targets.clear()
        target = self._targets[prefix] = Target(one, partition, self.general.version)
        return target


class TurnCounts:
    """What the metrics are told of the requests of a turn, once, at its end."""

    __slots__ = (
        "_dispatcher",
        "_runtime",
        "_version",
        "answered",
        "due",
        "now_ms",
        "received_ms",
        "request_bytes",
        "response_bytes",
    )

    def __init__(self, broker: Broker, dispatcher: Dispatcher, version: int) -> None:
        self._runtime = broker.runtime
        self._dispatcher = dispatcher
        self._version = version
        self.due = False
        """Whether the metrics are told at the end of this turn."""
        self.now_ms = 0.0
        """When this turn's first request came."""
        self.answered = 0
        self.received_ms = 0.0
        """Of those that were answered, summed."""
        self.request_bytes = 0
        self.response_bytes = 0

    def begin(self) -> None:
        """Something is to be counted in this turn."""
        self.due = True
        self.now_ms = self._runtime.monotonic_ms()
        self._runtime.at_end_of_turn(Phase.COMPLETE, self._end)

    def _end(self) -> None:
        self.due = False
        answered, self.answered = self.answered, 0
        elapsed_ms = answered * self._runtime.monotonic_ms() - self.received_ms
        metrics = self._dispatcher.metrics
        assert metrics is not None
        metrics.served(0, self._version, self.request_bytes, self.response_bytes, elapsed_ms, answered)
        self.received_ms = 0.0
        self.request_bytes = self.response_bytes = 0


class OnePending:
    """A request whose one batch is placed; implements ``AppendWaiter`` and, if need be, ``ParkedOperation``."""

    __slots__ = (
        "append_ms",
        "base_offset",
        "correlation_id",
        "done",
        "exchange",
        "fast",
        "parked",
        "received_ms",
        "target",
    )

    append_ms: int
    base_offset: int
    received_ms: float
    """As of the turn; set if there are metrics."""

    def __init__(self, fast: FastProduce, exchange: Exchange, target: Target, correlation_id: int) -> None:
        self.fast = fast
        self.exchange = exchange
        self.target = target
        self.correlation_id = correlation_id
        self.done = self.parked = False

    def appended(self, code: ErrorCode) -> None:
        """As ``AppendWaiter.appended``."""
        if self.done:
            return
        self.done = True
        target = self.target
        answer = b""
        if target.one.acks == 0:
            self.exchange.no_answer()
            if code is not _NONE:
                self.exchange.connection.close(f"produce with acks=0 failed: {code.name}")
        elif code is _NONE:
            start = target.partition.log.log_start_offset
            answer = target.response(self.correlation_id, 0, self.base_offset, self.append_ms, start)
            self.exchange.answer((answer,))
        else:
            answer = target.response(self.correlation_id, int(code), -1, -1, -1)
            self.exchange.answer((answer,))
        counts = self.fast.counts
        if counts is not None:
            if not counts.due:
                counts.begin()
            counts.answered += 1
            counts.received_ms += self.received_ms
            counts.response_bytes += len(answer)
        if self.parked:
            self.fast.broker.parking.wake(self)

    def park(self) -> None:
        """acks=all was not reached within the turn: wait for it, or for the request's timeout."""
        if not self.done:
            self.parked = True
            self.fast.broker.parking.park(self, (self,), self.target.one.timeout_ms)

    def try_complete(self) -> bool:
        """As ``ParkedOperation.try_complete``."""
        return self.done

    def expire(self) -> None:
        """The time is up: what is not committed yet may still become so."""
        self.appended(ErrorCode.REQUEST_TIMED_OUT)
