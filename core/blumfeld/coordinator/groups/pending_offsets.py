"""Pending offsets: committed in transactions that are still open. Pure.

Clients don't see them yet, but they make an offset unstable (KIP-447), and keep it from expiring. A record is kept
until the marker of its transaction comes: COMMIT makes it a committed offset, ABORT drops it.

If several commits of one partition compete, the one that is last in the log wins, not the one whose transaction ends
last. So a later plain commit takes away a pending one's effect, and so does a later record of another transaction that
was committed first. Kafka compares the records' offsets for this. The rule agrees with compaction, which keeps the last
record. So the ends of two transactions may be applied in any order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from blumfeld.spi.groups import CoordinatorRecord

Place = tuple[str, int]
"""(topic, partition)."""
ENDED_AT_ONCE = 1_000
"""Offsets of a transaction that are committed or dropped in one step: some milliseconds. The others of a larger one
stay pending for some turns more."""


class _Writer:
    """One transaction of a producer. The producer's next one may begin while a large one is still being ended."""

    __slots__ = ("committed", "places", "producer_id")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.places: dict[tuple[str, Place], None] = {}
        """(group, partition) of the pending offsets."""
        self.committed = False
        """The outcome, once the transaction has ended."""


class PendingOffsets:
    """Pending offsets of the groups of one shard, by producer and by group. It is false if there are none.

    A producer is identified by its id alone, because the partition refuses records of an older epoch.
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[Place, dict[_Writer, CoordinatorRecord | None]]] = {}
        """Group → partition → transaction → record, in the order of the log. ``None``: a later commit has won."""
        self._producers: dict[int, _Writer] = {}
        """Producer id → its open transaction."""
        self._ending: deque[_Writer] = deque()
        """Large transactions that have ended, and whose offsets are applied some at a time."""

    def __bool__(self) -> bool:
        return bool(self._groups)

    @property
    def is_ending(self) -> bool:
        """Whether a transaction has ended whose offsets are not all applied: :meth:`go_on` gives the next."""
        return bool(self._ending)

    def add(self, producer_id: int, group_id: str, place: Place, item: CoordinatorRecord) -> None:
        """Add an offset record of a producer's transaction. It replaces the producer's earlier record there."""
        writer = self._producers.get(producer_id)
        if writer is None:
            writer = self._producers[producer_id] = _Writer(producer_id)
        writers = self._groups.setdefault(group_id, {}).setdefault(place, {})
        writers.pop(writer, None)
        writers[writer] = item
        writer.places[group_id, place] = None

    def overtake(self, group_id: str, place: Place) -> None:
        """Take away the effect of pending offsets after a plain commit. They stay pending until their markers."""
        writers = self._groups.get(group_id, {}).get(place, {})
        for writer in writers:
            writers[writer] = None

    def forget(self, group_id: str, place: Place) -> None:
        """Drop the pending offsets of a partition whose offset was deleted."""
        for writer in list(self._groups.get(group_id, {}).get(place, ())):
            self._remove(writer, group_id, place)

    def end(self, producer_id: int, committed: bool) -> list[CoordinatorRecord]:
        """End the producer's transaction. Returns the records that it commits, in no particular order. Of a large one
        :meth:`go_on` returns them, some at a time.

        Returns nothing if none is pending: a marker may come twice, or end a transaction on other partitions.
        """
        writer = self._producers.pop(producer_id, None)
        if writer is None:
            return []
        writer.committed = committed
        if len(writer.places) > ENDED_AT_ONCE:
            self._ending.append(writer)
            return []
        return self._applied(writer, ENDED_AT_ONCE)

    def go_on(self) -> list[CoordinatorRecord]:
        """End the next offsets of a large transaction. Returns the records that are committed."""
        writer = self._ending.popleft()
        ended = self._applied(writer, ENDED_AT_ONCE)
        if writer.places:
            self._ending.append(writer)
        return ended

    def _applied(self, writer: _Writer, most: int) -> list[CoordinatorRecord]:
        ended: list[CoordinatorRecord] = []
        for group_id, place in list(islice(writer.places, most)):
            writers = self._groups[group_id][place]
            item = writers[writer]
            if writer.committed and item is not None:
                ended.append(item)
                for earlier in writers:
                    if earlier is writer:
                        break
                    writers[earlier] = None
            self._remove(writer, group_id, place)
        return ended

    def groups(self) -> Iterator[str]:
        """Yields the groups with a pending offset."""
        return iter(self._groups)

    def has_group(self, group_id: str) -> bool:
        """Whether the group has a pending offset. If so, neither the offset nor the group expires."""
        return group_id in self._groups

    def is_pending(self, group_id: str, place: Place) -> bool:
        """Whether a marker may change the offset of that partition, so that it isn't stable."""
        return place in self._groups.get(group_id, {})

    def places(self, group_id: str) -> list[Place]:
        """Returns the partitions for which the group has pending offsets."""
        return list(self._groups.get(group_id, {}))

    def places_of_topics(self, topics: tuple[str, ...]) -> Iterator[tuple[str, Place]]:
        """Yields (group, (topic, partition)) of the pending offsets for these topics."""
        for group_id, places in self._groups.items():
            for place in places:
                if place[0] in topics:
                    yield group_id, place

    def _remove(self, writer: _Writer, group_id: str, place: Place) -> None:
        del writer.places[group_id, place]
        if not writer.places and self._producers.get(writer.producer_id) is writer:
            del self._producers[writer.producer_id]
        places = self._groups[group_id]
        del places[place][writer]
        if not places[place]:
            del places[place]
            if not places:
                del self._groups[group_id]
