"""The members' partitions while an assignor deals them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TypeVar

from blumfeld.spi.assignors import AssignableTopic, Assigned, AssignmentSpec

LOOKED_AT_MAX = 500
"""Partitions looked at between two yields: half of the contract's limit."""

Value = TypeVar("Value")
Steps = Generator[int, None, Value]


class Pace:
    """Counts the partitions that a loop looks at and yields often enough that other requests get their turn."""

    __slots__ = ("_looked_at",)

    def __init__(self) -> None:
        self._looked_at = 0

    def look(self, partitions: int = 1) -> Iterator[int]:
        """Use as ``yield from`` at each step. Yields when enough partitions have been looked at since the
        last yield.
        """
        self._looked_at += partitions
        if self._looked_at >= LOOKED_AT_MAX:
            looked_at, self._looked_at = self._looked_at, 0
            yield looked_at


class Holdings:
    """Partitions by member and topic. A partition has at most one holder."""

    def __init__(self, spec: AssignmentSpec) -> None:
        self.spec = spec
        self._held: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in spec.members}
        self.load: dict[str, int] = dict.fromkeys(spec.members, 0)
        """Number of partitions that each member holds."""
        self.free: dict[bytes, set[int]] = {}
        """Topic id → partitions without a holder that some member subscribes to."""

    def of(self, member_id: str) -> Mapping[bytes, set[int]]:
        """The member's partitions by topic id. Topics without a partition are left out."""
        return self._held[member_id]

    def give(self, member_id: str, topic_id: bytes, partition: int) -> None:
        """Give a free partition to a member."""
        self._held[member_id].setdefault(topic_id, set()).add(partition)
        self.load[member_id] += 1
        self.free[topic_id].discard(partition)

    def take(self, member_id: str, topic_id: bytes, partition: int) -> None:
        """Take a partition from a member; it becomes free."""
        held = self._held[member_id]
        held[topic_id].remove(partition)
        if not held[topic_id]:
            del held[topic_id]
        self.load[member_id] -= 1
        self.free[topic_id].add(partition)

    def assignment(self) -> Steps[Mapping[str, Assigned]]:
        """The holdings as immutable values, in the order of the members."""
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
    """The holdings at the start: each member keeps what it had where the partition exists and it still
    subscribes. The rest is free.

    If two members had the same partition, the first one keeps it.
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
