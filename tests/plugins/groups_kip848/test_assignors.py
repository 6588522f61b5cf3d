"""What ``uniform`` and ``range`` promise, for any group."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.spi.assignors import Assignment, AssignmentSpec, ConsumerAssignor
from blumfeld_groups_kip848.assignors.range import RangeAssignor
from blumfeld_groups_kip848.assignors.uniform import UniformAssignor
from blumfeld_kit import AssignorContract
from blumfeld_kit.assignor_contract.specs import (
    RACKS,
    deal,
    holding,
    make_spec,
    readers_of,
    specs,
    topic_id,
)
from tests import everyday

UNIFORM, RANGE = UniformAssignor(), RangeAssignor()


def by_partition(assignment: Assignment) -> dict[tuple[bytes, int], str]:
    """Who has each."""
    return {partition: member_id for partition, (member_id,) in readers_of(assignment).items()}


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


class TestUniform(AssignorContract):
    """All that every assignor must hold."""

    examples = everyday.examples(50)

    def make_assignor(self) -> ConsumerAssignor:
        return UniformAssignor()


class TestRange(AssignorContract):
    """The same."""

    examples = everyday.examples(50)

    def make_assignor(self) -> ConsumerAssignor:
        return RangeAssignor()


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
        spec = make_spec({"a": {0, 1}, "b": {0, 1}}, [4, 4])
        assert deal(UNIFORM, spec) == {
            "a": {topic_id(0): frozenset({0, 2}), topic_id(1): frozenset({0, 2})},
            "b": {topic_id(0): frozenset({1, 3}), topic_id(1): frozenset({1, 3})},
        }

    def test_what_is_far_is_given_up_first(self) -> None:
        near = [[frozenset({"north"}), frozenset({"south"}), frozenset({"north"}), frozenset({"north"})]]
        everything = {"a": {topic_id(0): frozenset(range(4))}}
        spec = make_spec({"a": {0}, "b": {0}}, [4], everything, {"a": "north", "b": "south"}, near=near)
        given_up = deal(UNIFORM, spec)["b"][topic_id(0)]
        assert 1 in given_up

    def test_what_is_near_is_dealt_first(self) -> None:
        """As much as there is room for: each member reads in its own rack here."""
        near = [[frozenset({RACKS[nth % 3]}) for nth in range(9)]]
        racks = {"a": "west", "b": "north", "c": "south"}
        spec = make_spec({"a": {0}, "b": {0}, "c": {0}}, [9], racks=racks, near=near)
        owners = by_partition(deal(UNIFORM, spec))
        assert all(racks[owner] in near[0][partition] for (_, partition), owner in owners.items())


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

    @settings(max_examples=everyday.examples(50))
    @given(spec=specs(), gone=st.integers(0, 5))
    def test_who_stays_keeps_what_it_has_when_another_leaves(self, spec: AssignmentSpec, gone: int) -> None:
        """Its partitions go to those who have least; but where only the fullest may read them, one may have to
        pass on some of its own. Never more of them than came free.
        """
        before = holding(spec, deal(UNIFORM, spec))
        left = dict(list(before.members.items()))
        freed = left.pop(list(left)[gone % len(left)])
        if not left:
            return
        still_read = set().union(*(member.topics for member in left.values()))
        topics = {t: topic for t, topic in before.topics.items() if t in still_read}
        after = AssignmentSpec(members=left, topics=topics)
        free = sum(len(ps) for t, ps in freed.assigned.items() if t in topics)
        assert moved(after, deal(UNIFORM, after)) <= free * len(left)

    def test_a_member_passes_on_what_it_was_just_dealt(self) -> None:
        """s passes a partition of topic 0 to g, and g one of topic 1 to t: partition 2, which g didn't have before."""
        subscriptions = {"g": {0, 1}, "s": {0}, "t": {1}}
        held = {
            "g": {topic_id(1): frozenset({0})},
            "s": {topic_id(0): frozenset(range(4))},
            "t": {topic_id(1): frozenset({1})},
        }
        dealt = deal(UNIFORM, make_spec(subscriptions, [4, 3], held))
        assert dealt["t"] == {topic_id(1): frozenset({1, 2})}
        assert dealt["g"][topic_id(1)] == frozenset({0})

    def test_a_partition_that_two_members_had_goes_back(self) -> None:
        """The first of them keeps it until it has to give one up; then the other gets that very one."""
        subscriptions = {"a": {0}, "b": {0, 1}}
        held = {"a": {topic_id(0): frozenset(range(3))}, "b": {topic_id(0): frozenset({1})}}
        dealt = deal(UNIFORM, make_spec(subscriptions, [3, 1], held))
        assert dealt["b"] == {topic_id(0): frozenset({1}), topic_id(1): frozenset({0})}

    def test_of_members_with_the_same_load_the_nearer_gets_it(self) -> None:
        subscriptions = {"a": {0}, "b": {0}, "c": {1}}
        near = [[frozenset({"south"})], [frozenset({"west"})]]
        spec = make_spec(subscriptions, [1, 1], racks={"a": "north", "b": "south"}, near=near)
        assert deal(UNIFORM, spec)["b"] == {topic_id(0): frozenset({0})}


def _choices(spec: AssignmentSpec) -> Iterator[list[str]]:
    for topic in spec.topics.values():
        readers = [m.member_id for m in spec.members.values() if topic.topic_id in m.topics]
        for _ in range(topic.partition_count):
            yield readers


class TestRanges:
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
        spec = make_spec(everyone, [7, 3], instances={"c": "z", "b": "y"})
        assert deal(RANGE, spec) == {
            "b": {topic_id(0): frozenset({0, 1, 2}), topic_id(1): frozenset({0})},
            "c": {topic_id(0): frozenset({3, 4}), topic_id(1): frozenset({1})},
            "a": {topic_id(0): frozenset({5, 6}), topic_id(1): frozenset({2})},
        }

    def test_a_static_member_that_comes_back_under_another_id_has_its_range_again(self) -> None:
        before = deal(RANGE, make_spec({"m5": {0}, "m6": {0}}, [5], instances={"m5": "x", "m6": "y"}))
        after = deal(RANGE, make_spec({"m7": {0}, "m6": {0}}, [5], instances={"m7": "x", "m6": "y"}))
        assert (after["m7"], after["m6"]) == (before["m5"], before["m6"])
