"""``standby``: each topic has one reader."""

from __future__ import annotations

from collections.abc import Generator

from blumfeld.spi.assignors import AssignableTopic, Assignment, AssignmentSpec


class StandbyAssignor:
    """A topic stays with the member that has it; else it goes, whole, to the reader with the fewest partitions."""

    name = "standby"

    def assign(self, spec: AssignmentSpec) -> Generator[int, None, Assignment]:
        """Never fails."""
        dealt: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in spec.members}
        load = dict.fromkeys(spec.members, 0)
        vacant: list[AssignableTopic] = []
        for topic in spec.topics.values():
            holder = _holder(spec, topic.topic_id)
            if holder is None:
                vacant.append(topic)
            else:
                dealt[holder][topic.topic_id] = _all(topic)
                load[holder] += topic.partition_count
            yield from _looked_at(len(spec.members))
        for topic in sorted(vacant, key=lambda topic: -topic.partition_count):
            readers = [m.member_id for m in spec.members.values() if topic.topic_id in m.topics]
            if readers and topic.partition_count:
                reader = min(readers, key=lambda member_id: load[member_id])
                dealt[reader][topic.topic_id] = _all(topic)
                load[reader] += topic.partition_count
            yield from _looked_at(topic.partition_count)
        return {member_id: assigned for member_id, assigned in dealt.items() if assigned}


def _holder(spec: AssignmentSpec, topic_id: bytes) -> str | None:
    """The first member that has a part of it, and reads it still."""
    for member in spec.members.values():
        if topic_id in member.topics and topic_id in member.assigned:
            return member.member_id
    return None


def _all(topic: AssignableTopic) -> frozenset[int]:
    return frozenset(range(topic.partition_count))


def _looked_at(count: int) -> Generator[int, None, None]:
    """Others have their turn at least every 1,000."""
    while count > 0:
        yield min(count, 1000)
        count -= 1000
