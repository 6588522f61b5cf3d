"""The contract of a server-side assignor: subclass :class:`AssignorContract` and give it your assignor.

.. code-block:: python

    class TestMyAssignor(AssignorContract):
        def make_assignor(self):
            return MyAssignor()
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings

from blumfeld.spi.assignors import AssignmentSpec, AssignorError, ConsumerAssignor
from blumfeld_kit.assignor_contract.specs import (
    backward,
    deal,
    holding,
    large_spec,
    make_spec,
    readers_of,
    specs,
    topic_id,
)

LOOKED_AT_MAX = 1000
SLICE_MS_MAX = 20.0
"""CPU time that one slice may take, best of three runs: a heartbeat of another group waits that long."""
RUNS = 3


class AssignorContract:
    """The contract of ``blumfeld.spi.assignors.ConsumerAssignor`` as tests."""

    deals_all = True
    """Every partition of a subscribed topic has a reader. Set False for an assignor that leaves some out on purpose."""
    settles = True
    """A group that holds its assignment gets the same one again. Set False for an assignor that may move more
    partitions than a change of the group demands.
    """
    examples = 50
    """Number of groups that each rule is tested with."""

    def make_assignor(self) -> ConsumerAssignor:
        """Return a new instance of your assignor."""
        raise NotImplementedError("override make_assignor")

    def every_group(self, rule: Callable[[AssignmentSpec], None]) -> None:
        """Test a rule with many groups. A failure shows the smallest group that breaks it (hypothesis)."""

        @settings(max_examples=self.examples, deadline=None, suppress_health_check=list(HealthCheck))
        @given(spec=specs(racks=True))
        def hold(spec: AssignmentSpec) -> None:
            try:
                rule(spec)
            except AssignorError:
                return

        hold()

    # Its name

    def test_it_has_a_name_that_a_client_can_say(self) -> None:
        """The name has no comma and no space: ``group.remote.assignor`` and ``group.consumer.assignors`` name the
        assignor.
        """
        name = self.make_assignor().name
        assert name
        assert name == "".join(name.split())
        assert "," not in name

    # The assignment

    def test_it_deals_what_there_is_to_members_that_subscribe_to_it(self) -> None:
        """A member gets only partitions that exist, of topics that it subscribes to."""
        assignor = self.make_assignor()

        def rule(spec: AssignmentSpec) -> None:
            for member_id, assigned in deal(assignor, spec).items():
                assert member_id in spec.members
                for topic, partitions in assigned.items():
                    assert topic in spec.members[member_id].topics
                    assert partitions <= set(range(spec.topics[topic].partition_count))

        self.every_group(rule)

    def test_a_partition_has_one_reader(self) -> None:
        """A partition has one reader at most. It has exactly one if the assignor ``deals_all``."""
        assignor = self.make_assignor()

        def rule(spec: AssignmentSpec) -> None:
            readers = readers_of(deal(assignor, spec))
            assert all(len(members) == 1 for members in readers.values()), readers
            if self.deals_all:
                for topic in spec.topics.values():
                    assert {(topic.topic_id, nth) for nth in range(topic.partition_count)} <= readers.keys()

        self.every_group(rule)

    def test_partitions_come_as_frozen_sets(self) -> None:
        """The coordinator keeps the sets as the target assignment, so they must be immutable."""
        assignor = self.make_assignor()

        def rule(spec: AssignmentSpec) -> None:
            for assigned in deal(assignor, spec).values():
                assert all(isinstance(partitions, frozenset) for partitions in assigned.values())

        self.every_group(rule)

    @pytest.mark.parametrize(
        ("subscriptions", "partitions"),
        [
            ({}, []),
            ({"a": set()}, []),
            ({"a": {0}}, [0]),
            ({"a": {0}, "b": set()}, [3]),
            ({f"m{nth:02}": {0} for nth in range(20)}, [3]),
        ],
        ids=[
            "nobody",
            "nothing to read",
            "no partitions",
            "one reads nothing",
            "more members than partitions",
        ],
    )
    def test_groups_at_the_edge(self, subscriptions: dict[str, set[int]], partitions: list[int]) -> None:
        """Groups without members, topics or partitions are assigned too: they occur in the life of any group."""
        spec = make_spec(subscriptions, partitions)
        readers = readers_of(deal(self.make_assignor(), spec))
        if self.deals_all:
            assert len(readers) == sum(topic.partition_count for topic in spec.topics.values())

    def test_a_stale_assignment_is_no_obstacle(self) -> None:
        """A member's present partitions may be deleted, out of range, or held by another member too."""
        gone = {topic_id(7): frozenset({0}), topic_id(0): frozenset({1, 99})}
        spec = make_spec({"a": {0}, "b": {0}}, [2], {"a": gone, "b": gone})
        readers = readers_of(deal(self.make_assignor(), spec))
        assert readers.keys() <= {(topic_id(0), 0), (topic_id(0), 1)}
        assert all(len(members) == 1 for members in readers.values())

    # Determinism

    def test_the_same_group_is_dealt_the_same(self) -> None:
        """The assignment depends on the spec alone: not on chance, the clock, earlier assignments or the order of a
        set.
        """
        used = self.make_assignor()

        def rule(spec: AssignmentSpec) -> None:
            dealt = deal(used, spec)
            assert deal(used, spec) == dealt
            assert deal(self.make_assignor(), spec) == dealt
            assert deal(self.make_assignor(), backward(spec)) == dealt, (
                "the assignment depends on the order of a set"
            )

        rule(large_spec(12, 12, 60, 6))
        self.every_group(rule)

    def test_two_groups_at_once_do_not_meet(self) -> None:
        """Two assignments of one assignor, run in turns, come to the same as each alone."""
        assignor = self.make_assignor()
        first_spec = large_spec(20, 4, 2000, 4)
        other = large_spec(15, 2, 2000, 2)
        alone = [deal(assignor, spec) for spec in (first_spec, other)]
        assignments = {}
        turns = {0: assignor.assign(first_spec), 1: assignor.assign(other)}
        while turns:
            for nth, steps in list(turns.items()):
                try:
                    next(steps)
                except StopIteration as end:
                    assignments[nth] = end.value
                    del turns[nth]
        assert [assignments[0], assignments[1]] == alone

    def test_a_group_that_has_what_was_dealt_keeps_it(self) -> None:
        """A group that holds its assignment gets the same one again, if the assignor ``settles``."""
        if not self.settles:
            pytest.skip("it says that it doesn't settle")
        assignor = self.make_assignor()

        def rule(spec: AssignmentSpec) -> None:
            dealt = deal(assignor, spec)
            assert readers_of(deal(assignor, holding(spec, dealt))) == readers_of(dealt)

        self.every_group(rule)

    # Its slices

    @pytest.mark.parametrize(
        ("topics", "topics_each"),
        [(1, 1), (50, 50), (50, 5)],
        ids=["one topic", "many topics", "some topics each"],
    )
    def test_others_have_their_turn(self, topics: int, topics_each: int) -> None:
        """The assignor yields at least once for every 1,000 partitions. The yielded numbers add up to the partitions it
        looked at.
        """
        looked_at = list(self.make_assignor().assign(large_spec(200, topics, 10_000, topics_each)))
        assert looked_at, "assign() never yields; it must at least once for every 1,000 partitions"
        assert all(0 <= partitions <= LOOKED_AT_MAX for partitions in looked_at), (
            f"a slice looked at {max(looked_at)} partitions; allowed: {LOOKED_AT_MAX}"
        )
        assert sum(looked_at) >= 9_000, (
            f"the yielded numbers add up to {sum(looked_at)}; the group has 10,000 partitions to look at"
        )

    def test_no_slice_is_long(self) -> None:
        """No slice takes more than ``SLICE_MS_MAX`` of CPU time: members of other groups wait meanwhile."""
        spec = large_spec(500, 20, 10_000, 20)
        longest = min(_longest_ms(self.make_assignor(), spec) for _ in range(RUNS))
        assert longest <= SLICE_MS_MAX, (
            f"a slice took {longest:.1f} ms of CPU; allowed: {SLICE_MS_MAX:.0f}. Yield after fewer partitions, or "
            f"spend less on each: the group has {len(spec.members)} members"
        )


def _longest_ms(assignor: ConsumerAssignor, spec: AssignmentSpec) -> float:
    longest = 0.0
    steps = assignor.assign(spec)
    while True:
        began = time.process_time()
        ended = next(steps, None) is None
        longest = max(longest, time.process_time() - began)
        if ended:
            return longest * 1000
