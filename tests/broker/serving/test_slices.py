"""Large requests in slices: others have their turns, all get their share, nobody's work goes on for nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from blumfeld.broker.serving.slices import RUNNING_MAX, SHARES_MAX, SLICE_MS, STEPS_MAX, Slices
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.runtime import Runtime

STEP_MS = 0.25


class Clock:
    """The part of a runtime that slices use. Time passes by working."""

    def __init__(self) -> None:
        self.worked_ms = 0.0
        self._soon: list[Callable[[], None]] = []

    def monotonic_ms(self) -> float:
        return self.worked_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> None:
        assert delay_ms == 0
        self._soon.append(callback)

    def turn(self) -> None:
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()


class Bench:
    """Slices, and what came of the work."""

    def __init__(self) -> None:
        self.runtime = Clock()
        self.slices = Slices(cast("Runtime", self.runtime))
        self.trace: list[str] = []
        self.results: dict[str, tuple[Any, BaseException | None]] = {}
        self.gone: set[str] = set()

    def start(self, name: str, steps: int, waits_for: Completion[Any] | None = None) -> None:
        self.slices.run(
            self.work(name, steps, waits_for),
            lambda result, error: self.results.__setitem__(name, (result, error)),
            lambda: name not in self.gone,
        )

    def work(self, name: str, steps: int, waits_for: Completion[Any] | None) -> Steps[str]:
        if waits_for is not None:
            yield waits_for
        for _ in range(steps):
            self.runtime.worked_ms += STEP_MS
            self.trace.append(name)
            yield None
        return name

    def turn(self) -> float:
        """One turn of the loop; how long it took."""
        before = self.runtime.worked_ms
        self.runtime.turn()
        return self.runtime.worked_ms - before


def test_small_work_is_done_at_once() -> None:
    bench = Bench()
    bench.start("a", 3)
    assert bench.results["a"] == ("a", None)
    assert not len(bench.slices)


def test_a_turn_is_a_slice_however_many_wait() -> None:
    bench = Bench()
    for name in "abcdefgh":
        bench.start(name, 200)
    turns = 0
    while len(bench.results) < 8:
        assert bench.turn() <= SLICE_MS + STEP_MS
        turns += 1
        assert turns < 1_000
    assert turns >= 8 * 200 * STEP_MS / (SLICE_MS + STEP_MS) - 2


def test_all_in_work_get_their_share_of_a_slice() -> None:
    bench = Bench()
    for name in "abcd":
        bench.start(name, 100)
    bench.trace.clear()
    bench.turn()
    assert set(bench.trace) == set("abcd")


def test_only_so_many_are_in_work() -> None:
    bench = Bench()
    names = [f"w{n}" for n in range(RUNNING_MAX + 3)]
    for name in names:
        bench.start(name, 100)
    for _ in range(5):
        bench.turn()
    assert set(bench.trace) == set(names[:RUNNING_MAX])
    while len(bench.results) < len(names):
        bench.turn()


def test_one_that_waits_leaves_its_place_and_goes_on_later() -> None:
    bench = Bench()
    waited: Completion[Any] = Completion()
    for n in range(RUNNING_MAX):
        bench.start(f"waits-{n}", 1, waited)
    bench.start("other", 50)
    while "other" not in bench.results:
        bench.turn()
    waited.complete(None)
    assert len(bench.results) == 1, "not in the middle of another's turn"
    bench.turn()
    assert len(bench.results) == 1 + RUNNING_MAX


def test_work_for_a_connection_that_has_gone_ends() -> None:
    bench = Bench()
    bench.start("a", 1_000)
    bench.gone.add("a")
    done = len(bench.trace)
    bench.turn()
    assert bench.results["a"] == (None, None)
    assert len(bench.trace) == done


def test_an_error_is_told() -> None:
    bench = Bench()

    def fails() -> Steps[None]:
        yield None
        raise ValueError("no")

    told: list[Any] = []
    bench.slices.run(fails(), lambda result, error: told.append((result, type(error))))
    assert told == [(None, ValueError)]


def test_a_clock_that_stands_still_ends_a_slice_too() -> None:
    """As in the simulation, where time passes between turns only."""
    runtime = Clock()
    slices = Slices(cast("Runtime", runtime))
    count = 0

    def endless() -> Steps[None]:
        nonlocal count
        while True:
            count += 1
            yield None

    slices.run(endless(), lambda result, error: None)
    assert count == STEPS_MAX
    runtime.turn()
    assert count <= STEPS_MAX * (SHARES_MAX + 1)
