"""Events that a peer can cause as often as it likes: the first is logged, the others are counted, none is lost."""

from __future__ import annotations

import weakref
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from blumfeld.spi.defects import command_text, place_of
from blumfeld.spi.repeated_events import INTERVAL_MS, RepeatedEvents
from blumfeld.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from blumfeld_kit.fakes.runtime import FakeRuntime


class Lines:
    """Keeps what was written."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def info(self, event: str, **values: Any) -> None:
        self.lines.append(values)


def test_the_first_is_logged_at_once_and_the_others_are_one_line() -> None:
    """The line has the newest values; a later interval begins anew; silence costs no timer."""
    runtime, lines = FakeRuntime(), Lines()
    events = RepeatedEvents(runtime)
    for number in range(5):
        events.say(lines.info, "e", "key", number=number)
    assert lines.lines == [{"number": 0}]
    runtime.advance(INTERVAL_MS)
    assert lines.lines[1:] == [{"number": 4, "suppressed": 4}]
    runtime.advance(INTERVAL_MS * 3)
    assert len(lines.lines) == 2
    events.say(lines.info, "e", "key", number=9)
    assert lines.lines[2:] == [{"number": 9}]


def test_what_lasts_has_one_line_in_each_interval() -> None:
    """Each second something happens, for 45 of them."""
    runtime, lines = FakeRuntime(), Lines()
    events = RepeatedEvents(runtime)
    for number in range(45):
        events.say(lines.info, "e", "key", number=number)
        runtime.advance(1_000)
    runtime.advance(INTERVAL_MS * 2)
    assert len(lines.lines) == 1 + 5
    assert 1 + sum(line["suppressed"] for line in lines.lines[1:]) == 45


class DefectError(Exception):
    """One that a weak reference can be made to."""


def test_a_traceback_is_written_once_and_not_kept() -> None:
    """Its frames would keep the request that met the defect."""
    runtime, lines = FakeRuntime(), Lines()
    events = RepeatedEvents(runtime)
    defect, other = DefectError(), DefectError()
    alive = [weakref.ref(defect), weakref.ref(other)]
    events.say(lines.info, "e", "key", exc_info=defect)
    assert lines.lines.pop() == {"exc_info": defect}
    events.say(lines.info, "e", "key", exc_info=other)
    del defect, other
    assert [reference() for reference in alive] == [None, None]
    runtime.advance(INTERVAL_MS)
    assert lines.lines == [{"suppressed": 1}]


@given(keys=st.lists(st.integers(0, 9), max_size=60), kinds_max=st.integers(1, 5))
def test_lines_are_bounded_and_no_event_is_lost(keys: list[int], kinds_max: int) -> None:
    runtime, lines = FakeRuntime(), Lines()
    events = RepeatedEvents(runtime, kinds_max=kinds_max)
    for key in keys:
        events.say(lines.info, "e", key)
    runtime.advance(INTERVAL_MS)
    assert len(lines.lines) <= 2 * (kinds_max + 1)
    assert sum(line.get("suppressed", 1) for line in lines.lines) == len(keys)


def test_a_huge_command_is_a_short_text() -> None:
    topic = OffsetCommitRequestTopic(name="x" * 1_000)
    text = command_text(OffsetCommitRequest(group_id="g", topics=[topic] * 100_000))
    assert "group_id='g'" in text
    assert "100000 in all" in text
    assert len(text) < 1_000


def test_a_defect_has_the_place_where_it_was_raised() -> None:
    def raising() -> None:
        raise ValueError

    places = []
    for _ in range(2):
        try:
            raising()
        except ValueError as defect:
            places.append(place_of(defect))
    assert places[0] == places[1]
    assert "test_repeated_events.py:" in places[0]
    assert place_of(ValueError()) == "ValueError"
