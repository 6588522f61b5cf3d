"""Groups for tests of assignors: any small group (hypothesis), and large ones."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec
from hypothesis import strategies as st

from blumfeld.spi.assignors import (
    AssignableMember,
    AssignableTopic,
    Assigned,
    Assignment,
    AssignmentSpec,
    ConsumerAssignor,
)

RACKS = ("north", "south", "west")
PARTITIONS_MAX = 6
_NOTHING: Assigned = MappingProxyType({})


class BackwardSet(frozenset[bytes]):
    """A set that is iterated in another order, as another hash seed would have it."""

    def __iter__(self) -> Iterator[bytes]:
        """Iterate from the greatest to the least."""
        return iter(sorted(super().__iter__(), reverse=True))


def topic_id(nth: int) -> bytes:
    """Return the id of topic ``t<nth>``."""
    return nth.to_bytes(16, "big")


def make_spec(
    subscriptions: Mapping[str, Collection[int]],
    partitions: Sequence[int],
    assigned: Mapping[str, Assigned] | None = None,
    racks: Mapping[str, str] | None = None,
    instances: Mapping[str, str] | None = None,
    near: Sequence[Sequence[frozenset[str]]] | None = None,
) -> AssignmentSpec:
    """A group by member id and number of topic. Nothing in it can be changed.

    ``partitions``: how many each topic has; ``near``: of each topic and partition, the racks of its replicas.
    """
    read = sorted({nth for topics in subscriptions.values() for nth in topics})
    topics = {
        topic_id(nth): AssignableTopic(
            topic_id=topic_id(nth),
            name=f"t{nth:04}",
            partition_count=partitions[nth],
            racks=tuple(near[nth]) if near else (),
        )
        for nth in read
    }
    members = {
        member_id: AssignableMember(
            member_id=member_id,
            instance_id=(instances or {}).get(member_id),
            rack_id=(racks or {}).get(member_id),
            topics=frozenset(map(topic_id, subscriptions[member_id])),
            assigned=MappingProxyType(dict((assigned or {}).get(member_id, _NOTHING))),
        )
        for member_id in sorted(subscriptions)
    }
    return AssignmentSpec(members=MappingProxyType(members), topics=MappingProxyType(topics))


@st.composite
def specs(draw: st.DrawFn, homogeneous: bool = False, racks: bool = False) -> AssignmentSpec:
    """A group that had some assignment: maybe a stale one, that names what is gone, or one partition twice."""
    topics = draw(st.integers(1, 4))
    counts = draw(st.lists(st.integers(0, PARTITIONS_MAX), min_size=topics, max_size=topics))
    member_ids = [f"m{nth}" for nth in range(draw(st.integers(1, 6)))]
    some_topics = st.sets(st.integers(0, topics - 1))
    everyone = draw(some_topics)
    subscriptions = {m: everyone if homogeneous else draw(some_topics) for m in member_ids}
    some_partitions = st.frozensets(st.integers(0, PARTITIONS_MAX + 1), min_size=1)
    held = st.dictionaries(st.integers(0, topics).map(topic_id), some_partitions, max_size=3)
    assigned = {m: draw(held) for m in member_ids}
    in_racks = {m: draw(st.sampled_from(RACKS)) for m in member_ids} if racks else None
    some_racks = st.frozensets(st.sampled_from(RACKS), max_size=2)
    near = [[draw(some_racks) for _ in range(count)] for count in counts] if racks else None
    instances = {m: f"i{9 - nth}" for nth, m in enumerate(member_ids) if draw(st.booleans())}
    return make_spec(subscriptions, counts, assigned, in_racks, instances, near)


def large_spec(members: int, topics: int, partitions: int, topics_each: int) -> AssignmentSpec:
    """Return a group whose members read ``topics_each`` of the topics. No member holds a partition yet."""
    subscriptions = {
        f"m{nth:05}": {(nth * 7 + more) % topics for more in range(topics_each)} for nth in range(members)
    }
    return make_spec(subscriptions, [partitions // topics] * topics)


def holding(spec: AssignmentSpec, assignment: Assignment) -> AssignmentSpec:
    """Return the same group, in which the members hold this assignment."""
    members = {
        member_id: msgspec.structs.replace(
            member, assigned=MappingProxyType(dict(assignment.get(member_id, _NOTHING)))
        )
        for member_id, member in spec.members.items()
    }
    return AssignmentSpec(members=MappingProxyType(members), topics=spec.topics)


def backward(spec: AssignmentSpec) -> AssignmentSpec:
    """Return the same group with sets that are iterated in another order."""
    members = {
        member_id: msgspec.structs.replace(member, topics=BackwardSet(member.topics))
        for member_id, member in spec.members.items()
    }
    return AssignmentSpec(members=MappingProxyType(members), topics=spec.topics)


def finish(steps: Generator[int, None, Assignment]) -> Assignment:
    """Run all slices at once, and return the assignment."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            assignment: Assignment = end.value
            return assignment


def deal(assignor: ConsumerAssignor, spec: AssignmentSpec) -> Assignment:
    """Return the assignment that the assignor makes for a group.

    :raises AssignorError: the assignor refuses the group
    """
    return finish(assignor.assign(spec))


def readers_of(assignment: Assignment) -> dict[tuple[bytes, int], list[str]]:
    """Return the members that are to read each partition, by (topic id, index)."""
    readers: dict[tuple[bytes, int], list[str]] = {}
    for member_id, assigned in assignment.items():
        for topic, partitions in assigned.items():
            for partition in partitions:
                readers.setdefault((topic, partition), []).append(member_id)
    return readers
