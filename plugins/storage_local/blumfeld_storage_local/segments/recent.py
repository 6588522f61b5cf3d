"""Where the newest batches of the active segment stand, so that readers at the end of a log need no look-up."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from blumfeld.wire.record_batch import RecordBatch

RECENT_MAX = 2048
"""Batches remembered; twice as many before the older half is forgotten."""
_FULL = 2 * RECENT_MAX


class RecentBatches:
    """Last offset and position of the newest batches.

    :param floor: the lowest offset that a look-up may ask for: the batch that holds it is remembered, or to come
    """

    __slots__ = ("copied_from", "copy", "floor", "lasts", "positions")

    def __init__(self, floor: int) -> None:
        self.copy = b""
        """What was last read of these: who reads the end of a log is seldom alone."""
        self.copied_from = -1
        """Its position."""
        self.floor = floor
        self.lasts: list[int] = []
        self.positions: list[int] = []

    def add(self, last_offset: int, position: int) -> None:
        """A batch was written behind all others."""
        self.lasts.append(last_offset)
        self.positions.append(position)
        if len(self.lasts) > _FULL:
            self._forget()

    def add_run(self, batches: Iterable[RecordBatch], position: int) -> None:
        """Batches were written behind all others, one behind the other from ``position`` on."""
        add_last, add_position = self.lasts.append, self.positions.append
        for batch in batches:
            add_last(batch.base_offset + batch.last_offset_delta)
            add_position(position)
            position += batch.size_bytes
        if len(self.lasts) > _FULL:
            self._forget()

    def _forget(self) -> None:
        while len(self.lasts) > _FULL:
            self.floor = self.lasts[RECENT_MAX - 1] + 1
            del self.lasts[:RECENT_MAX]
            del self.positions[:RECENT_MAX]

    def find(self, offset: int, end_position: int) -> tuple[int, int]:
        """(position, size) of the first batch that ends at ``offset`` or behind; (end, 0) if there is none.

        :param offset: at least the floor
        :param end_position: where the newest batch ends
        """
        at = bisect_left(self.lasts, offset)
        if at == len(self.lasts):
            return end_position, 0
        position = self.positions[at]
        following = self.positions[at + 1] if at + 1 < len(self.positions) else end_position
        return position, following - position
