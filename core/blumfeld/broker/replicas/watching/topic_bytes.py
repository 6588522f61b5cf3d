"""Bytes of record batches in and out of one topic on this node, for its metrics."""

from __future__ import annotations

from blumfeld.broker.replicas.watching.written_bytes import WrittenBytes


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
