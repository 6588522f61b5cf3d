"""Long work in lanes: others have their turns, all pieces get their share, and what is closed does no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.scheduler import BUDGETS, Lane, Scheduler, Work
from blumfeld.wire.errors import PluginContractError

STEP_MS = 0.25


class Loop:
    """A clock and a loop. Time passes by working."""

    def __init__(self) -> None:
        self.worked_ms = 0.0
        self.errors: list[type[BaseException]] = []
        self._soon: list[Callable[[], None]] = []

    def now_ms(self) -> float:
        return self.worked_ms

    def soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def turn(self) -> None:
        soon, self._soon = self._soon, []
        for callback in soon:
            try:
                callback()
            except BaseException as error:
                self.errors.append(type(error))


class Bench:
    """A scheduler, and what came of the work."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.scheduler = Scheduler(self.loop.now_ms, self.loop.soon)
        self.trace: list[str] = []
        self.results: dict[str, tuple[Any, BaseException | None]] = {}
        self.gone: set[str] = set()

    def start(
        self,
        name: str,
        steps: int,
        waits_for: Completion[Any] | None = None,
        *,
        lane: Lane = Lane.REQUESTS,
        at_once: bool = True,
    ) -> Work:
        return self.scheduler.run(
            lane,
            self.work(name, steps, waits_for),
            lambda result, error: self.results.__setitem__(name, (result, error)),
            wanted=lambda: name not in self.gone,
            at_once=at_once,
        )

    def work(self, name: str, steps: int, waits_for: Completion[Any] | None) -> Steps[str]:
        try:
            if waits_for is not None:
                yield waits_for
            for _ in range(steps):
                self.loop.worked_ms += STEP_MS
                self.trace.append(name)
                yield None
            return name
        finally:
            self.trace.append(f"{name} freed")

    def turn(self) -> float:
        """Run one turn of the loop, and return how long it took."""
        before = self.loop.worked_ms
        self.loop.turn()
        return self.loop.worked_ms - before


def test_small_work_is_done_at_once() -> None:
    bench = Bench()
    bench.start("a", 3)
    assert bench.results["a"] == ("a", None)
    assert not bench.scheduler.waiting(Lane.REQUESTS)


@pytest.mark.parametrize("lane", Lane)
def test_a_turn_takes_a_lane_s_budget_however_many_pieces_wait(lane: Lane) -> None:
    bench = Bench()
    for name in "abcdefgh":
        bench.start(name, 200, lane=lane)
    budget_ms = BUDGETS[lane].turn_ms
    turns = 0
    while len(bench.results) < 8:
        assert bench.turn() <= budget_ms + STEP_MS
        turns += 1
        assert turns < 10_000
    assert turns >= 8 * 200 * STEP_MS / (budget_ms + STEP_MS) - 2
    assert budget_ms <= bench.scheduler.longest_ms(lane) <= budget_ms + STEP_MS


def test_small_pieces_that_come_in_one_turn_have_one_budget() -> None:
    bench = Bench()
    for number in range(100):
        bench.start(f"w{number}", 4)
    turn_ms = BUDGETS[Lane.REQUESTS].turn_ms
    assert bench.loop.worked_ms <= turn_ms + STEP_MS
    assert bench.scheduler.waiting(Lane.REQUESTS) >= 90
    while len(bench.results) < 100:
        assert bench.turn() <= turn_ms + STEP_MS


def test_a_piece_that_a_piece_begins_has_what_is_left_of_the_turn() -> None:
    bench = Bench()

    def begins() -> Steps[None]:
        bench.loop.worked_ms += 3.5
        yield None
        bench.start("inner", 100)

    bench.scheduler.run(Lane.REQUESTS, begins())
    assert bench.loop.worked_ms <= BUDGETS[Lane.REQUESTS].turn_ms + STEP_MS
    bench.turn()
    assert len(bench.trace) > 10


def test_a_lane_does_not_wait_for_another() -> None:
    bench = Bench()
    bench.start("large", 200)
    bench.start("small", 3, lane=Lane.METADATA)
    assert bench.results == {"small": ("small", None)}


def test_all_in_work_get_their_share_of_a_turn() -> None:
    bench = Bench()
    for name in "abcd":
        bench.start(name, 100)
    bench.trace.clear()
    bench.turn()
    assert set(bench.trace) == set("abcd")


def test_only_so_many_are_in_work() -> None:
    bench = Bench()
    running_max = BUDGETS[Lane.REQUESTS].running_max
    names = [f"w{n}" for n in range(running_max + 3)]
    for name in names:
        bench.start(name, 100)
    for _ in range(5):
        bench.turn()
    assert set(bench.trace) == set(names[:running_max])
    while len(bench.results) < len(names):
        bench.turn()


def test_one_that_waits_leaves_its_place_and_goes_on_later() -> None:
    bench = Bench()
    waited: Completion[Any] = Completion()
    waiting = BUDGETS[Lane.REQUESTS].running_max
    for n in range(waiting):
        bench.start(f"waits-{n}", 1, waited)
    bench.start("other", 50)
    while "other" not in bench.results:
        bench.turn()
    waited.complete(None)
    assert len(bench.results) == 1, "not in the middle of another's turn"
    bench.turn()
    assert len(bench.results) == 1 + waiting


def test_work_for_a_connection_that_has_gone_ends() -> None:
    bench = Bench()
    bench.start("a", 1_000)
    bench.gone.add("a")
    done = bench.trace.count("a")
    bench.turn()
    assert bench.results["a"] == (None, None)
    assert bench.trace.count("a") == done


def test_work_that_may_not_begin_at_once_begins_in_the_next_turn() -> None:
    bench = Bench()
    bench.start("a", 1, at_once=False)
    assert not bench.trace
    bench.turn()
    assert bench.results["a"] == ("a", None)


@pytest.mark.parametrize("waits", [False, True], ids=["runs", "waits"])
def test_closed_work_frees_what_it_holds_and_is_not_heard_of(waits: bool) -> None:
    bench = Bench()
    waited: Completion[Any] = Completion()
    work = bench.start("a", 1_000, waited if waits else None)
    bench.start("b", 20)
    work.cancel()
    work.cancel()
    assert bench.trace[-1] == "a freed"
    bench.trace.clear()
    waited.complete(None)
    while not bench.results:
        bench.turn()
    assert work.done
    assert set(bench.trace) == {"b", "b freed"}


def test_a_step_may_close_its_own_work() -> None:
    bench = Bench()
    trace: list[str] = []

    def closes() -> Steps[None]:
        try:
            yield None
            work.cancel()
            trace.append("closed")
            yield None
            trace.append("went on")
        finally:
            trace.append("freed")

    work = bench.scheduler.run(Lane.UPKEEP, closes(), lambda *_: trace.append("finished"), at_once=False)
    bench.turn()
    bench.turn()
    assert trace == ["closed", "freed"]


def test_work_can_be_finished_at_once() -> None:
    bench = Bench()
    work = bench.start("a", 100)
    work.finish()
    assert work.done
    assert bench.results["a"] == ("a", None)
    bench.turn()
    assert bench.trace.count("a") == 100


def test_work_that_waits_can_not_be_finished_at_once() -> None:
    bench = Bench()
    with pytest.raises(RuntimeError, match="waits"):
        bench.start("a", 1, Completion(), at_once=False).finish()


def fails() -> Steps[None]:
    yield None
    raise ValueError("no")


def test_an_error_is_told() -> None:
    bench = Bench()
    outcomes: list[Any] = []
    bench.scheduler.run(Lane.REQUESTS, fails(), lambda result, error: outcomes.append((result, type(error))))
    bench.turn()
    assert outcomes == [(None, ValueError)]


def test_an_error_that_nobody_takes_reaches_the_loop_and_other_work_goes_on() -> None:
    bench = Bench()

    def defective(result: Any, error: Any) -> None:
        raise KeyError

    for finished in (None, defective):
        bench.scheduler.run(Lane.UPKEEP, fails(), finished, at_once=False)
    bench.start("b", 3, lane=Lane.UPKEEP, at_once=False)
    for _ in range(5):
        bench.turn()
    assert bench.results["b"] == ("b", None)
    assert bench.loop.errors == [ValueError, KeyError]


def yields_no_completion() -> Steps[None]:
    yield None
    yield 1  # type: ignore[misc]


def is_cancelled() -> Steps[None]:
    yield None
    raise asyncio.CancelledError


def fails_when_closed() -> Steps[None]:
    try:
        while True:
            yield None
    finally:
        raise ValueError("no")


@pytest.mark.parametrize("steps", [yields_no_completion, is_cancelled, fails_when_closed])
@pytest.mark.parametrize("has_callback", [False, True], ids=["stray", "told"])
def test_a_lane_outlives_whatever_a_piece_does(steps: Callable[[], Steps[None]], has_callback: bool) -> None:
    bench = Bench()
    errors: list[type[Any]] = []
    wanted = iter([True, True, False])

    def finished(_: object, error: BaseException | None) -> None:
        errors.append(type(error))

    bench.scheduler.run(
        Lane.REQUESTS, steps(), finished if has_callback else None, wanted=lambda: next(wanted), at_once=False
    )
    for name in "bc":
        bench.start(name, 30, at_once=False)
    for _ in range(10):
        bench.turn()
    assert set(bench.results) == {"b", "c"}
    expected = {
        yields_no_completion: PluginContractError,
        is_cancelled: asyncio.CancelledError,
        fails_when_closed: ValueError,
    }[steps]
    assert (errors if has_callback else bench.loop.errors) == [expected]


def test_cancelled_work_that_fails_as_it_is_closed_is_the_loop_s_matter() -> None:
    bench = Bench()
    work = bench.scheduler.run(Lane.REQUESTS, fails_when_closed())
    bench.turn()
    work.cancel()
    bench.turn()
    assert bench.loop.errors == [ValueError]


def test_each_piece_does_one_step_a_turn_while_the_clock_stands_still() -> None:
    """As in the simulation, where time passes between turns only."""
    bench = Bench()
    trace: list[str] = []

    def endless(name: str) -> Steps[None]:
        while True:
            trace.append(name)
            yield None

    for name in "ab":
        bench.scheduler.run(Lane.METADATA, endless(name))
    assert trace == ["a"]
    bench.turn()
    assert trace == ["a", "a", "b"]


def test_a_result_may_be_waited_for() -> None:
    bench = Bench()
    result = bench.scheduler.completed(Lane.UPKEEP, bench.work("a", 10, None))
    failure = bench.scheduler.completed(Lane.UPKEEP, fails())
    assert not result.done
    for _ in range(5):
        bench.turn()
    assert result.result() == "a"
    assert isinstance(failure.error, ValueError)
