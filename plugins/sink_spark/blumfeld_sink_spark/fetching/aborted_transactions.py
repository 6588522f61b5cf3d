"""Finds the batches of a fetch response that belong to aborted transactions, as a read_committed consumer does.

The response lists producer and first offset of each aborted transaction that its offsets touch. From there on the
producer's transactional batches are aborted, up to its marker.
"""

from __future__ import annotations

from collections.abc import Iterable

from blumfeld.wire.batches.control_records import ControlType, control_type_of
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import records


class AbortedTransactions:
    """Walks the batches of one response in their order."""

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        """:param transactions: producer id and first offset of each; none for a reader of uncommitted records"""
        self._ahead = sorted(((first, producer) for producer, first in transactions), reverse=True)
        self._open: set[int] = set()

    def has(self, batch: RecordBatch) -> bool:
        """Returns True where a reader must not see this batch: it is aborted, or a control batch of the broker.

        :raises InvalidRecord: a control batch whose record can't be read
        """
        while self._ahead and self._ahead[-1][0] <= batch.last_offset:
            self._open.add(self._ahead.pop()[1])
        if batch.is_control:
            if batch.producer_id in self._open and _is_abort(batch):
                self._open.remove(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self._open


def _is_abort(batch: RecordBatch) -> bool:
    marker = next(records(batch), None)
    return marker is not None and control_type_of(marker.key) is ControlType.ABORT
