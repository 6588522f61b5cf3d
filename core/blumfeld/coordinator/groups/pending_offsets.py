"""Offsets that were committed in transactions which are still open: nobody's yet, but in the way of some things.

Pure. A record of a transaction is kept as it was written until the transaction's marker comes: COMMIT makes it a
committed offset, ABORT drops it. Of several commits of one partition the one that stands last in the log wins, not
the one whose transaction ended last: a plain commit that was written after it takes a pending one's effect, and so
does another transaction's that was committed before (Kafka compares the offsets of the records; so compaction of
the log, which keeps the last record, changes nothing).
"""

from __future__ import annotations

from collections.abc import Iterator

from blumfeld.spi.groups import CoordinatorRecord

Place = tuple[str, int]
"""(topic, partition)."""


class PendingOffsets:
    """Pending offsets of the groups of one shard, by producer and by group. False where there are none.

    A producer is known by its id alone: that an older epoch of it doesn't write, the partition sees to.
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[Place, dict[int, CoordinatorRecord | None]]] = {}
        """Producers of each place in the order in which they wrote; ``None``: something newer is committed."""
        self._producers: dict[int, dict[tuple[str, Place], None]] = {}

    def __bool__(self) -> bool:
        return bool(self._producers)

    def add(self, producer_id: int, group_id: str, place: Place, item: CoordinatorRecord) -> None:
        """A producer wrote this offset record in its transaction; it takes the place of its former one."""
        writers = self._groups.setdefault(group_id, {}).setdefault(place, {})
        writers.pop(producer_id, None)
        writers[producer_id] = item
        self._producers.setdefault(producer_id, {})[group_id, place] = None

    def overtake(self, group_id: str, place: Place) -> None:
        """An offset was committed there without a transaction: what is pending stays so, and will change nothing."""
        writers = self._groups.get(group_id, {}).get(place, {})
        for producer_id in writers:
            writers[producer_id] = None

    def forget(self, group_id: str, place: Place) -> None:
        """The offset was deleted: what is pending there is gone too."""
        for producer_id in list(self._groups.get(group_id, {}).get(place, ())):
            self._remove(producer_id, group_id, place)

    def end(self, producer_id: int, committed: bool) -> list[CoordinatorRecord]:
        """The producer's transaction has ended: the records that are committed by that, in no particular order.

        Nothing, and no error, where it has none: a marker may come twice, and may tell of other partitions.
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
        """Groups with a pending offset."""
        return iter(self._groups)

    def has_group(self, group_id: str) -> bool:
        """Whether an offset of the group is pending: neither it nor that expires."""
        return group_id in self._groups

    def is_pending(self, group_id: str, place: Place) -> bool:
        """Whether the offset of that partition may change by a marker: it isn't stable."""
        return place in self._groups.get(group_id, {})

    def places(self, group_id: str) -> list[Place]:
        """Where offsets of the group are pending."""
        return list(self._groups.get(group_id, {}))

    def places_of_topics(self, topics: tuple[str, ...]) -> Iterator[tuple[str, Place]]:
        """(group, place) of what is pending for these topics."""
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
