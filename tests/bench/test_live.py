from __future__ import annotations

import io

import pytest
from rich.console import Console

from blumfeld_bench.drivers.contract import Progress
from blumfeld_bench.live import Lines, View, duration, spark, watching
from blumfeld_bench.plan.schedule import Turn
from blumfeld_bench.result import Point, Result
from blumfeld_bench.runs.watcher import SessionPlan, Watcher
from blumfeld_bench.statistics.cells import PRODUCE_P99, RATE
from tests.bench.synthetic import OPEN, comparison, synthetic_result


def plan_of(result: Result, estimate_s: float = 100.0) -> SessionPlan:
    order = dict.fromkeys((round_result.round, round_result.variant) for round_result in result.measured)
    return SessionPlan(
        workload=result.workload,
        variants=result.variants,
        turns=tuple(
            Turn(round=number, position=position, variant=variant)
            for position, (number, variant) in enumerate(order)
        ),
        rounds=result.rounds,
        quick=True,
        estimate_s=estimate_s,
    )


def point(at_s: float, rate: float) -> Point:
    return Point(at_s=at_s, records_per_s=rate, bytes_per_s=0, p50_us=300, p99_us=900, max_us=2000)


def play(watcher: Watcher, result: Result) -> None:
    """Tell a watcher of this result as a session would, up to the middle of the last step."""
    plan = plan_of(result)
    watcher.started(plan)
    watcher.doing("starting each once")
    watcher.planned(plan)
    for turn in plan.turns:
        watcher.turn_begins(turn)
        for round_result in result.measured:
            if (round_result.round, round_result.variant) == (turn.round, turn.variant):
                watcher.step_begins(turn, round_result.step, 7.0)
                for seen in round_result.series:
                    watcher.progress(Progress(elapsed_s=seen.at_s + 2, measuring=seen.at_s > 0, point=seen))
                watcher.measured(round_result)
    watcher.verdict_so_far([comparison(0.71, 0.66, 0.78, different=True)])


def drawn(view: View) -> str:
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(view.render())
    return console.export_text()


def test_a_tally_keeps_medians_of_what_was_measured() -> None:
    result = synthetic_result(rounds=3, steps=(OPEN,))
    tally = Watcher()
    play(tally, result)
    assert len(tally.rounds[OPEN.name, "uring"]) == 3
    assert tally.median(OPEN.name, "uring", RATE) == 1000
    assert tally.median(OPEN.name, "nobody", PRODUCE_P99) is None


def test_time_left_counts_down_from_the_last_estimate_and_never_below_nothing() -> None:
    now = 50.0
    tally = Watcher(lambda: now)
    plan = plan_of(synthetic_result(rounds=1), 100)
    tally.started(plan)
    now = 60.0
    assert tally.left_s == 90
    tally.planned(plan)
    now = 61.0
    assert (tally.left_s, tally.spent_s) == (99, 11)
    now = 500.0
    assert tally.left_s == 0


def test_the_view_says_where_it_is_and_what_came_out_so_far() -> None:
    view = View()
    play(view, synthetic_result(rounds=2, steps=(OPEN,), effect=0.5))
    text = drawn(view)
    for part in ("synthetic (quick)", "round 2 of 2", "epoll", "measuring", "records/s", "ack p99", "1,000"):
        assert part in text
    assert "█" in text
    assert "uring's ack p99 is 0.71× epoll's" in text
    assert "1 min 40 s left" in text


def test_the_view_can_be_drawn_at_any_moment() -> None:
    view = View()
    assert "starting" in drawn(view)
    result = synthetic_result(rounds=1, steps=(OPEN,))
    plan = plan_of(result)
    view.started(plan)
    assert "starting" in drawn(view)
    view.doing("counting system calls")
    assert "counting system calls" in drawn(view)
    view.skipped("uring", "this kernel forbids it")
    view.turn_begins(plan.turns[0])
    assert "starting epoll" in drawn(view)
    view.step_begins(plan.turns[0], OPEN.name, 7)
    assert "warm-up" in drawn(view)
    view.step_failed(plan.turns[0], "", "the server went away")
    text = drawn(view)
    assert "this kernel forbids it" in text
    assert "the rest of the round, epoll, round 1: the server went away" in text
    view.ended(interrupted=True)
    assert "interrupted" in drawn(view)


def test_a_step_begins_with_an_empty_series() -> None:
    view = View()
    plan = plan_of(synthetic_result(rounds=1, steps=(OPEN,)))
    view.started(plan)
    view.step_begins(plan.turns[0], OPEN.name, 7)
    view.progress(Progress(elapsed_s=1, measuring=False, point=point(-1, 777)))
    assert "777 records/s" in drawn(view)
    view.step_begins(plan.turns[1], OPEN.name, 7)
    assert "777" not in drawn(view)


def test_where_there_is_no_terminal_each_step_is_a_line() -> None:
    out = io.StringIO()
    with watching(Console(file=out, width=80)) as watcher:
        assert isinstance(watcher, Lines)
        play(watcher, synthetic_result(rounds=2, steps=(OPEN,)))
        watcher.skipped("uring", "why not")
    lines = out.getvalue().splitlines()
    assert "4 turns, 2 rounds, about 1 min 40 s" in lines
    steps = [line for line in lines if line.startswith("round ")]
    assert len(steps) == 4
    assert steps[0].startswith("round 1, epoll, 1,000/s: 1,000 records/s, ack p50 ")
    assert "uring is left out: why not" in lines
    assert "\x1b" not in out.getvalue()


def test_on_a_terminal_the_view_leaves_nothing_behind() -> None:
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=True, legacy_windows=False)
    with watching(console) as watcher:
        assert isinstance(watcher, View)
        play(watcher, synthetic_result(rounds=1, steps=(OPEN,)))
    assert out.getvalue().rstrip().endswith("\x1b[2K")


@pytest.mark.parametrize(
    ("values", "bars"), [([], ""), ([0, 0], "▁▁"), ([0, 50, 100], "▁▅█"), ([-1, 8], "▁█")]
)
def test_a_sparkline_goes_from_nothing_to_the_highest(values: list[float], bars: str) -> None:
    assert spark(values) == bars


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (3780, "1 h 3 min")]
)
def test_durations_are_said_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words
