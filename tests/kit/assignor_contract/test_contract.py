"""The contract kit of assignors passes what is right, and finds what is wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.errors import Flaky

from blumfeld.spi.assignors import Assignment, AssignmentSpec, AssignorError, ConsumerAssignor
from blumfeld_kit import AssignorContract

Dealt = dict[str, dict[bytes, frozenset[int]]]
Steps = Generator[int, None, Assignment]


class OneForAll:
    """Right, and simple: each topic goes to the first of its readers."""

    name = "one-for-all"

    def assign(self, spec: AssignmentSpec) -> Steps:
        """Never fails."""
        dealt: Dealt = {}
        for topic in spec.topics.values():
            for start in range(0, topic.partition_count, 1000):
                yield min(1000, topic.partition_count - start)
            reader = next((m for m in spec.members.values() if topic.topic_id in m.topics), None)
            if reader is not None and topic.partition_count:
                partitions = frozenset(range(topic.partition_count))
                dealt.setdefault(reader.member_id, {})[topic.topic_id] = partitions
        return dealt


class TestOneForAll(AssignorContract):
    """The kit asks for no balance: that is the assignor's own affair."""

    def make_assignor(self) -> ConsumerAssignor:
        return OneForAll()


class Wrong(OneForAll):
    """An assignment is changed on its way out."""

    def assign(self, spec: AssignmentSpec) -> Steps:
        dealt = yield from super().assign(spec)
        spoilt: Assignment = self.spoilt({m: dict(assigned) for m, assigned in dealt.items()}, spec)
        return spoilt

    def spoilt(self, dealt: Dealt, spec: AssignmentSpec) -> Any:
        return dealt


class Doubles(Wrong):
    def spoilt(self, dealt: Dealt, spec: AssignmentSpec) -> Any:
        """Everybody who reads a topic gets it."""
        return {
            m.member_id: {t: frozenset(range(spec.topics[t].partition_count)) for t in sorted(m.topics)}
            for m in spec.members.values()
        }


class GivesToAnybody(Wrong):
    def spoilt(self, dealt: Dealt, spec: AssignmentSpec) -> Any:
        """The last member gets it all, whatever it reads."""
        last = [*spec.members, "nobody"][-2 if spec.members else -1]
        return {last: {t.topic_id: frozenset(range(t.partition_count)) for t in spec.topics.values()}}


class GivesToStrangers(Wrong):
    def spoilt(self, dealt: Dealt, spec: AssignmentSpec) -> Any:
        return {f"{m}?": assigned for m, assigned in dealt.items()}


class GivesWhatThereIsNot(Wrong):
    def spoilt(self, dealt: Dealt, spec: AssignmentSpec) -> Any:
        return {m: {t: p | {len(p)} for t, p in assigned.items()} for m, assigned in dealt.items()}


class LeavesOut(Wrong):
    def spoilt(self, dealt: Dealt, spec: AssignmentSpec) -> Any:
        return {m: {t: p - {2} for t, p in assigned.items()} for m, assigned in dealt.items()}


class GivesLists(Wrong):
    def spoilt(self, dealt: Dealt, spec: AssignmentSpec) -> Any:
        return {m: {t: set(p) for t, p in assigned.items()} for m, assigned in dealt.items()}


class KeepsWhatIsGone(Wrong):
    def spoilt(self, dealt: Dealt, spec: AssignmentSpec) -> Any:
        """Each member keeps what it had."""
        return {m.member_id: dict(m.assigned) or dealt.get(m.member_id, {}) for m in spec.members.values()}


class StumblesOverWhatIsGone(Wrong):
    def spoilt(self, dealt: Dealt, spec: AssignmentSpec) -> Any:
        assert all(t in spec.topics for m in spec.members.values() for t in m.assigned)
        return dealt


class Random(Wrong):
    def spoilt(self, dealt: Dealt, spec: AssignmentSpec) -> Any:
        """Whoever."""
        return dealt if random.random() < 0.5 else {}


class GoesByTheOrderOfASet(OneForAll):
    def assign(self, spec: AssignmentSpec) -> Steps:
        dealt: Dealt = {}
        yield from super().assign(spec)
        taken: set[bytes] = set()
        for member in spec.members.values():
            for topic_id in member.topics:
                if topic_id not in taken:
                    taken.add(topic_id)
                    partitions = frozenset(range(spec.topics[topic_id].partition_count))
                    dealt.setdefault(member.member_id, {})[topic_id] = partitions
                    break
        return {**dealt}


class Remembers(OneForAll):
    def __init__(self) -> None:
        self._before: Assignment = {}

    def assign(self, spec: AssignmentSpec) -> Steps:
        before, self._before = self._before, (yield from super().assign(spec))
        return self._before if before.keys() <= spec.members.keys() else {}


class Shares(OneForAll):
    """Two groups at once have one state."""

    def __init__(self) -> None:
        self._spec: AssignmentSpec | None = None

    def assign(self, spec: AssignmentSpec) -> Steps:
        self._spec = spec
        yield 0
        assert self._spec is not None
        return (yield from super().assign(self._spec))


class Wanders(Wrong):
    def spoilt(self, dealt: Dealt, spec: AssignmentSpec) -> Any:
        """A topic goes to another reader each time."""
        moved: Dealt = {}
        for topic in spec.topics.values():
            readers = [m for m in spec.members.values() if topic.topic_id in m.topics]
            had = next((n for n, m in enumerate(readers) if m.assigned.get(topic.topic_id)), -1)
            if readers and topic.partition_count:
                reader = readers[(had + 1) % len(readers)]
                moved.setdefault(reader.member_id, {})[topic.topic_id] = frozenset(
                    range(topic.partition_count)
                )
        return moved


class NeverYields(OneForAll):
    def assign(self, spec: AssignmentSpec) -> Steps:
        for _ in super().assign(spec):
            pass
        return (yield from _ended(OneForAll().assign(spec)))


def _ended(steps: Steps) -> Steps:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            dealt: Assignment = end.value
            return dealt
    yield 0


class YieldsAtTheEnd(OneForAll):
    def assign(self, spec: AssignmentSpec) -> Steps:
        dealt = yield from _ended(super().assign(spec))
        yield sum(topic.partition_count for topic in spec.topics.values())
        return dealt


class SaysLittle(OneForAll):
    def assign(self, spec: AssignmentSpec) -> Steps:
        dealt = yield from _ended(super().assign(spec))
        yield 10
        return dealt


class IsSlow(OneForAll):
    def assign(self, spec: AssignmentSpec) -> Steps:
        dealt = yield from super().assign(spec)
        if len(spec.members) > 100:
            sum(range(3_000_000))
        return dealt


class Writes(OneForAll):
    def assign(self, spec: AssignmentSpec) -> Steps:
        spec.members.pop(next(iter(spec.members), ""), None)  # type: ignore[attr-defined]
        return (yield from super().assign(spec))


class HasTwoNames(OneForAll):
    name = "one, two"


class AlwaysFails(OneForAll):
    def assign(self, spec: AssignmentSpec) -> Steps:
        yield 0
        raise AssignorError("not today")


PLANTED = {
    Doubles: "a_partition_has_one_reader",
    GivesToAnybody: "subscribe_to_it",
    GivesToStrangers: "subscribe_to_it",
    GivesWhatThereIsNot: "subscribe_to_it",
    LeavesOut: "a_partition_has_one_reader",
    GivesLists: "come_as_frozen_sets",
    KeepsWhatIsGone: "a_stale_assignment",
    StumblesOverWhatIsGone: "a_stale_assignment",
    Random: "the_same_group_is_dealt_the_same",
    GoesByTheOrderOfASet: "the_same_group_is_dealt_the_same",
    Remembers: "the_same_group_is_dealt_the_same",
    Shares: "two_groups_at_once",
    Wanders: "a_group_that_has_what_was_dealt_keeps_it",
    NeverYields: "others_have_their_turn",
    YieldsAtTheEnd: "others_have_their_turn",
    SaysLittle: "others_have_their_turn",
    IsSlow: "no_slice_is_long",
    Writes: "subscribe_to_it",
    HasTwoNames: "a_name",
    AlwaysFails: "groups_at_the_edge",
}
"""Assignor → the rule of the kit that must find it."""


@pytest.fixture
def finding_is_enough() -> Iterator[None]:
    """A failure found isn't made small, which takes ten times as long."""
    now = settings.get_current_profile_name()
    settings.register_profile("finding is enough", phases=[Phase.generate], database=None)
    settings.load_profile("finding is enough")
    yield
    settings.load_profile(now)


@pytest.mark.usefixtures("finding_is_enough")
@pytest.mark.parametrize(
    ("planted", "rule"), PLANTED.items(), ids=lambda value: getattr(value, "__name__", None)
)
def test_a_planted_fault_is_found(planted: type[OneForAll], rule: str) -> None:
    class Contract(AssignorContract):
        examples = 15

        def make_assignor(self) -> ConsumerAssignor:
            return planted()

    (name,) = (name for name in dir(Contract) if name.startswith("test_") and rule in name)
    test = getattr(Contract(), name)
    cases = [case for mark in getattr(test, "pytestmark", ()) for case in mark.args[1]] or [()]
    with pytest.raises((AssertionError, AttributeError, AssignorError, Flaky)):
        _run(test, cases)


def _run(test: Callable[..., None], cases: Sequence[tuple[Any, ...]]) -> None:
    for case in cases:
        test(*case)


def test_what_an_assignor_does_on_purpose_is_no_fault() -> None:
    class Contract(AssignorContract):
        deals_all = False
        examples = 25

        def make_assignor(self) -> ConsumerAssignor:
            return LeavesOut()

    Contract().test_a_partition_has_one_reader()
