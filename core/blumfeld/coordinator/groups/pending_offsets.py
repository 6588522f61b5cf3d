"""Pending offsets: committed in transactions that are still open. Pure.

Clients don't see them yet, but they make an offset unstable (KIP-447), and keep it from expiring. A record is kept
until the marker of its transaction comes: COMMIT makes it a committed offset, ABORT drops it.

If several commits of one partition compete, the one that is last in the log wins, not the one whose transaction ends
last. So a later plain commit takes away a pending one's effect, and so does a later record of another transaction that
was committed first. Kafka compares the records' offsets for this. The rule agrees with compaction, which keeps the last
record.
"""

from __future__ import annotations

from collections.abc import Iterator

from blumfeld.spi.groups import CoordinatorRecord

Place = tuple[str, int]
"""(topic, partition)."""


class PendingOffsets:
    """Pending offsets of the groups of one shard, by producer and by group. It is false if there are none.

    A producer is identified by its id alone, because the partition refuses records of an older epoch.
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[Place, dict[int, CoordinatorRecord | None]]] = {}
        """Group → partition → producer id → record, in the order of the log. ``None``: a later commit has won."""
        self._producers: dict[int, dict[tuple[str, Place], None]] = {}

    def __bool__(self) -> bool:
        return bool(self._producers)

    def add(self, producer_id: int, group_id: str, place: Place, item: CoordinatorRecord) -> None:
        """Add an offset record of a producer's transaction. It replaces the producer's earlier record there."""
        writers = self._groups.setdefault(group_id, {}).setdefault(place, {})
        writers.pop(producer_id, None)
        writers[producer_id] = item
        self._producers.setdefault(producer_id, {})[group_id, place] = None

    def overtake(self, group_id: str, place: Place) -> None:
        """Take away the effect of pending offsets after a plain commit. They stay pending until their markers."""
        writers = self._groups.get(group_id, {}).get(place, {})
        for producer_id in writers:
            writers[producer_id] = None

    def forget(self, group_id: str, place: Place) -> None:
        """Drop the pending offsets of a partition whose offset was deleted."""
        for producer_id in list(self._groups.get(group_id, {}).get(place, ())):
            self._remove(producer_id, group_id, place)

    def end(self, producer_id: int, committed: bool) -> list[CoordinatorRecord]:
        """End the producer's transaction. Returns the records that it commits, in no particular order.

        Returns nothing if none is pending: a marker may come twice, or end a transaction on other partitions.
        """
        ended: list[CoordinatorRecord] = []
        for group_id, place in list(self._producers.get(producer_id, ())):
            writers = self._groups[group_id][place]
            item = writers[producer_id]
            if committed and item is not None:
                ended.append(item)
                for earlier in writers:
                    if earlier == producer_id:
                        break
                    writers[earlier] = None
            self._remove(producer_id, group_id, place)
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

    def _remove(self, producer_id: int, group_id: str, place: Place) -> None:
        written = self._producers[producer_id]
        del written[group_id, place]
        if not written:
            del self._producers[producer_id]
        places = self._groups[group_id]
        del places[place][producer_id]
        if not places[place]:
            del places[place]
            if not places:
                del self._groups[group_id]
