"""The audit: which verdicts have a line, what stands in it, and how floods are held down."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_security.audit.trail import NAME_CHARACTERS_MAX, SAMPLE, AuditOptions, Trail
from tests.coordinator.fakes import Events

ALICE = ("User:alice", "10.0.0.7", "Read", "Topic", "ticks")


def trail(verdicts: Any) -> tuple[Trail, Events, FakeRuntime]:
    events, runtime = Events(), FakeRuntime(1)
    return Trail(AuditOptions(verdicts=verdicts), events, runtime), events, runtime


@pytest.mark.parametrize(
    ("verdicts", "lines"),
    [("none", 0), ("denied", 1), ("sampled", 1 + 2), ("all", 1 + 2 * SAMPLE)],
)
def test_the_option_says_which_verdicts_have_a_line(verdicts: str, lines: int) -> None:
    audit, events, _ = trail(verdicts)
    for _ in range(2 * SAMPLE):
        audit.verdict(True, *ALICE)
    audit.verdict(False, *ALICE)
    assert len(events.said) == lines
    (metric,) = audit.metrics()
    assert metric.read() == {("allowed",): 2 * SAMPLE, ("denied",): 1}


def test_a_line_has_who_from_where_what_and_on_what() -> None:
    audit, events, _ = trail("denied")
    audit.verdict(False, *ALICE)
    ((level, event, values),) = events.said
    assert (level, event) == ("warning", "denied")
    assert values == {
        "principal": "User:alice",
        "host": "10.0.0.7",
        "operation": "Read",
        "resource_type": "Topic",
        "resource": "ticks",
    }


def test_equal_refusals_have_two_lines_and_their_number() -> None:
    audit, events, runtime = trail("denied")
    for _ in range(1_000):
        audit.verdict(False, *ALICE)
    runtime.advance(60_000)
    assert [values.get("suppressed") for _, _, values in events.said] == [None, 999]


def test_a_name_can_not_fill_the_log_or_look_like_another_line() -> None:
    audit, events, _ = trail("denied")
    audit.verdict(False, *ALICE[:4], "x" * 32_767)
    audit.verdict(False, *ALICE[:4], "a\nallowed")
    names = [values["resource"] for _, _, values in events.said]
    assert [len(names[0]), names[1]] == [NAME_CHARACTERS_MAX + 1, "'a\\nallowed'"]
