"""One round of compaction: which records of the sealed segments stay, and the segments that hold them (formats.md §26).

Pure: bytes come from a :class:`Source`, go to a :class:`Target`; the driver opens both, throttles, and swaps. A round
is a function of what it is given, so one that a crash cut off simply starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from blumfeld.spi.compaction import AbortedTransaction, CompactionRequest, CompactionResult

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
        """Write whole batches, in offset order. ``buffers`` together are exactly ``batches``, but one buffer may hold
        many. They are valid until this returns. Raises ``OSError``.
        """
        ...

    def finish(self, aborted: Sequence[AbortedTransaction], modified_ms: int) -> None:
        """The segment is whole: make it last. It may hold nothing at all.

        :param aborted: what its ``.txnindex`` must still say
        :param modified_ms: of the last segment that it replaces: the time that its file must have
        """
        ...


OpenTarget: TypeAlias = Callable[[int, Sequence[int]], Target]
"""``open_target(base_offset, replaced)``: the new segment's base offset, and the base offsets of the sources that it
replaces, ascending. Called when the target before it is finished.
"""


def clean(
    sources: Sequence[Source], request: CompactionRequest, open_target: OpenTarget
) -> Generator[int, None, CompactionResult]:
    """Do a round; gives the bytes read and written since it last did, at least every MiB or so.

    Each target replaces one or more sources that stand one behind the other. Sources that the round does not reach
    (the map was full before them) get no target, and stay.

    :param sources: the log's sealed segments from its first one on, all that are below ``request.end_offset``
    :return: how it went; ``seconds`` is left at 0 for who has a clock
    :raises OSError: a batch is cut off, damaged, or of an old format: its segment and position stand in the text. Or
        from a source or a target
    """
    raise NotImplementedError
    yield 0
