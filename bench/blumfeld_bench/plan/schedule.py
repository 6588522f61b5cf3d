"""The order, number and length of rounds, and an estimate of the time they take. Pure.

Rounds go forward and back (A B C, C B A, A B C, …). Over two rounds every variant has the same mean position in time,
so a machine that slowly warms up or cools down favours none of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from blumfeld_bench.workload import Step, Workload

ROUNDS = 8
QUICK_S = 120.0
QUICK_ROUNDS_MAX = 12
QUICK_ROUNDS = 8
"""Rounds of a quick run. If a single step with the shortest times does not fit that often, fewer: down to
:data:`QUICK_ROUNDS_MIN`.
"""
QUICK_ROUNDS_MIN = 6
QUICK_MEASURE_MIN_S = 1.5
QUICK_WARM_UP_MAX_S = 1.0
QUICK_PRELOAD_MAX_BYTES = 250_000_000
TURN_S = 1.6
"""Time that a turn takes beside its steps (start, topic, stop): a guess until the preflight has measured it."""
STEP_S = 0.8
"""Time that a step takes beside its load: the driver's processes start and drain."""
PRELOAD_BYTES_PER_S = 100e6
CEILING_S = 3.0
CALLS_S = 3.5
"""Time to count system calls for one variant and step, beside the server's start."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One variant in one round."""

    round: int
    """Number of the round, from 0, as ``Measured.round``."""
    position: int
    """Place in the whole run, from 0."""
    variant: str


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Time that a run takes beside load, in seconds."""

    turn_s: dict[str, float] = {}
    """Seconds by variant for start, topic, its own warm-up and stop, without the preload; :data:`TURN_S` where a
    variant is missing.
    """
    with_calls: bool = True


def turns_of(labels: Sequence[str], rounds: int) -> tuple[Turn, ...]:
    """Return all turns of a run, in order."""
    order = [
        (number, label)
        for number in range(rounds)
        for label in (labels if number % 2 == 0 else reversed(labels))
    ]
    return tuple(Turn(round=number, position=at, variant=label) for at, (number, label) in enumerate(order))


def estimate_s(workload: Workload, labels: Sequence[str], rounds: int, costs: Costs) -> float:
    """Return the time from the first round to the end, ceilings and system calls included."""
    turn_s = sum(costs.turn_s.get(label, TURN_S) for label in labels)
    turn_s += len(labels) * workload.preload_bytes / PRELOAD_BYTES_PER_S
    rounds_s = (turn_s + len(labels) * _steps_s(workload.steps)) * rounds
    calls_s = turn_s + CALLS_S * len(labels) * len(workload.steps)
    ceilings_s = CEILING_S * len({shape(step) for step in workload.steps})
    return rounds_s + ceilings_s + (calls_s if costs.with_calls else 0.0)


def shape(step: Step) -> Step:
    """Return the step reduced to what affects a driver's ceiling. Steps of one shape share one ceiling."""
    produce = step.produce
    if produce is not None:
        produce = msgspec.structs.replace(produce, rate_per_s=0.0)
    return msgspec.structs.replace(
        step, name="", produce=produce, idle_connections=0, page_cache="warm", warm_up_s=0.0, measure_s=1.0
    )


def quick(
    workload: Workload, labels: Sequence[str], costs: Costs, seconds: float = QUICK_S
) -> tuple[Workload, int]:
    """Shorten a workload to fit into ``seconds``; return it with its number of rounds.

    Rounds come first, since a verdict rests on them: as many steps are kept as fit :data:`QUICK_ROUNDS` times with
    the shortest times, spread over the workload. Spare time goes to more rounds, up to :data:`QUICK_ROUNDS_MAX`, then
    to longer steps. With variants that start slowly even a single step may take longer than ``seconds``; the estimate
    says so.
    """
    shortest = _cut(workload, QUICK_MEASURE_MIN_S)

    def fits(kept: Workload, rounds: int) -> bool:
        return estimate_s(kept, labels, rounds, costs) <= seconds

    several = (_spread(shortest, number) for number in range(len(workload.steps), 1, -1))
    kept = next((some for some in several if fits(some, QUICK_ROUNDS)), _spread(shortest, 1))
    candidates = range(QUICK_ROUNDS_MAX, QUICK_ROUNDS_MIN, -2)  # an even number: as often forward as back
    rounds = next((number for number in candidates if fits(kept, number)), QUICK_ROUNDS_MIN)
    left_s = max(0.0, seconds - estimate_s(kept, labels, rounds, costs))
    longer_s = left_s / (rounds * max(1, len(labels)) * len(kept.steps))
    names = {step.name for step in kept.steps}
    chosen = msgspec.structs.replace(
        workload, steps=tuple(step for step in workload.steps if step.name in names)
    )
    return _cut(chosen, QUICK_MEASURE_MIN_S + longer_s), rounds


def _spread(workload: Workload, number: int) -> Workload:
    """Return the workload with ``number`` of its steps, from the first on at even distances. A single step is one
    of the lighter ones.
    """
    steps = workload.steps
    if number == 1:
        return msgspec.structs.replace(workload, steps=(steps[(len(steps) - 1) // 4],))
    kept = tuple(steps[nth * len(steps) // number] for nth in range(number))
    return msgspec.structs.replace(workload, steps=kept)


def _cut(workload: Workload, measure_s: float) -> Workload:
    steps = tuple(
        msgspec.structs.replace(
            step,
            warm_up_s=min(step.warm_up_s, QUICK_WARM_UP_MAX_S),
            measure_s=min(step.measure_s, math.floor(measure_s * 10) / 10),
        )
        for step in workload.steps
    )
    preload_bytes = min(workload.preload_bytes, QUICK_PRELOAD_MAX_BYTES)
    return msgspec.structs.replace(workload, steps=steps, preload_bytes=preload_bytes)


def _steps_s(steps: Sequence[Step]) -> float:
    return sum(step.warm_up_s + step.measure_s + STEP_S for step in steps)
