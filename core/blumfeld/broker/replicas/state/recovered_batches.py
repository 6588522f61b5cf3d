"""Headers of the batches that recovery walked over. The replica's state is rebuilt from them without a second read."""

from __future__ import annotations

from collections.abc import Iterator

from blumfeld.wire.batches.record_batch import HEADER_BYTES, RecordBatch

KEPT_MAX = 100_000
"""Headers kept, 61 bytes each. With more, the log is read again once it is open."""
CONTROL_BYTES_MAX = 1 << 10
"""Largest control batch that is kept whole (a marker has < 100 bytes). After a larger one replay reads the log."""


class RecoveredBatches:
    """Headers of batches with a producer id and of the first batch of each leader epoch; control batches are kept
    whole.

    No other batch changes the state that is rebuilt.
    """

    __slots__ = ("_epoch", "_kept", "start_offset")

    def __init__(self) -> None:
        self.start_offset = -1
        """Base offset of the first batch that recovery walked over; -1 if there was none."""
        self._kept: list[bytes] | None = []
        self._epoch = -1

    def add(self, batch: RecordBatch) -> None:
        """As ``LogListener.recovered``."""
        if self.start_offset < 0:
            self.start_offset = batch.base_offset
        if batch.producer_id < 0 and batch.partition_leader_epoch <= self._epoch:
            return
        kept = self._kept
        if kept is None:
            return
        self._epoch = max(self._epoch, batch.partition_leader_epoch)
        if len(kept) >= KEPT_MAX or (batch.is_control and batch.size_bytes > CONTROL_BYTES_MAX):
            self._kept = None
        else:
            kept.append(bytes(batch.data if batch.is_control else batch.data[:HEADER_BYTES]))

    @property
    def complete(self) -> bool:
        """Whether :meth:`batches` has everything that matters from :attr:`start_offset` on. If not, read the log."""
        return self.start_offset >= 0 and self._kept is not None

    def batches(self, end_offset: int) -> Iterator[RecordBatch]:
        """Yields the kept batches below ``end_offset``. Their ``data`` is the header; control batches are whole."""
        for data in self._kept or ():
            batch = RecordBatch.peek(memoryview(data))
            if batch.base_offset >= end_offset:
                return
            yield RecordBatch(memoryview(data)) if batch.is_control else batch

    def clear(self) -> None:
        """Free the memory: the state is rebuilt."""
        self._kept = []
        self.start_offset = -1
