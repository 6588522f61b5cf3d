"""What a round of compaction reads from and writes to: the driver brings both (``log.cleaning``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from blumfeld.spi.compaction import AbortedTransaction

Buffer: TypeAlias = bytes | bytearray | memoryview


class BatchSpan(NamedTuple):
    """One batch of what :meth:`Target.append` is handed: all that its indexes want of it."""

    last_offset: int
    size_bytes: int
    max_timestamp_ms: int
    """-1 where no record is left, or none has a time."""


class Source(Protocol):
    """One sealed segment to read, whatever stores it."""

    @property
    def base_offset(self) -> int: ...
    @property
    def next_offset(self) -> int:
        """One past its last offset."""
        ...

    @property
    def size_bytes(self) -> int: ...
    @property
    def modified_ms(self) -> int: ...

    def read(self, position: int, size: int) -> bytes:
        """The bytes there; fewer only where the segment ends. Raises ``OSError``."""
        ...


class Target(Protocol):
    """One segment in the making."""

    def append(self, buffers: Sequence[Buffer], batches: Sequence[BatchSpan]) -> None:
        """Write whole batches, in offset order. ``buffers`` together are exactly ``batches``, but one buffer may
        hold many. They are valid until this returns. Raises ``OSError``.
        """
        ...

    def finish(self, aborted: Sequence[AbortedTransaction], modified_ms: int) -> None:
        """The segment is whole: make it last. It may hold nothing at all.

        :param aborted: what its ``.txnindex`` must still say
        :param modified_ms: of the last segment that it replaces: the time that its file must have
        """
        ...


OpenTarget: TypeAlias = Callable[[int, Sequence[int]], Target]
"""``open_target(base_offset, replaced)``: the new segment's base offset, and the base offsets of the sources
that it replaces, ascending. Called when the target before it is finished.
"""
