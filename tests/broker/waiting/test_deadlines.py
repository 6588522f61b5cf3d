"""Deadlines: the same as a sorted list, with any lengths of wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from blumfeld.broker.waiting.deadlines import EMPTY_QUEUES_MAX, Deadlines

STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "remove", "expire"]), st.integers(0, 5), st.integers(0, 9)),
    max_size=60,
)


@given(STEPS)
def test_it_agrees_with_a_list(steps: list[tuple[str, int, int]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    model: list[tuple[float, int, float]] = []  # (deadline, thing, length)
    now_ms = 0.0
    for number, (what, passed_ms, value) in enumerate(steps):
        now_ms += passed_ms
        if what == "add":
            wait_ms = value * 3.0
            before = deadlines.next_ms()
            earlier = deadlines.add(number, wait_ms, now_ms)
            assert earlier or (before is not None and before <= now_ms + wait_ms)
            model.append((now_ms + wait_ms, number, wait_ms))
        elif what == "remove" and model:
            _, gone, wait_ms = model.pop(value % len(model))
            deadlines.remove(gone, wait_ms)
        elif what == "expire":
            due = sorted(one[0] for one in model if one[0] <= now_ms)
            expired = deadlines.expire(now_ms)
            assert [next(at for at, number, _ in model if number == one) for one in expired] == due
            model = [one for one in model if one[0] > now_ms]
        assert len(deadlines) == len(model)
        next_ms = deadlines.next_ms()
        if model:
            assert next_ms is not None
            assert next_ms <= min(at for at, *_ in model)
    assert sorted(deadlines.drain()) == sorted(number for _, number, _ in model)
    assert (len(deadlines), deadlines.next_ms()) == (0, None)


def test_a_client_that_waits_for_another_length_each_time_leaves_little_behind() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add("kept", 500_000, 0)
    for wait_ms in range(1_000, 11_000):
        deadlines.add("request", wait_ms, 0)
        deadlines.remove("request", wait_ms)
    assert len(deadlines._queues) <= EMPTY_QUEUES_MAX + 3
    assert len(deadlines._firsts) == len(deadlines._queues)
    assert deadlines.expire(500_000) == ["kept"]
