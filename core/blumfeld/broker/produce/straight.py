"""Produce requests of one batch without the codec: the way that nearly every request takes.

What is not plain sailing (another shape, an error, an internal topic, a transaction) goes the general way, which
then finds the same thing and says so: nothing has been changed by then.
"""

from __future__ import annotations

import struct

from blumfeld.broker.handlers.common import is_internal
from blumfeld.broker.ports import Ports
from blumfeld.broker.produce.frame import FrameShape, OneBatch
from blumfeld.broker.replicas.partition import ACKS_ALL, Partition
from blumfeld.broker.serving.dispatch import Dispatcher, Route
from blumfeld.spi.runtime import Phase
from blumfeld.spi.transport import Exchange
from blumfeld.wire.api import ApiKey
from blumfeld.wire.compression import Codec
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.record_batch import TRANSACTIONAL_BIT, RecordBatch

PREFIXES_MAX = 4096
"""Different beginnings of requests that are remembered for a version; then all are forgotten."""
ZSTD_FROM = 7
_ZSTD = Codec.ZSTD.value
_NONE = ErrorCode.NONE
_PRODUCE = int(ApiKey.PRODUCE)


class Target:
    """Where requests with a certain prefix go."""

    __slots__ = ("acks", "one", "partition", "response", "waiter")

    def __init__(self, one: OneBatch, partition: Partition, version: int) -> None:
        self.one = one
        self.acks = one.acks
        self.partition = partition
        self.response = one.response if version >= 5 else one.response_v3
        self.waiter = OneCommitted if one.acks == ACKS_ALL else OneWritten


class FastProduce:
    """Serves Produce of one version: implements ``dispatch.Serve`` in front of the general route."""

    def __init__(self, ports: Ports, dispatcher: Dispatcher, general: Route) -> None:
        self.flexible = general.flexible
        self.ports = ports
        self.general = general
        self.counts = None if dispatcher.metrics is None else dispatcher.metrics.counts_of(_PRODUCE)
        self._dispatcher = dispatcher
        self._manager = ports.hosted
        self._shape = shape = FrameShape(general.version)
        self._prefix_bytes, self._name_length_at = shape.prefix_bytes, shape.name_length_at
        self._records = shape.flexible_records if general.flexible else shape.old_records
        self._tail = 3 if general.flexible else 0
        self._general_bits = TRANSACTIONAL_BIT | (_ZSTD if general.version < ZSTD_FROM else 0)
        """Of a batch's attributes: zstd's bit no other codec has that there is."""
        self._targets: dict[bytes, Target] = {}
        self._generation = -1

    def serve(self, exchange: Exchange, frame: memoryview, position: int, correlation_id: int) -> None:
        """As ``Serve.serve``."""
        if self._generation != self._manager.generation:
            self._targets.clear()
            self._generation = self._manager.generation
        try:
            end = position + self._prefix_bytes + frame[position + self._name_length_at]
            prefix = frame[position:end].tobytes()
            target = self._targets.get(prefix) or self._resolve(prefix)
            at = self._records(frame, end)
        except (IndexError, struct.error):  # the frame is cut off
            target, at = None, -1
        if target is None or at < 0:
            self.general.serve(exchange, frame, position, correlation_id)
            return
        pending = target.waiter(self, exchange, target, correlation_id, len(frame))
        try:
            batch = RecordBatch(frame, at)
            if batch.size_bytes != len(frame) - at - self._tail or batch.attributes & self._general_bits:
                self.general.serve(exchange, frame, position, correlation_id)
                return
            pending.base_offset = target.partition.append(batch, target.acks, pending)
        except BrokerError:
            self.general.serve(exchange, frame, position, correlation_id)
            return
        pending.placed()

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


class OneWritten:
    """A request whose one batch is to be written (acks=0, acks=1): implements ``AppendWaiter``."""

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
    """When the partition's turn began, in which it was received."""

    def __init__(
        self, fast: FastProduce, exchange: Exchange, target: Target, correlation_id: int, frame_bytes: int
    ) -> None:
        self.fast = fast
        self.exchange = exchange
        self.target = target
        self.correlation_id = correlation_id
        self.frame_bytes = frame_bytes

    def placed(self) -> None:
        """The batch has its offsets: the connection's next request may start."""
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
                self.exchange.connection.close(f"produce with acks=0 failed: {code.name}")
        else:
            if code is _NONE:
                start = target.partition.log.log_start_offset
                answer = target.response(self.correlation_id, 0, self.base_offset, self.append_ms, start)
            else:
                answer = target.response(self.correlation_id, int(code), -1, -1, -1)
            self.exchange.answer((answer,))
        counts = self.fast.counts
        if counts is not None:
            counts.requests += 1
            counts.time_ms += target.partition.told_ms - self.received_ms
            counts.request_bytes += self.frame_bytes
            counts.response_bytes += len(answer)


class OneCommitted(OneWritten):
    """A request whose one batch is to be committed (acks=all); implements ``ParkedOperation``, should it last."""

    __slots__ = ("done", "parked")

    def placed(self) -> None:
        """As :meth:`OneWritten.placed`; at the end of the turn it is known whether it has to wait."""
        self.done = self.parked = False
        super().placed()
        self.fast.ports.runtime.at_end_of_turn(Phase.COMPLETE, self.park)

    def appended(self, code: ErrorCode) -> None:
        """As ``AppendWaiter.appended``; after the time-out nothing comes of it."""
        if self.done:
            return
        self.done = True
        super().appended(code)
        if self.parked:
            self.fast.ports.parking.wake(self)

    def park(self) -> None:
        """It was not committed within the turn: wait for it, or for the request's timeout."""
        if not self.done:
            self.parked = True
            self.fast.ports.parking.park(self, (self,), self.target.one.timeout_ms)

    def try_complete(self) -> bool:
        """As ``ParkedOperation.try_complete``."""
        return self.done

    def expire(self) -> None:
        """The time is up: what is not committed yet may still become so."""
        self.target.partition.tells()
        self.appended(ErrorCode.REQUEST_TIMED_OUT)
