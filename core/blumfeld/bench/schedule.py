"""In which order variants are run, how often and how long, and what that takes. Pure.

Rounds go forward and back (A B C, C B A, A B C, …): over two rounds every variant stands, on average, at the
same place in time, so that a machine that slowly warms up or cools down favours none of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from blumfeld.bench.watching import Turn
from blumfeld.bench.workload import Step, Workload

ROUNDS = 8
QUICK_S = 120.0
QUICK_ROUNDS_MIN = 6
QUICK_ROUNDS_MAX = 12
QUICK_MEASURE_MIN_S = 1.0
QUICK_WARM_UP_MAX_S = 1.0
TURN_S = 1.6
"""What a turn takes beside its steps: start, topic, stop. A guess until a preflight has measured it."""
STEP_S = 0.8
"""What a step takes beside its load: the driver's processes start and drain."""
CEILING_S = 3.5
CALLS_S = 3.0
"""Counting system calls, for each variant and step, beside a start."""


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """What a run costs beside load, in seconds."""

    turn_s: dict[str, float] = {}
    """By variant: start, topic, warm-up of its own, preload, stop. :data:`TURN_S` where it isn't known."""
    with_calls: bool = True


def turns_of(labels: Sequence[str], rounds: int) -> tuple[Turn, ...]:
    """All turns, in order."""
    order = [
        (number, label)
        for number in range(rounds)
        for label in (labels if number % 2 == 0 else reversed(labels))
    ]
    return tuple(Turn(round=number, position=at, variant=label) for at, (number, label) in enumerate(order))


def estimate_s(workload: Workload, labels: Sequence[str], rounds: int, costs: Costs) -> float:
    """From the first round to the end, ceilings and system calls included."""
    steps = len(workload.steps)
    turns = sum(costs.turn_s.get(label, TURN_S) + _steps_s(workload.steps) for label in labels) * rounds
    calls = sum(costs.turn_s.get(label, TURN_S) + CALLS_S * steps for label in labels)
    return turns + (calls if costs.with_calls else 0.0) + CEILING_S * steps


def quick(
    workload: Workload, labels: Sequence[str], costs: Costs, seconds: float = QUICK_S
) -> tuple[Workload, int]:
    """The workload with shorter steps, and rounds, so that all of it fits into ``seconds`` if it can at all.

    Rounds come first, since they are what a verdict rests on: as many as fit with the shortest steps, between
    :data:`QUICK_ROUNDS_MIN` and :data:`QUICK_ROUNDS_MAX`; then steps as long as the time that is left allows.
        Variants that are slow to start may make even the fewest rounds take longer: the estimate says so.
    """
    shortest = _with_measure(workload, QUICK_MEASURE_MIN_S)
    rounds = QUICK_ROUNDS_MAX
    while rounds > QUICK_ROUNDS_MIN and estimate_s(shortest, labels, rounds, costs) > seconds:
        rounds -= 1
    left_s = seconds - estimate_s(shortest, labels, rounds, costs)
    loads = rounds * len(labels) * len(workload.steps)
    longer_s = max(0.0, left_s / loads) if loads else 0.0
    return _with_measure(workload, QUICK_MEASURE_MIN_S + longer_s), rounds


def _with_measure(workload: Workload, measure_s: float) -> Workload:
    steps = tuple(
        msgspec.structs.replace(
            step,
            warm_up_s=min(step.warm_up_s, QUICK_WARM_UP_MAX_S),
            measure_s=min(step.measure_s, round(measure_s, 1)),
        )
        for step in workload.steps
    )
    return msgspec.structs.replace(workload, steps=steps)


def _steps_s(steps: Sequence[Step]) -> float:
    return sum(step.warm_up_s + step.measure_s + STEP_S for step in steps)
