"""Remember where the newest batches of the active segment are, so that a tail read needs no look-up."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

RECENT_MAX = 2048
"""Batches that are remembered at least. With twice as many the older half is forgotten."""
_FULL = 2 * RECENT_MAX


class RecentBatches:
    """Last offset and position of the newest batches.

    :param floor: the lowest offset that may be looked up: its batch is remembered, or still to come
    """

    __slots__ = ("copied_from", "copy", "floor", "lasts", "positions")

    def __init__(self, floor: int) -> None:
        self.copy = b""
        """Bytes that the last tail read copied. Many consumers read the same bytes at the end of a log."""
        self.copied_from = -1
        """Position of :attr:`copy` in the file; -1 without one."""
        self.floor = floor
        self.lasts: list[int] = []
        self.positions: list[int] = []

    def add(self, last_offset: int, position: int) -> None:
        """Remember a batch that was written behind all others."""
        self.lasts.append(last_offset)
        self.positions.append(position)
        if len(self.lasts) > _FULL:
            self._forget()

    def add_run(self, last_offsets: Sequence[int], positions: Sequence[int]) -> None:
        """Remember batches that were written behind all others: the last offset and the position of each."""
        self.lasts += last_offsets
        self.positions += positions
        if len(self.lasts) > _FULL:
            self._forget()

    def _forget(self) -> None:
        while len(self.lasts) > _FULL:
            self.floor = self.lasts[RECENT_MAX - 1] + 1
            del self.lasts[:RECENT_MAX]
            del self.positions[:RECENT_MAX]

    def find(self, offset: int, end_position: int) -> tuple[int, int]:
        """Return (position, size) of the first batch that ends at ``offset`` or behind; (end, 0) if there is none.

        :param offset: at least the floor
        :param end_position: where the newest batch ends
        """
        at = bisect_left(self.lasts, offset)
        if at == len(self.lasts):
            return end_position, 0
        position = self.positions[at]
        following = self.positions[at + 1] if at + 1 < len(self.positions) else end_position
        return position, following - position
