"""What ``uniform`` and ``range`` promise, for any group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.spi.assignors import (
    AssignableMember,
    AssignableTopic,
    Assigned,
    Assignment,
    AssignmentSpec,
    ConsumerAssignor,
)
from blumfeld_groups_kip848.assignors import bundled_assignors
from blumfeld_groups_kip848.assignors.range import RangeAssignor
from blumfeld_groups_kip848.assignors.uniform import UniformAssignor

UNIFORM, RANGE = UniformAssignor(), RangeAssignor()
RACKS = ("north", "south", "west")


def topic_id(nth: int) -> bytes:
    return nth.to_bytes(16, "big")


def deal(assignor: ConsumerAssignor, spec: AssignmentSpec) -> Assignment:
    """All slices at once."""
    steps = assignor.assign(spec)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            assignment: Assignment = end.value
            return assignment


def group(
    subscriptions: Mapping[str, set[int]],
    partitions: list[int],
    assigned: Mapping[str, Assigned] | None = None,
    racks: Mapping[str, str] | None = None,
    instances: Mapping[str, str] | None = None,
    near: list[list[frozenset[str]]] | None = None,
) -> AssignmentSpec:
    """Topics by number; ``near``: by topic and partition, the racks of its replicas."""
    read = sorted(set().union(*subscriptions.values())) if subscriptions else []
    topics = {
        topic_id(nth): AssignableTopic(
            topic_id=topic_id(nth),
            name=f"t{nth}",
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
            assigned=(assigned or {}).get(member_id, {}),
        )
        for member_id in sorted(subscriptions)
    }
    return AssignmentSpec(members=members, topics=topics)


def by_partition(assignment: Assignment) -> dict[tuple[bytes, int], str]:
    """Who has each; asserts that it is one."""
    owners: dict[tuple[bytes, int], str] = {}
    for member_id, assigned in assignment.items():
        for topic, partitions in assigned.items():
            for partition in partitions:
                assert (topic, partition) not in owners
                owners[topic, partition] = member_id
    return owners


def loads(spec: AssignmentSpec, assignment: Assignment) -> dict[str, int]:
    return {m: sum(map(len, assignment.get(m, {}).values())) for m in spec.members}


def moved(spec: AssignmentSpec, assignment: Assignment) -> int:
    """Partitions that went from one member that stays, and could have kept them, to another."""
    before = {
        (topic, partition): member_id
        for member_id, member in reversed(list(spec.members.items()))
        for topic, partitions in member.assigned.items()
        if topic in member.topics
        for partition in partitions
    }
    return sum(before.get(partition, owner) != owner for partition, owner in by_partition(assignment).items())


@st.composite
def specs(draw: st.DrawFn, homogeneous: bool = False, racks: bool = False) -> AssignmentSpec:
    """A group that had some assignment: maybe a stale one, that names what is gone, or one partition twice."""
    topics = draw(st.integers(1, 4))
    partitions = draw(st.lists(st.integers(0, 6), min_size=topics, max_size=topics))
    member_ids = [f"m{nth}" for nth in range(draw(st.integers(1, 6)))]
    some_topics = st.sets(st.integers(0, topics - 1))
    everyone = draw(some_topics)
    subscriptions = {m: everyone if homogeneous else draw(some_topics) for m in member_ids}
    held = st.dictionaries(
        st.integers(0, topics).map(topic_id), st.frozensets(st.integers(0, 7), min_size=1), max_size=3
    )
    assigned = {m: draw(held) for m in member_ids}
    in_racks = {m: draw(st.sampled_from(RACKS)) for m in member_ids} if racks else None
    some_racks = st.frozensets(st.sampled_from(RACKS), max_size=2)
    near = [[draw(some_racks) for _ in range(count)] for count in partitions] if racks else None
    instances = {m: f"i{9 - nth}" for nth, m in enumerate(member_ids) if draw(st.booleans())}
    return group(subscriptions, partitions, assigned, in_racks, instances, near)


@pytest.mark.parametrize("assignor", bundled_assignors(), ids=lambda assignor: assignor.name)
class TestEveryAssignor:
    """What the contract kit doesn't know of these two."""

    @given(spec=specs())
    def test_each_partition_that_somebody_reads_has_one_reader(
        self, assignor: ConsumerAssignor, spec: AssignmentSpec
    ) -> None:
        owners = by_partition(deal(assignor, spec))
        assert set(owners) == {
            (topic.topic_id, partition)
            for topic in spec.topics.values()
            for partition in range(topic.partition_count)
        }
        assert all(topic in spec.members[owner].topics for (topic, _), owner in owners.items())

    @given(spec=specs(racks=True))
    def test_dealing_again_changes_nothing(self, assignor: ConsumerAssignor, spec: AssignmentSpec) -> None:
        assignment = deal(assignor, spec)
        assert by_partition(deal(assignor, having(spec, assignment))) == by_partition(assignment)


def having(spec: AssignmentSpec, assignment: Assignment) -> AssignmentSpec:
    """The same group, with this assignment."""
    members = {
        member.member_id: AssignableMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            topics=member.topics,
            assigned=assignment.get(member.member_id, {}),
        )
        for member in spec.members.values()
    }
    return AssignmentSpec(members=members, topics=spec.topics)


class TestUniformWithOneSubscription:
    @given(spec=specs(homogeneous=True, racks=True))
    def test_loads_differ_by_one_at_most(self, spec: AssignmentSpec) -> None:
        counts = loads(spec, deal(UNIFORM, spec)).values()
        assert max(counts) - min(counts) <= 1

    @given(spec=specs(homogeneous=True, racks=True))
    def test_no_more_partitions_move_than_balance_needs(self, spec: AssignmentSpec) -> None:
        """What is beyond the quotas has to go, where the larger quotas are with those who have the most."""
        kept = sorted(loads(spec, _kept(spec)).values(), reverse=True)
        base, larger = divmod(sum(t.partition_count for t in spec.topics.values()), len(kept))
        excess = sum(max(0, count - base - (nth < larger)) for nth, count in enumerate(kept))
        assert moved(spec, deal(UNIFORM, spec)) == excess

    def test_a_member_reads_of_many_topics_rather_than_all_of_one(self) -> None:
        """Topics differ in their traffic."""
        spec = group({"a": {0, 1}, "b": {0, 1}}, [4, 4])
        assert deal(UNIFORM, spec) == {
            "a": {topic_id(0): frozenset({0, 2}), topic_id(1): frozenset({0, 2})},
            "b": {topic_id(0): frozenset({1, 3}), topic_id(1): frozenset({1, 3})},
        }

    def test_what_is_far_is_given_up_first(self) -> None:
        near = [[frozenset({"north"}), frozenset({"south"}), frozenset({"north"}), frozenset({"north"})]]
        everything = {"a": {topic_id(0): frozenset(range(4))}}
        spec = group({"a": {0}, "b": {0}}, [4], everything, {"a": "north", "b": "south"}, near=near)
        given_up = deal(UNIFORM, spec)["b"][topic_id(0)]
        assert 1 in given_up

    def test_what_is_near_is_dealt_first(self) -> None:
        """As much as there is room for: each member reads in its own rack here."""
        near = [[frozenset({RACKS[nth % 3]}) for nth in range(9)]]
        racks = {"a": "west", "b": "north", "c": "south"}
        spec = group({"a": {0}, "b": {0}, "c": {0}}, [9], racks=racks, near=near)
        owners = by_partition(deal(UNIFORM, spec))
        assert all(racks[owner] in near[0][partition] for (_, partition), owner in owners.items())

    def test_a_rack_costs_nobody_what_it_has(self) -> None:
        near = [[frozenset({"north"}), frozenset({"south"})]]
        swapped = {"a": {topic_id(0): frozenset({1})}, "b": {topic_id(0): frozenset({0})}}
        spec = group({"a": {0}, "b": {0}}, [2], swapped, {"a": "north", "b": "south"}, near=near)
        assert deal(UNIFORM, spec) == swapped


def _kept(spec: AssignmentSpec) -> Assignment:
    """What each had and may keep, the first of two who had it."""
    taken: set[tuple[bytes, int]] = set()
    kept: dict[str, dict[bytes, frozenset[int]]] = {}
    for member in spec.members.values():
        mine = {
            (topic, partition)
            for topic, partitions in member.assigned.items()
            for partition in partitions
            if topic in member.topics and partition < spec.topics[topic].partition_count
        } - taken
        taken |= mine
        kept[member.member_id] = {
            topic: frozenset(p for t, p in mine if t == topic) for topic in {t for t, _ in mine}
        }
    return kept


class TestUniformWithManySubscriptions:
    @given(spec=specs())
    def test_loads_are_as_fair_as_can_be(self, spec: AssignmentSpec) -> None:
        """Against all ways to deal, where there are few enough to try."""
        choices = list(_choices(spec))
        ways = 1
        for readers in choices:
            ways *= len(readers)
        if ways > 3000:
            return
        fairest = min(sorted((way.count(m) for m in spec.members), reverse=True) for way in product(*choices))
        assert sorted(loads(spec, deal(UNIFORM, spec)).values(), reverse=True) == fairest

    @given(spec=specs(racks=True))
    def test_nothing_moves_where_loads_are_fair_already(self, spec: AssignmentSpec) -> None:
        dealt = deal(UNIFORM, spec)
        again = having(spec, dealt)
        assert moved(again, deal(UNIFORM, again)) == 0

    @settings(max_examples=50)
    @given(spec=specs(), gone=st.integers(0, 5))
    def test_who_stays_keeps_what_it_has_when_another_leaves(self, spec: AssignmentSpec, gone: int) -> None:
        """Its partitions go to those who have least; but where only the fullest may read them, one may have to
        pass on some of its own. Never more of them than came free.
        """
        before = having(spec, deal(UNIFORM, spec))
        left = dict(list(before.members.items()))
        freed = left.pop(list(left)[gone % len(left)])
        if not left:
            return
        still_read = set().union(*(member.topics for member in left.values()))
        topics = {t: topic for t, topic in before.topics.items() if t in still_read}
        after = AssignmentSpec(members=left, topics=topics)
        free = sum(len(ps) for t, ps in freed.assigned.items() if t in topics)
        assert moved(after, deal(UNIFORM, after)) <= free * len(left)

    def test_a_chain_of_members_evens_out(self) -> None:
        """c can get nothing of a's, but a gives to b, and b to c."""
        subscriptions = {"a": {0}, "b": {0, 1}, "c": {1}}
        held = {"a": {topic_id(0): frozenset(range(3))}, "b": {topic_id(1): frozenset({0, 1})}}
        spec = group(subscriptions, [3, 2], held)
        dealt = deal(UNIFORM, spec)
        assert loads(spec, dealt) == {"a": 2, "b": 2, "c": 1}
        assert moved(spec, dealt) == 2

    def test_of_members_with_the_same_load_the_nearer_gets_it(self) -> None:
        subscriptions = {"a": {0}, "b": {0}, "c": {1}}
        near = [[frozenset({"south"})], [frozenset({"west"})]]
        spec = group(subscriptions, [1, 1], racks={"a": "north", "b": "south"}, near=near)
        assert deal(UNIFORM, spec)["b"] == {topic_id(0): frozenset({0})}


def _choices(spec: AssignmentSpec) -> Iterator[list[str]]:
    for topic in spec.topics.values():
        readers = [m.member_id for m in spec.members.values() if topic.topic_id in m.topics]
        for _ in range(topic.partition_count):
            yield readers


class TestRange:
    @given(spec=specs())
    def test_a_reader_of_one_topic_reads_the_same_of_its_twin(self, spec: AssignmentSpec) -> None:
        """Topics with the same readers and the same number of partitions."""
        dealt = deal(RANGE, spec)
        twins: dict[tuple[int, tuple[str, ...]], list[bytes]] = {}
        for topic in spec.topics.values():
            readers = tuple(m.member_id for m in spec.members.values() if topic.topic_id in m.topics)
            twins.setdefault((topic.partition_count, readers), []).append(topic.topic_id)
        for same in twins.values():
            for assigned in dealt.values():
                assert len({assigned.get(topic, frozenset()) for topic in same}) == 1

    @given(spec=specs())
    def test_each_gets_neighbours_and_as_many_as_others_or_one_more(self, spec: AssignmentSpec) -> None:
        dealt = deal(RANGE, spec)
        for topic in spec.topics.values():
            readers = [m.member_id for m in spec.members.values() if topic.topic_id in m.topics]
            counts = []
            for member_id in readers:
                partitions = sorted(dealt.get(member_id, {}).get(topic.topic_id, ()))
                counts.append(len(partitions))
                if partitions:
                    assert partitions == list(range(partitions[0], partitions[-1] + 1))
            assert max(counts) - min(counts) <= 1

    def test_it_deals_what_kafka_deals(self) -> None:
        """Readers by instance id, then by member id; the first get one more (Kafka 4.3.1's, asked)."""
        everyone = {"a": {0, 1}, "b": {0, 1}, "c": {0, 1}}
        spec = group(everyone, [7, 3], instances={"c": "z", "b": "y"})
        assert deal(RANGE, spec) == {
            "b": {topic_id(0): frozenset({0, 1, 2}), topic_id(1): frozenset({0})},
            "c": {topic_id(0): frozenset({3, 4}), topic_id(1): frozenset({1})},
            "a": {topic_id(0): frozenset({5, 6}), topic_id(1): frozenset({2})},
        }

    def test_a_static_member_that_comes_back_under_another_id_has_its_range_again(self) -> None:
        before = deal(RANGE, group({"m5": {0}, "m6": {0}}, [5], instances={"m5": "x", "m6": "y"}))
        after = deal(RANGE, group({"m7": {0}, "m6": {0}}, [5], instances={"m7": "x", "m6": "y"}))
        assert (after["m7"], after["m6"]) == (before["m5"], before["m6"])


class TestSlices:
    """A large group must not keep others waiting."""

    @pytest.mark.parametrize("assignor", bundled_assignors(), ids=lambda assignor: assignor.name)
    @pytest.mark.parametrize("kind", ["one topic", "many topics", "many subscriptions"])
    def test_a_thousand_partitions_at_most_between_two_turns(
        self, assignor: ConsumerAssignor, kind: str
    ) -> None:
        topics = 1 if kind == "one topic" else 20
        subscriptions = {f"m{nth:03}": set(range(topics)) for nth in range(200)}
        if kind == "many subscriptions":
            subscriptions = {m: {n % topics, (n * 7) % topics} for n, m in enumerate(subscriptions)}
        spec = group(subscriptions, [2000 // topics] * topics)
        looked_at = list(assignor.assign(spec))
        assert max(looked_at) <= 1000
        assert sum(looked_at) >= 2000

    def test_no_group_no_work(self) -> None:
        assert [deal(assignor, group({}, [])) for assignor in bundled_assignors()] == [{}, {}]
