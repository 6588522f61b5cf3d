"""Where each leader epoch of a partition began: how a follower or a consumer finds where two histories part.

Pure. The owner writes :meth:`LeaderEpochCache.encode` to ``leader-epoch-checkpoint`` whenever a method says
that something changed (KIP-101, KIP-320, Kafka's ``LeaderEpochFileCache``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from blumfeld.log.checkpoints import decode_lines, encode_lines

FILE_NAME = "leader-epoch-checkpoint"
NO_EPOCH = -1
NO_OFFSET = -1


class EpochEntry(NamedTuple):
    """The first offset that was written under an epoch."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The answer to OffsetForLeaderEpoch: (-1, -1) means that nothing is known, and truncates nobody."""

    epoch: int
    end_offset: int


UNKNOWN_END = EpochEnd(NO_EPOCH, NO_OFFSET)


class LeaderEpochCache:
    """Epochs with their start offsets, both strictly ascending."""

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

    @property
    def latest_start_offset(self) -> int:
        """Where the newest epoch began, or -1."""
        return self._starts[-1] if self._starts else NO_OFFSET

    def assign(self, epoch: int, start_offset: int) -> bool:
        """The first batch of ``epoch`` stands at ``start_offset``; whether that was news.

        Entries that it contradicts (an epoch or a start at or above the new one's) are dropped: the newer word
        counts. Called for each batch that is written, so the common case is one comparison.

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
        """The log ends at ``end_offset`` now: drop epochs that began there or later; whether any did."""
        keep = bisect_left(self._starts, end_offset)
        changed = keep < len(self._starts)
        del self._epochs[keep:], self._starts[keep:]
        return changed

    def truncate_from_start(self, start_offset: int) -> bool:
        """The log starts at ``start_offset`` now: the epoch that holds it begins there; whether that changed
        anything.
        """
        gone = bisect_right(self._starts, start_offset)
        if gone == 0 or (gone == 1 and self._starts[0] == start_offset):
            return False
        del self._epochs[: gone - 1], self._starts[: gone - 1]
        self._starts[0] = start_offset
        return True

    def clear(self) -> bool:
        """The log was emptied; whether there was anything."""
        changed = bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()
        return changed

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch under which ``offset`` was (or will be) written, or -1 below the first entry."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else NO_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest epoch here that is not above ``epoch``, and the first offset behind it.

        Example: entries (0, 0) (2, 10) and log end 15 give 2 → (2, 15), 1 → (0, 10), 3 → (-1, -1): a newer
        epoch than any here tells nothing.
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
        """The largest epoch here below ``epoch``, or -1: where a follower that was told (E, O) goes on asking."""
        at = bisect_left(self._epochs, epoch)
        return self._epochs[at - 1] if at else NO_EPOCH

    def encode(self) -> bytes:
        """The bytes of ``leader-epoch-checkpoint``."""
        pairs = zip(self._epochs, self._starts, strict=True)
        return encode_lines([f"{epoch} {start_offset}" for epoch, start_offset in pairs])

    @classmethod
    def decode(cls, data: bytes, source: str = FILE_NAME) -> LeaderEpochCache:
        """Read those bytes back.

        :raises MalformedFile: they are not that; the message names ``source`` and the line
        """
        rows = decode_lines(data, source, "an epoch and an offset", _parse)
        return cls(rows)


def _parse(line: str) -> EpochEntry:
    epoch, start_offset = line.split(" ")
    if int(epoch) < 0 or int(start_offset) < 0:
        raise ValueError("negative")
    return EpochEntry(int(epoch), int(start_offset))
