"""The contract of an assignor, on this one; and what makes it a standby."""

from __future__ import annotations

from acme_assignor_standby import StandbyAssignor

from blumfeld.spi.assignors import ConsumerAssignor
from blumfeld_kit import AssignorContract
from blumfeld_kit.assignor_contract import deal, holding, make_spec, topic_id

STANDBY = StandbyAssignor()
WHOLE = frozenset(range(3))


class TestStandbyAssignor(AssignorContract):
    """All that every assignor must hold."""

    def make_assignor(self) -> ConsumerAssignor:
        """A fresh one."""
        return StandbyAssignor()


def test_a_topic_has_one_reader_and_the_others_stand_by() -> None:
    spec = make_spec({"a": {0}, "b": {0}, "c": {0}}, [3])
    assert deal(STANDBY, spec) == {"a": {topic_id(0): WHOLE}}


def test_topics_go_to_those_who_have_least() -> None:
    spec = make_spec({"a": {0, 1}, "b": {0, 1}}, [3, 3])
    assert deal(STANDBY, spec) == {"a": {topic_id(0): WHOLE}, "b": {topic_id(1): WHOLE}}


def test_a_topic_that_grew_stays_whole() -> None:
    spec = make_spec({"a": {0}, "b": {0}}, [3], {"b": {topic_id(0): frozenset({0})}})
    assert deal(STANDBY, spec) == {"b": {topic_id(0): WHOLE}}


def test_who_joins_takes_nothing_from_anybody() -> None:
    before = deal(STANDBY, make_spec({"b": {0, 1}}, [3, 3]))
    joined = make_spec({"a": {0, 1}, "b": {0, 1}}, [3, 3], before)
    assert deal(STANDBY, joined) == before


def test_when_the_reader_goes_another_takes_over() -> None:
    before = deal(STANDBY, make_spec({"a": {0}, "b": {0}}, [3]))
    left = holding(make_spec({"b": {0}}, [3]), before)
    assert deal(STANDBY, left) == {"b": {topic_id(0): WHOLE}}
