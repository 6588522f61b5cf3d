"""Who holds what while partitions are dealt."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TypeVar

from blumfeld.spi.assignors import AssignableTopic, Assigned, AssignmentSpec

LOOKED_AT_MAX = 500
"""Partitions between two yields: half of what the contract allows."""

Value = TypeVar("Value")
Steps = Generator[int, None, Value]


class Pace:
    """Counts what a loop looks at, and says when others should have their turn."""

    __slots__ = ("_looked_at",)

    def __init__(self) -> None:
        self._looked_at = 0

    def look(self, partitions: int = 1) -> Iterator[int]:
        """``yield from`` it at each step: it yields when enough has come together."""
        self._looked_at += partitions
        if self._looked_at >= LOOKED_AT_MAX:
            looked_at, self._looked_at = self._looked_at, 0
            yield looked_at


class Holdings:
    """Partitions by member and topic. A partition has one holder at most."""

    def __init__(self, spec: AssignmentSpec) -> None:
        self.spec = spec
        self._held: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in spec.members}
        self.load: dict[str, int] = dict.fromkeys(spec.members, 0)
        """How many partitions each member holds."""
        self.free: dict[bytes, set[int]] = {}
        """What nobody holds, and somebody could."""

    def of(self, member_id: str) -> Mapping[bytes, set[int]]:
        """By topic id; topics without a partition are left out."""
        return self._held[member_id]

    def give(self, member_id: str, topic_id: bytes, partition: int) -> None:
        """A member gets a partition, which is free no more."""
        self._held[member_id].setdefault(topic_id, set()).add(partition)
        self.load[member_id] += 1
        self.free[topic_id].discard(partition)

    def take(self, member_id: str, topic_id: bytes, partition: int) -> None:
        """A member gives up a partition: it is free."""
        held = self._held[member_id]
        held[topic_id].remove(partition)
        if not held[topic_id]:
            del held[topic_id]
        self.load[member_id] -= 1
        self.free[topic_id].add(partition)

    def assignment(self) -> Steps[Mapping[str, Assigned]]:
        """As values, in the order of the members."""
        pace = Pace()
        assignment: dict[str, Assigned] = {}
        for member_id, held in self._held.items():
            if held:
                assignment[member_id] = {
                    topic_id: frozenset(partitions) for topic_id, partitions in held.items()
                }
                yield from pace.look(len(held))
        return assignment


def retained(spec: AssignmentSpec) -> Steps[Holdings]:
    """Each member holds what it had, as far as it exists and it subscribes to it; the rest is free.

    What two members had is the first one's.
    """
    holdings, pace = Holdings(spec), Pace()
    for topic_id, topic in spec.topics.items():
        holdings.free[topic_id] = set(range(topic.partition_count))
        yield from pace.look()
    for member_id, member in spec.members.items():
        for topic_id in sorted(member.assigned):
            if topic_id not in member.topics or topic_id not in spec.topics:
                continue
            free = holdings.free[topic_id]
            for partition in sorted(member.assigned[topic_id]):
                if partition in free:
                    holdings.give(member_id, topic_id, partition)
                yield from pace.look()
    return holdings


def is_near(topic: AssignableTopic, partition: int, rack_id: str | None) -> bool:
    """Whether a replica of the partition is in that rack."""
    return rack_id is not None and bool(topic.racks) and rack_id in topic.racks[partition]
