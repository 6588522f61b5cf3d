"""``acme-assignor``: the first member that reads a topic gets the whole topic."""

from __future__ import annotations

from collections.abc import Generator

from blumfeld.spi.assignors import Assignment, AssignmentSpec

YIELD_PARTITIONS = 100
"""Partitions between two turns of others: 1,000 at most, and fewer where a partition costs a look at every member."""


class AcmeAssignor:
    """Keeps no state: two groups may be dealt in turns by the same object."""

    name = "acme-assignor"

    def assign(self, spec: AssignmentSpec) -> Generator[int, None, Assignment]:
        """Return member id → topic id → partitions. Each ``yield`` lets other clients have their turn."""
        dealt: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in spec.members}
        looked_at = 0
        for topic in spec.topics.values():
            readers = [member for member in spec.members.values() if topic.topic_id in member.topics]
            for partition in range(topic.partition_count if readers else 0):
                reader = readers[0]  # WRITE HERE: which reader gets the partition?
                dealt[reader.member_id].setdefault(topic.topic_id, set()).add(partition)
                looked_at += 1
                if looked_at == YIELD_PARTITIONS:
                    yield looked_at
                    looked_at = 0
        yield looked_at
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}
            for member_id, topics in dealt.items()
        }
