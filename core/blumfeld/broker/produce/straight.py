"""The straight way of Produce: a request with one batch, served without the message codec. Nearly all requests take it.

Anything unusual (another shape, an error, an internal topic) goes the general way. That is safe because nothing was
changed by then: the general way starts from the same state, finds the same error and answers it.

:class:`StraightTransactional` serves a batch of a transaction that is open in its partition. The first batch of a
transaction goes the general way, because the coordinator must verify its partition (KIP-890). From then on the
partition knows the transaction, and the following batches need no question.
"""

from __future__ import annotations

import struct

from blumfeld.broker.ports import Ports
from blumfeld.broker.produce.frame import FrameShape, OneBatch
from blumfeld.broker.replicas.partition import Partition
from blumfeld.broker.replicas.rules.append_rules import ZSTD_FROM
from blumfeld.broker.replicas.waiting_appends import ACKS_ALL
from blumfeld.broker.serving.dispatch import Dispatcher, Route
from blumfeld.spi.internal_topics import is_internal
from blumfeld.spi.transport import Exchange
from blumfeld.wire.api import ApiKey
from blumfeld.wire.batches.record_batch import TRANSACTIONAL_BIT, RecordBatch
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.errors import BrokerError, ErrorCode

PREFIXES_MAX = 4096
"""Request prefixes that are remembered for each version. A client can send any number of them, so at this bound all are
forgotten and resolved again."""
_NONE = ErrorCode.NONE
_ZSTD = Codec.ZSTD.value
_PRODUCE = int(ApiKey.PRODUCE)


class StraightProduce:
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
        self.general_bits = TRANSACTIONAL_BIT | (_ZSTD if general.version < ZSTD_FROM else 0)
        """Attribute bits that send a batch the general way: transactional ones always, zstd before Produce v7
        (KIP-110). Among the codec numbers only zstd's has bit 2 set, so one mask tests for it."""
        self._targets: dict[bytes, Target] = {}
        self._transactional: StraightTransactional | None = None
        self.generation = -1
        """The partitions' generation for which the remembered targets hold."""

    def serve(self, exchange: Exchange, frame: memoryview, position: int, correlation_id: int) -> None:
        """As ``Serve.serve``."""
        # A partition came, went or changed its leader: every remembered target may be stale.
        if self.generation != self._manager.generation:
            self._targets.clear()
            self.generation = self._manager.generation
        try:
            end = position + self._prefix_bytes + frame[position + self._name_length_at]
            prefix = frame[position:end].tobytes()
            at = self._records(frame, end)
        except (IndexError, struct.error):  # the frame is cut off
            prefix, at = b"", -1
        target = self._targets.get(prefix) or self._resolve(prefix)
        if target is None or at < 0:
            self._otherwise(exchange, frame, position, correlation_id)
            return
        pending = target.waiter(self, exchange, target, correlation_id, len(frame))
        try:
            batch = RecordBatch(frame, at)
            if batch.size_bytes != len(frame) - at - self._tail or batch.attributes & self.general_bits:
                self.general.serve(exchange, frame, position, correlation_id)
                return
            pending.base_offset, pending.append_ms = target.partition.append(batch, target.acks, pending)
        except BrokerError:
            # append places nothing when it raises, so the general way may try again; it answers with the details.
            self.general.serve(exchange, frame, position, correlation_id)
            return
        pending.placed()

    def _otherwise(self, exchange: Exchange, frame: memoryview, position: int, correlation_id: int) -> None:
        """Serve a request of another shape: with a transactional id perhaps the straight way, too."""
        try:
            with_id = self._shape.transactional_id_bytes(frame, position) > 0
        except (IndexError, struct.error):  # the frame is cut off
            with_id = False
        if with_id:
            transactional = self._transactional or self._load_transactional()
            if transactional.serve(exchange, frame, position, correlation_id):
                return
        self.general.serve(exchange, frame, position, correlation_id)

    def _load_transactional(self) -> StraightTransactional:
        self._transactional = StraightTransactional(self, self._shape)
        return self._transactional

    def _resolve(self, prefix: bytes) -> Target | None:
        target = self.target_of(prefix)
        if target is not None:
            if len(self._targets) >= PREFIXES_MAX:
                self._targets.clear()
            self._targets[prefix] = target
        return target

    def target_of(self, prefix: bytes) -> Target | None:
        """Returns the target of requests with this prefix; ``None`` if they go the general way."""
        one = self._shape.parse_prefix(prefix)
        # An authorizer must be asked for each request, and a target is remembered across requests.
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
        return Target(one, partition, self.general.version)


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
        "frame_bytes",
        "received_ms",
        "target",
        "way",
    )

    append_ms: int
    base_offset: int
    received_ms: float
    """Monotonic time of the partition's first append in this turn: the start of the request's measured time. One clock
    reading serves all requests of the turn."""

    def __init__(
        self, way: StraightProduce, exchange: Exchange, target: Target, correlation_id: int, frame_bytes: int
    ) -> None:
        self.way = way
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
        self.received_ms = self.target.partition.placing_began_ms
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
        counts = self.way.counts
        if counts is not None:
            elapsed_ms = target.partition.told_ms - self.received_ms
            if counts.measured and not counts.above_ms < elapsed_ms <= counts.up_to_ms:
                counts.enter_bucket(elapsed_ms)
            counts.requests += 1
            counts.time_ms += elapsed_ms
            counts.request_bytes += self.frame_bytes
            counts.response_bytes += len(answer)

    def _count_error(self, code: ErrorCode) -> None:
        if self.way.counts is not None:
            self.way.counts.failed(int(code))


class OneCommitted(OneWritten):
    """A request with acks=all that waits until its batch is committed."""

    __slots__ = ()

    @property
    def commit_wait_ms(self) -> float | None:
        """As ``AppendWaiter.commit_wait_ms``."""
        return self.target.one.timeout_ms


class StraightTransactional:
    """Serves the transactional requests of one version, behind ``StraightProduce``."""

    def __init__(self, way: StraightProduce, shape: FrameShape) -> None:
        self._way = way
        self._shape = shape
        self._records = shape.flexible_records if shape.flexible else shape.old_records
        self._tail = 3 if shape.flexible else 0
        self._bits = way.general_bits
        self._targets: dict[bytes, Target] = {}
        self._generation = -1
        # Imported with the first transactional request, so that a start doesn't pay for it.
        from blumfeld.broker.produce.transactional import is_open_for

        self._is_open_for = is_open_for

    def serve(self, exchange: Exchange, frame: memoryview, position: int, correlation_id: int) -> bool:
        """Serve a request as ``Serve.serve``. Returns False if it must go the general way."""
        way = self._way
        if self._generation != way.generation:
            self._targets.clear()
            self._generation = way.generation
        try:
            id_bytes = self._shape.transactional_id_bytes(frame, position)
            if id_bytes <= 0:
                return False
            end = self._shape.prefix_end(frame, position + id_bytes)
            prefix = frame[position:end].tobytes()
            at = self._records(frame, end)
        except (IndexError, struct.error):  # the frame is cut off
            return False
        target = self._targets.get(prefix) or self._resolve(prefix, id_bytes)
        if target is None or at < 0:
            return False
        pending = target.waiter(way, exchange, target, correlation_id, len(frame))
        try:
            batch = RecordBatch(frame, at)
            if (
                batch.size_bytes != len(frame) - at - self._tail
                or batch.attributes & self._bits != TRANSACTIONAL_BIT
                or not self._is_open_for(target.partition.state.producers.producer(batch.producer_id), batch)
            ):
                return False
            pending.base_offset, pending.append_ms = target.partition.append(batch, target.acks, pending)
        except BrokerError:
            return False
        pending.placed()
        return True

    def _resolve(self, prefix: bytes, id_bytes: int) -> Target | None:
        if self._way.ports.transactions() is None:
            return None
        target = self._way.target_of(self._shape.without_id(prefix, id_bytes))
        if target is not None:
            if len(self._targets) >= PREFIXES_MAX:
                self._targets.clear()
            self._targets[prefix] = target
        return target
