"""What recovery walked over, as far as the state of a replica needs it: so that the log is not read a second time."""

from __future__ import annotations

from collections.abc import Iterator

from blumfeld.wire.record_batch import HEADER_BYTES, RecordBatch

KEPT_MAX = 100_000
"""Headers kept, 61 bytes each. With more, the log is read again once it is open."""
CONTROL_BYTES_MAX = 1 << 10


class RecoveredBatches:
    """Headers of batches that a producer wrote, or that begin a leader epoch; of control batches all bytes."""

    __slots__ = ("_epoch", "_kept", "start_offset")

    def __init__(self) -> None:
        self.start_offset = -1
        """The base offset of the first batch that recovery walked over; -1: it walked over none."""
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
        """Whether :meth:`batches` gives all that matters from :attr:`start_offset` on."""
        return self.start_offset >= 0 and self._kept is not None

    def batches(self, end_offset: int) -> Iterator[RecordBatch]:
        """Those below ``end_offset``; their ``data`` is the header only, except of control batches."""
        for data in self._kept or ():
            batch = RecordBatch.peek(memoryview(data))
            if batch.base_offset >= end_offset:
                return
            yield RecordBatch(memoryview(data)) if batch.is_control else batch

    def clear(self) -> None:
        """They were taken in."""
        self._kept = []
        self.start_offset = -1
