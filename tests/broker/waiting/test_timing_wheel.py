"""The timing wheel against a sorted list, in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.broker.waiting.timing_wheel import TimerTask, TimingWheel
from tests.everyday import examples


def test_a_timer_expires_at_its_deadline_and_not_before() -> None:
    wheel: TimingWheel[str] = TimingWheel(1000)
    task = wheel.add(1500, "a")
    assert wheel.advance(1499) == []
    assert wheel.advance(1500) == [task]
    assert (task.payload, len(wheel)) == ("a", 0)


def test_a_deadline_that_has_passed_expires_next_time() -> None:
    wheel: TimingWheel[str] = TimingWheel(1000)
    task = wheel.add(5, "late")
    assert wheel.next_deadline_ms() == 1000
    assert wheel.advance(1000) == [task]


def test_timers_expire_by_deadline_and_then_in_order_of_adding() -> None:
    wheel: TimingWheel[str] = TimingWheel()
    for deadline_ms, name in [(30, "c"), (10, "a"), (30, "d"), (20, "b")]:
        wheel.add(deadline_ms, name)
    assert [task.payload for task in wheel.advance(50)] == ["a", "b", "c", "d"]


def test_a_clock_that_goes_back_changes_nothing() -> None:
    wheel: TimingWheel[str] = TimingWheel(100)
    task = wheel.add(120, "a")
    wheel.advance(110)
    late = wheel.add(105, "late")
    assert wheel.advance(50) == [late]
    assert wheel.advance(120) == [task]


def test_cancelled_timers_leave_no_garbage() -> None:
    """However many come and go, what is left is at most a bucket for each tick of each wheel."""
    wheel: TimingWheel[int] = TimingWheel()
    for n in range(20_000):
        wheel.cancel(wheel.add(n % 100_000, n))
    assert sum(len(buckets) for buckets in wheel._buckets) <= 20 * len(wheel._buckets)
    assert len(wheel._due) == sum(len(buckets) for buckets in wheel._buckets)
    assert wheel.next_deadline_ms() is None
    assert wheel._due == []


@pytest.mark.parametrize("tick_ms", [1, 7])
def test_a_coarse_tick_is_late_and_never_early(tick_ms: int) -> None:
    wheel: TimingWheel[int] = TimingWheel(3, tick_ms=tick_ms)
    for deadline_ms in range(3, 300):
        wheel.add(deadline_ms, deadline_ms)
    for now_ms in range(3, 320):
        for task in wheel.advance(now_ms):
            assert task.deadline_ms <= now_ms < task.deadline_ms + tick_ms
    assert len(wheel) == 0


def test_the_loop_wakes_seldom_for_one_far_timer() -> None:
    wheel: TimingWheel[str] = TimingWheel(12_345)
    wheel.add(12_345 + 86_400_000, "tomorrow")
    wakes, now_ms = 0, 12_345
    while (deadline_ms := wheel.next_deadline_ms()) is not None:
        now_ms = deadline_ms
        wakes += 1
        wheel.advance(now_ms)
    assert now_ms == 12_345 + 86_400_000
    assert wakes <= 8


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(-5, 50)),
        st.tuples(st.just("add"), st.integers(0, 10_000_000)),
        st.tuples(st.just("cancel"), st.integers(0, 40)),
        st.tuples(st.just("advance"), st.integers(0, 500)),
        st.tuples(st.just("sleep"), st.just(0)),
        st.tuples(st.just("advance"), st.integers(0, 10_000_000)),
    ),
    max_size=40,
)


@settings(max_examples=examples(400), deadline=None)
@given(steps, st.integers(0, 10**12), st.sampled_from([2, 3, 20]))
def test_it_agrees_with_a_sorted_list(steps: list[tuple[str, int]], start_ms: int, size: int) -> None:
    wheel: TimingWheel[int] = TimingWheel(start_ms, wheel_size=size)
    now_ms, added, model = start_ms, list[TimerTask[int]](), list[tuple[int, int]]()
    for step, value in steps:
        if step == "add":
            added.append(wheel.add(now_ms + value, len(added)))
            model.append((now_ms + value, len(added) - 1))
        elif step == "cancel" and added:
            task = added[value % len(added)]
            there = (task.deadline_ms, task.payload) in model
            assert wheel.cancel(task) == there
            model = [entry for entry in model if entry[1] != task.payload]
        else:
            now_ms = wheel.next_deadline_ms() or now_ms if step == "sleep" else now_ms + value
            expired = [(task.deadline_ms, task.payload) for task in wheel.advance(now_ms)]
            assert expired == sorted(entry for entry in model if entry[0] <= now_ms)
            model = [entry for entry in model if entry[0] > now_ms]
        assert len(wheel) == len(model)
        next_ms = wheel.next_deadline_ms()
        assert (next_ms is None) == (not model)
        if next_ms is not None:
            assert next_ms <= max(now_ms, min(model)[0])
            assert next_ms > now_ms or min(model)[0] <= now_ms
