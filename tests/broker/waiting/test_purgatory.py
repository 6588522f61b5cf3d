"""The purgatory: each operation ends once, in park order, whatever wakes whatever."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.broker.waiting.purgatory import Parked, Purgatory
from blumfeld.spi.context import ParkedOperation
from tests.everyday import examples


class Operation:
    """Completes once it is ready; remembers what was done to it."""

    def __init__(
        self, name: object, log: list[tuple[object, str]], then: Callable[[], object] = lambda: None
    ) -> None:
        self.name, self.log, self.then = name, log, then
        self.ready = False
        self.tries = 0

    def try_complete(self) -> bool:
        self.tries += 1
        if self.ready:
            self.log.append((self.name, "completed"))
            self.then()
        return self.ready

    def expire(self) -> None:
        self.log.append((self.name, "expired"))


class Bench:
    """A purgatory, its orders and its defects."""

    def __init__(self) -> None:
        self.orders = 0
        self.defects: list[tuple[ParkedOperation, Exception]] = []
        self.log: list[tuple[object, str]] = []
        self.purgatory = Purgatory(
            0, self.order, lambda operation, error: self.defects.append((operation, error))
        )

    def order(self) -> None:
        self.orders += 1

    def park(
        self,
        name: object,
        keys: Sequence[str],
        deadline_ms: int = 100,
        then: Callable[[], object] = lambda: None,
    ) -> Operation:
        operation = Operation(name, self.log, then)
        self.purgatory.park(operation, keys, deadline_ms)
        return operation


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_what_can_complete_at_once_is_not_kept(bench: Bench) -> None:
    operation = Operation("a", bench.log)
    operation.ready = True
    assert bench.purgatory.park(operation, ["k"], 100) is None
    assert (len(bench.purgatory), bench.purgatory.watched_keys) == (0, 0)
    assert bench.purgatory.next_deadline_ms() is None


def test_what_was_just_tried_is_kept_without_another_try(bench: Bench) -> None:
    """And a wake tries it as any other."""
    operation = Operation("a", bench.log)
    operation.ready = True
    assert bench.purgatory.park(operation, ["k"], 100, tried=True) is not None
    assert bench.log == []
    bench.purgatory.wake("k")
    bench.purgatory.run_woken()
    assert bench.log == [("a", "completed")]


def test_waking_orders_one_run(bench: Bench) -> None:
    bench.park("a", ["k", "l"])
    bench.purgatory.wake("nobody's")
    assert bench.orders == 0
    for key in ("k", "l", "k"):
        bench.purgatory.wake(key)
    assert bench.orders == 1
    bench.purgatory.run_woken()
    bench.purgatory.wake("k")
    assert bench.orders == 2


def test_an_operation_ends_once_under_all_its_keys(bench: Bench) -> None:
    operation = bench.park("a", ["k", "l", "k"])
    operation.ready = True
    bench.purgatory.wake("k")
    bench.purgatory.wake("l")
    bench.purgatory.run_woken()
    assert bench.purgatory.tick(1000) == 0
    assert bench.log == [("a", "completed")]
    assert (len(bench.purgatory), bench.purgatory.watched_keys, bench.purgatory.completed_total) == (0, 0, 1)


@pytest.mark.parametrize("ends_by", ["wake", "tick", "forget"])
def test_who_has_ended_is_not_kept(bench: Bench, ends_by: str) -> None:
    """Not even until garbage is collected, which a server does rarely."""
    operation = Operation("a", [])
    parked = bench.purgatory.park(operation, ["k"], 100)
    assert parked is not None
    if ends_by == "wake":
        operation.ready = True
        bench.purgatory.wake("k")
        bench.purgatory.run_woken()
    elif ends_by == "tick":
        bench.purgatory.tick(1000)
    else:
        bench.purgatory.forget(parked)
    seen = weakref.ref(operation)
    gc.disable()
    try:
        del operation, parked
        assert seen() is None
    finally:
        gc.enable()


def test_a_completion_that_wakes_is_served_in_the_same_run(bench: Bench) -> None:
    second = bench.park("b", ["l"])
    first = bench.park("a", ["k"], then=lambda: bench.purgatory.wake("l"))
    first.ready = second.ready = True
    bench.purgatory.wake("k")
    bench.purgatory.run_woken()
    assert bench.log == [("a", "completed"), ("b", "completed")]
    assert bench.orders == 1


def test_a_chain_of_parking_completions_does_not_recurse(bench: Bench) -> None:
    """Each completion parks the next, which could complete at once: far deeper than Python's stack."""
    count = 5_000

    def go_on(number: int) -> None:
        if number < count:
            operation = Operation(number, bench.log, lambda: go_on(number + 1))
            operation.ready = True
            bench.purgatory.park(operation, ["k"], 100)

    go_on(0)
    while bench.purgatory.run_woken(1000):
        pass
    assert len(bench.log) == count
    assert len(bench.purgatory) == 0


def test_operations_that_wake_each_other_for_ever_share_the_turn(bench: Bench) -> None:
    class Restless(Operation):
        def try_complete(self) -> bool:
            bench.purgatory.wake("k")
            return super().try_complete()

    operation = Restless("a", bench.log)
    bench.purgatory.park(operation, ["k"], 100)
    bench.purgatory.wake("k")
    assert bench.purgatory.run_woken(10)
    assert operation.tries == 11
    assert bench.orders == 2


def test_a_run_within_a_run_does_nothing(bench: Bench) -> None:
    second = bench.park("b", ["k"])
    first = bench.park("a", ["l"], then=bench.purgatory.run_woken)
    first.ready = second.ready = True
    bench.purgatory.wake("l")
    bench.purgatory.wake("k")
    bench.purgatory.run_woken()
    assert bench.log == [("a", "completed"), ("b", "completed")]


def test_one_that_raises_does_not_hold_up_the_others(bench: Bench) -> None:
    def fail() -> None:
        raise RuntimeError("defect")

    bad = bench.park("bad", ["k"], then=fail)
    good = bench.park("good", ["k"])
    bad.ready = good.ready = True
    bench.purgatory.wake("k")
    bench.purgatory.run_woken()
    assert bench.log == [("bad", "completed"), ("good", "completed")]
    assert [str(error) for _, error in bench.defects] == ["defect"]
    assert len(bench.purgatory) == 0


def test_draining_expires_everyone_in_park_order_and_who_comes_later(bench: Bench) -> None:
    bench.park("a", ["k"], 300)
    bench.park("b", ["l"], 100)
    assert bench.purgatory.drain() == 2
    bench.park("c", ["k"])
    assert bench.log == [("a", "expired"), ("b", "expired"), ("c", "expired")]
    assert (len(bench.purgatory), bench.purgatory.watched_keys) == (0, 0)
    assert bench.purgatory.next_deadline_ms() is None
    assert not bench.purgatory.run_woken()


def test_what_an_expiry_parks_is_tried_in_the_next_run(bench: Bench) -> None:
    second = Operation("b", bench.log)
    second.ready = True

    class Last(Operation):
        def expire(self) -> None:
            super().expire()
            bench.purgatory.park(second, ["k"], 500)

    bench.purgatory.park(Last("a", bench.log), ["k"], 100)
    bench.purgatory.tick(100)
    assert (second.tries, bench.orders) == (0, 1)
    bench.purgatory.run_woken()
    assert bench.log == [("a", "expired"), ("b", "completed")]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("park"), st.lists(st.sampled_from("klm"), max_size=3), st.integers(0, 60)),
        st.tuples(st.just("ready"), st.integers(0, 20)),
        st.tuples(st.just("wake"), st.sampled_from("klm")),
        st.tuples(st.just("run")),
        st.tuples(st.just("tick"), st.integers(0, 30)),
        st.tuples(st.just("forget"), st.integers(0, 20)),
    ),
    max_size=50,
)


@settings(max_examples=examples(300), deadline=None)
@given(steps)
def test_it_agrees_with_a_list(steps: list[tuple[object, ...]]) -> None:
    bench, now_ms = Bench(), 0
    waiting: dict[int, tuple[list[str], int]] = {}
    operations: list[tuple[Operation, Parked | None]] = []
    woken: list[str] = []
    expected: list[tuple[object, str]] = []
    for step in steps:
        match step:
            case ("park", list(keys), int(delay_ms)):
                operation = Operation(len(operations), bench.log)
                waiting[len(operations)] = (keys, now_ms + delay_ms)
                operations.append((operation, bench.purgatory.park(operation, keys, now_ms + delay_ms)))
            case ("ready", int(at)) if at < len(operations):
                operations[at][0].ready = True
            case ("wake", str(key)):
                bench.purgatory.wake(key)
                if key not in woken and any(key in keys for keys, _ in waiting.values()):
                    woken.append(key)
            case ("run",):
                bench.purgatory.run_woken()
                for key in woken:
                    for at, (keys, _) in list(waiting.items()):
                        if key in keys and operations[at][0].ready:
                            expected.append((at, "completed"))
                            del waiting[at]
                woken = []
            case ("tick", int(ms)):
                now_ms += ms
                bench.purgatory.tick(now_ms)
                late = sorted((deadline, at) for at, (_, deadline) in waiting.items() if deadline <= now_ms)
                for _, at in late:
                    expected.append((at, "expired"))
                    del waiting[at]
            case ("forget", int(at)) if at in waiting:
                parked = operations[at][1]
                assert parked is not None
                bench.purgatory.forget(parked)
                del waiting[at]
            case _:
                pass
        assert bench.log == expected
        assert len(bench.purgatory) == len(waiting)
        assert bench.purgatory.expired_total == [how for _, how in expected].count("expired")
        assert bench.purgatory.watched_keys == len({key for keys, _ in waiting.values() for key in keys})
    assert bench.defects == []
