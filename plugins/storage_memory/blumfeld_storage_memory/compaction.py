"""Compaction of :mod:`blumfeld_storage_memory`: the cleaner's sources and targets, in memory."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from blumfeld.log.cleaning.cleaner_pass import BatchSpan, Buffer, clean
from blumfeld.log.producers.aborted_transactions import encode_aborted
from blumfeld.spi.compaction import AbortedTransaction, CompactionRequest, CompactionResult


class MemorySource:
    """A sealed segment, in the form that the cleaner reads."""

    def __init__(
        self, base_offset: int, next_offset: int, modified_ms: int, batches: Sequence[bytes]
    ) -> None:
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.modified_ms = modified_ms
        self._data = b"".join(batches)
        self.size_bytes = len(self._data)

    def read(self, position: int, size: int) -> bytes:
        """Return bytes of the segment."""
        return self._data[position : position + size]


class MemoryTarget:
    """A new segment that the cleaner writes."""

    def __init__(self, base_offset: int, replaced: Sequence[int]) -> None:
        self.base_offset = base_offset
        self.replaced = tuple(replaced)
        self.batches: list[bytes] = []
        self.lasts: list[int] = []
        self.modified_ms = 0
        self.transaction_index = b""

    def append(self, buffers: Sequence[Buffer], batches: Sequence[BatchSpan]) -> None:
        """Keep a copy of each batch."""
        data, position = b"".join(buffers), 0
        for span in batches:
            self.batches.append(data[position : position + span.size_bytes])
            self.lasts.append(span.last_offset)
            position += span.size_bytes

    def finish(self, aborted: Sequence[AbortedTransaction], modified_ms: int) -> None:
        """Do nothing: memory is as durable as this storage gets."""
        self.transaction_index = encode_aborted(aborted)
        self.modified_ms = modified_ms


class MemoryPass(msgspec.Struct, frozen=True):
    """The result of a cleaner pass."""

    result: CompactionResult
    targets: list[MemoryTarget]


def compact_in_memory(sources: Sequence[MemorySource], request: CompactionRequest) -> MemoryPass:
    """Run a cleaner pass at once. Raises ``OSError`` for a bad batch."""
    targets: list[MemoryTarget] = []

    def open_target(base_offset: int, replaced: Sequence[int]) -> MemoryTarget:
        targets.append(MemoryTarget(base_offset, replaced))
        return targets[-1]

    steps = clean(sources, request, open_target)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: CompactionResult = stop.value
            return MemoryPass(result, targets)
