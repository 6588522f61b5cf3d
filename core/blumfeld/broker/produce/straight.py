"""The straight way of Produce: a request with one batch, served without the message codec. Nearly all requests take it.

Anything unusual (another shape, an error, an internal topic) goes the general way. That is safe because nothing was
changed by then: the general way starts from the same state, finds the same error and answers it. Transactional requests
are served by :mod:`blumfeld.broker.produce.straight_transactional` where they can.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from blumfeld.broker.ports import Ports
from blumfeld.broker.produce.frame import FrameShape
from blumfeld.broker.produce.straight_target import PREFIXES_MAX, Target
from blumfeld.broker.replicas.rules.append_rules import ZSTD_FROM
from blumfeld.broker.replicas.waiting_appends import ACKS_ALL
from blumfeld.broker.serving.dispatch import Dispatcher, Route
from blumfeld.spi.internal_topics import is_internal
from blumfeld.spi.transport import Exchange
from blumfeld.wire.api import ApiKey
from blumfeld.wire.batches.record_batch import TRANSACTIONAL_BIT, RecordBatch
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.errors import BrokerError

if TYPE_CHECKING:
    from blumfeld.broker.produce.straight_transactional import StraightTransactional

_ZSTD = Codec.ZSTD.value
_PRODUCE = int(ApiKey.PRODUCE)


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
            pending.base_offset = target.partition.append(batch, target.acks, pending)
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
        from blumfeld.broker.produce.straight_transactional import StraightTransactional

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
