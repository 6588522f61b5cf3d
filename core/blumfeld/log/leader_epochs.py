"""Start offset of each leader epoch of a partition. Followers and consumers find with it where two histories
diverge.

Pure. When a method returns that something changed, the owner writes :meth:`LeaderEpochCache.encode` to
``leader-epoch-checkpoint`` (KIP-101, KIP-320, Kafka's ``LeaderEpochFileCache``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from blumfeld.log.checkpoints import decode_lines, encode_lines
from blumfeld.spi.leader_epochs import EpochEnd, EpochEntry

FILE_NAME = "leader-epoch-checkpoint"
NO_EPOCH = -1
NO_OFFSET = -1


UNKNOWN_END = EpochEnd(NO_EPOCH, NO_OFFSET)


class LeaderEpochCache:
    """Leader epochs and their start offsets, both strictly ascending."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> list[EpochEntry]:
        """All entries, oldest first."""
        return [EpochEntry(*pair) for pair in zip(self._epochs, self._starts, strict=True)]

    @property
    def latest_epoch(self) -> int:
        """The newest epoch, or -1."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that the first batch of ``epoch`` is at ``start_offset``. Returns whether anything changed.

        Existing entries with an epoch or a start offset at or above the new one's contradict it and are
        dropped. This is called for every written batch, so the common case is one comparison.

        :raises ValueError: a negative epoch or offset
        """
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return False
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} can't start at offset {start_offset}")
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset))
        del self._epochs[keep:], self._starts[keep:]
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop epochs that begin at ``end_offset``, the new log end, or later. Returns whether any did."""
        keep = bisect_left(self._starts, end_offset)
        changed = keep < len(self._starts)
        del self._epochs[keep:], self._starts[keep:]
        return changed

    def truncate_from_start(self, start_offset: int) -> bool:
        """Move the start of the epoch that holds ``start_offset``, the new log start, and drop older ones.
        Returns whether anything changed.
        """
        gone = bisect_right(self._starts, start_offset)
        if gone == 0 or (gone == 1 and self._starts[0] == start_offset):
            return False
        del self._epochs[: gone - 1], self._starts[: gone - 1]
        self._starts[0] = start_offset
        return True

    def clear(self) -> bool:
        """Drop all entries. Returns whether there were any."""
        changed = bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()
        return changed

    def epoch_for_offset(self, offset: int) -> int:
        """Returns the epoch in which ``offset`` was or will be written; -1 below the first entry."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else NO_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Returns the largest known epoch that is not above ``epoch``, and its end offset.

        Example: entries (0, 0) (2, 10) and log end 15 give 2 → (2, 15), 1 → (0, 10), 3 → (-1, -1). An epoch
        newer than all entries is unknown.
        """
        if epoch == NO_EPOCH or not self._epochs:
            return UNKNOWN_END
        if epoch == self._epochs[-1]:
            return EpochEnd(epoch, log_end_offset)
        above = bisect_right(self._epochs, epoch)
        if above == len(self._epochs):
            return UNKNOWN_END
        floor = self._epochs[above - 1] if above else epoch
        return EpochEnd(floor, self._starts[above])

    def previous_epoch(self, epoch: int) -> int:
        """Returns the largest known epoch below ``epoch``, or -1: the follower's next question after an answer
        (E, O).
        """
        at = bisect_left(self._epochs, epoch)
        return self._epochs[at - 1] if at else NO_EPOCH

    def encode(self) -> bytes:
        """Returns the bytes of ``leader-epoch-checkpoint``."""
        pairs = zip(self._epochs, self._starts, strict=True)
        return encode_lines([f"{epoch} {start_offset}" for epoch, start_offset in pairs])

    @classmethod
    def decode(cls, data: bytes, source: str = FILE_NAME) -> LeaderEpochCache:
        """Decode ``leader-epoch-checkpoint``.

        :raises MalformedFile: the bytes are not that file; the message names ``source`` and the line
        """
        rows = decode_lines(data, source, "an epoch and an offset", _parse)
        return cls(rows)


def truncation_offset(diverging: EpochEnd, ours: EpochEnd, log_end_offset: int) -> int:
    """Returns where to truncate a log that diverges from its leader's (KIP-101, KIP-279, KIP-595; Kafka's
    ``AbstractFetcherThread.getOffsetTruncationState``). Followers of partitions and of the metadata log use it.

    If we don't know the leader's epoch, the next older one of ours is kept whole. The next fetch names it, and the
    leader may find that the logs diverge in it, too.

    :param diverging: the leader's largest epoch that isn't above our last one, and its end there
    :param ours: our largest epoch that isn't above the leader's, and its end here; (-1, -1) if there is none
    """
    if ours.epoch == diverging.epoch:
        return min(diverging.end_offset, ours.end_offset, log_end_offset)
    if ours.epoch < 0:
        return min(diverging.end_offset, log_end_offset)
    return min(ours.end_offset, log_end_offset)


def _parse(line: str) -> EpochEntry:
    epoch, start_offset = line.split(" ")
    if int(epoch) < 0 or int(start_offset) < 0:
        raise ValueError("negative")
    return EpochEntry(int(epoch), int(start_offset))
