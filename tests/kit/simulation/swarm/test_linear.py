"""The check of a register's history: against every order of small histories, and on known ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld_kit.simulation.swarm import Operation, violation_of


def write(value: str, start_s: float, end_s: float = inf) -> Operation:
    return Operation(client="c", is_write=True, value=value, start_s=start_s, end_s=end_s)


def read(value: str | None, start_s: float, end_s: float = inf) -> Operation:
    return Operation(client="c", is_write=False, value=value, start_s=start_s, end_s=end_s)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [read(None, 0, 1), write("a", 0.5, 2), read("a", 1.5, 3)],
        [write("a", 0, 10), write("b", 1, 9), read("b", 2, 3), read("a", 4, 5)],
        [write("a", 0), read("a", 100, 101)],
        [write("a", 0), read(None, 100, 101), read("a", 102, 103)],
        [write("a", 0, 1), read("lost", 0)],
    ],
)
def test_an_order_explains_it(history: list[Operation]) -> None:
    assert violation_of(history) is None


@pytest.mark.parametrize(
    ("history", "why"),
    [
        ([write("a", 0, 1), read(None, 2, 3)], "stood"),
        ([write("a", 0, 1), write("b", 2, 3), read("a", 4, 5)], "stood"),
        ([write("a", 0, 10), write("b", 0, 10), read("a", 1, 2), read("b", 3, 4), read("a", 5, 6)], "stood"),
        ([read("x", 0, 1)], "nobody wrote"),
        ([read("a", 0, 1), write("a", 2, 3)], "before the write"),
        ([write("a", 0, 1), write("a", 2, 3)], "twice"),
    ],
)
def test_no_order_explains_it(history: list[Operation], why: str) -> None:
    assert why in (violation_of(history) or "")


def explained(history: Sequence[Operation]) -> bool:
    """Whether some order, with or without each unanswered write, explains the history."""
    known = [one for one in history if one.end_s < inf]
    maybe = [one for one in history if one.end_s == inf and one.is_write]
    for bits in range(1 << len(maybe)):
        chosen = known + [one for nth, one in enumerate(maybe) if bits >> nth & 1]
        if any(_is_order(order) for order in permutations(chosen)):
            return True
    return False


def _is_order(order: Sequence[Operation]) -> bool:
    value: str | None = None
    for nth, one in enumerate(order):
        if any(later.end_s < one.start_s for later in order[nth + 1 :]):
            return False
        if one.is_write:
            value = one.value
        elif one.value != value:
            return False
    return True


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    count = draw(st.integers(1, 5))
    times = draw(st.permutations(range(2 * count)))
    writes: list[str] = []
    history = []
    for nth in range(count):
        start, end = sorted(times[2 * nth : 2 * nth + 2])
        if draw(st.booleans()):
            writes.append(f"v{nth}")
            history.append(write(writes[-1], start, draw(st.sampled_from((float(end), inf)))))
        else:
            history.append(read(None, start, end))
    for one in history:
        if not one.is_write:
            one.value = draw(st.sampled_from([None, *writes]))
    return history


@given(histories())
def test_it_agrees_with_every_order_tried(history: list[Operation]) -> None:
    assert (violation_of(history) is None) == explained(history)
