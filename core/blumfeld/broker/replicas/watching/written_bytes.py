"""Counts the bytes that are written to a log, so that a parked fetch knows about how many there are for it. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

MARKS_MAX = 1024
"""Writes that are remembered at most. The older half is forgotten then, and counts become less exact."""
UNBOUNDED = 1 << 62
"""More bytes than any log has: no better bound is known."""


class WrittenBytes:
    """The total of bytes at the end of each of the last writes.

    It gives bounds without a look at the log. They are exact at the ends of writes, which is where the log end and
    nearly always the high watermark are.
    """

    __slots__ = ("_ends", "_totals", "placed")

    def __init__(self, end_offset: int) -> None:
        """:param end_offset: the placed end now, from which on bytes are counted"""
        self.placed = 0
        """Bytes of all batches that were placed since. Its owner adds to it."""
        self._ends = [end_offset]
        self._totals = [0]

    def wrote(self, end_offset: int) -> None:
        """Take note that all that was placed is written, up to ``end_offset``."""
        ends = self._ends
        if ends[-1] < end_offset:
            ends.append(end_offset)
            self._totals.append(self.placed)
            if len(ends) > MARKS_MAX:
                del ends[: MARKS_MAX // 2], self._totals[: MARKS_MAX // 2]

    def cut(self, end_offset: int) -> None:
        """Take note that the log was truncated to ``end_offset``. Totals never go back, so from there on they are more
        than the bytes in the log: a fetch that waits for bytes may look too early, but never too late.
        """
        keep = bisect_left(self._ends, end_offset)
        del self._ends[keep:], self._totals[keep:]
        self._ends.append(end_offset)
        self._totals.append(self.placed)

    def committed(self) -> None:
        """Take note that the high watermark is at the log's end: no earlier offset will be asked for."""
        if len(self._ends) > 1:
            del self._ends[:-1], self._totals[:-1]

    def at_least(self, offset: int) -> int:
        """Returns a lower bound of the total at an offset; ``-UNBOUNDED`` if the offset is before all marks."""
        at = bisect_right(self._ends, offset)
        return self._totals[at - 1] if at else -UNBOUNDED

    def at_most(self, offset: int) -> int:
        """Returns an upper bound of the total at an offset."""
        at = bisect_left(self._ends, offset)
        return self._totals[at] if at < len(self._ends) else self.placed


class TopicBytes:
    """Counts that never go back, also when one of the topic's partitions leaves the node."""

    __slots__ = ("_came_in_before", "_partitions", "went_out")

    def __init__(self) -> None:
        self.went_out = 0
        """Bytes that consumers were given, not followers. Fetch adds to it."""
        self._partitions: list[WrittenBytes] = []
        self._came_in_before = 0
        """Bytes that came into partitions which have left."""

    @property
    def came_in(self) -> int:
        """Bytes that were placed here by a leader, not those that a follower copied. The partitions keep the sum for
        parked fetches anyway, so an append pays no second count."""
        return self._came_in_before + sum(counted.placed for counted in self._partitions)

    def add(self, counted: WrittenBytes) -> None:
        """Count the bytes of one more partition."""
        self._partitions.append(counted)

    def remove(self, counted: WrittenBytes) -> None:
        """Keep the bytes of a partition that leaves, and count it no longer."""
        self._partitions.remove(counted)
        self._came_in_before += counted.placed
