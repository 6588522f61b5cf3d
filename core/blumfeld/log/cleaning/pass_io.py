"""Input and output of a cleaner pass. The driver implements both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from blumfeld.spi.compaction import AbortedTransaction

Buffer: TypeAlias = bytes | bytearray | memoryview


class BatchSpan(NamedTuple):
    """Index data of one batch that :meth:`Target.append` is given."""

    last_offset: int
    size_bytes: int
    max_timestamp_ms: int
    """Highest timestamp; -1 if no record is left, or none has a timestamp."""


class Source(Protocol):
    """A sealed segment to read, whatever stores it."""

    @property
    def base_offset(self) -> int: ...
    @property
    def next_offset(self) -> int:
        """Last offset + 1."""
        ...

    @property
    def size_bytes(self) -> int: ...
    @property
    def modified_ms(self) -> int: ...

    def read(self, position: int, size: int) -> bytes:
        """Returns the bytes at ``position``; fewer only at the end of the segment. Raises ``OSError``."""
        ...


class Target(Protocol):
    """A segment under construction."""

    def append(self, buffers: Sequence[Buffer], batches: Sequence[BatchSpan]) -> None:
        """Write whole batches, in offset order.

        :param buffers: together exactly ``batches``; one buffer may hold many. Valid only until this
            returns.
        :raises OSError: the write failed
        """
        ...

    def finish(self, aborted: Sequence[AbortedTransaction], modified_ms: int) -> None:
        """Complete the segment and make it durable. It may be empty.

        :param aborted: entries of its ``.txnindex``
        :param modified_ms: modification time that its file must have: that of the last segment that it
            replaces
        """
        ...


OpenTarget: TypeAlias = Callable[[int, Sequence[int]], Target]
"""``open_target(base_offset, replaced)``: opens the target with this base offset. ``replaced`` are the base
offsets of the sources that it replaces, ascending. It is called when the previous target is finished.
"""
