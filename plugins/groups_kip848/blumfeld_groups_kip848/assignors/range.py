"""The ``range`` assignor: it cuts each topic into ranges, one for each subscriber, so that topics can be
joined.
"""

from __future__ import annotations

from collections.abc import Generator

from blumfeld.spi.assignors import AssignableMember, Assignment, AssignmentSpec
from blumfeld_groups_kip848.assignors.holdings import Pace


class RangeAssignor:
    """Gives partition *n* of topics with the same subscribers and the same partition count to the same
    member.

    Static members come first, ordered by instance id, then the others by member id. So a static member that
    returns with a new member id gets the same range again.
    """

    name = "range"

    def assign(self, spec: AssignmentSpec) -> Generator[int, None, Assignment]:
        """Deal the partitions. Raises no error."""
        pace = Pace()
        in_order = sorted(spec.members.values(), key=_rank)
        dealt: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in spec.members}
        for topic_id, topic in spec.topics.items():
            readers = [member for member in in_order if topic_id in member.topics]
            yield from pace.look(len(in_order))
            if not readers:
                continue
            size, larger = divmod(topic.partition_count, len(readers))
            start = 0
            for nth, member in enumerate(readers):
                end = start + size + (nth < larger)
                if end > start:
                    dealt[member.member_id][topic_id] = frozenset(range(start, end))
                    yield from pace.look(end - start)
                start = end
        return {member_id: assigned for member_id, assigned in dealt.items() if assigned}


def _rank(member: AssignableMember) -> tuple[bool, str]:
    return member.instance_id is None, member.instance_id or member.member_id
