"""The straight way of Produce for a batch of a transaction that is open in its partition.

The first batch of a transaction goes the general way, because the coordinator must verify its partition (KIP-890). From
then on the partition knows the transaction, and the following batches need no question. As on the straight way, nothing
was changed when a request goes the general way after all.

The module is loaded with the first transactional request, so that a start doesn't pay for it.
"""

from __future__ import annotations

import struct

from blumfeld.broker.produce.frame import FrameShape
from blumfeld.broker.produce.straight_target import PREFIXES_MAX, StraightWay, Target
from blumfeld.broker.produce.transactional import is_open_for
from blumfeld.spi.transport import Exchange
from blumfeld.wire.batches.record_batch import TRANSACTIONAL_BIT, RecordBatch
from blumfeld.wire.errors import BrokerError


class StraightTransactional:
    """Serves the transactional requests of one version, behind ``FastProduce``."""

    def __init__(self, fast: StraightWay, shape: FrameShape) -> None:
        self._fast = fast
        self._shape = shape
        self._records = shape.flexible_records if shape.flexible else shape.old_records
        self._tail = 3 if shape.flexible else 0
        self._bits = fast.general_bits
        self._targets: dict[bytes, Target] = {}
        self._generation = -1

    def serve(self, exchange: Exchange, frame: memoryview, position: int, correlation_id: int) -> bool:
        """Serve a request as ``Serve.serve``. Returns False if it must go the general way."""
        fast = self._fast
        if self._generation != fast.generation:
            self._targets.clear()
            self._generation = fast.generation
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
        pending = target.waiter(fast, exchange, target, correlation_id, len(frame))
        try:
            batch = RecordBatch(frame, at)
            if (
                batch.size_bytes != len(frame) - at - self._tail
                or batch.attributes & self._bits != TRANSACTIONAL_BIT
                or not is_open_for(target.partition.state.producers.producer(batch.producer_id), batch)
            ):
                return False
            pending.base_offset = target.partition.append(batch, target.acks, pending)
        except BrokerError:
            return False
        pending.placed()
        return True

    def _resolve(self, prefix: bytes, id_bytes: int) -> Target | None:
        if self._fast.ports.transactions() is None:
            return None
        target = self._fast.target_of(self._shape.without_id(prefix, id_bytes))
        if target is not None:
            if len(self._targets) >= PREFIXES_MAX:
                self._targets.clear()
            self._targets[prefix] = target
        return target
