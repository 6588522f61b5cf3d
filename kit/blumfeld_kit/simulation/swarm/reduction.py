"""Reduces a failing seed: fewer classes of faults, nodes and clients, and less time. It only asks for runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from blumfeld_kit.simulation.swarm.faults import FaultClass
from blumfeld_kit.simulation.swarm.run import SwarmFailure
from blumfeld_kit.simulation.swarm.shape import Shape

RUNS_MAX = 60
"""Runs that one reduction may take."""
SECONDS_MIN = 1.0

Tell = Callable[[int, SwarmFailure], None]
"""Is told before each run: its number from 1, and the smallest failure so far."""
Try = Callable[[Shape], SwarmFailure | None]
"""Runs a shape. Returns its failure, or ``None``."""


def smaller(failure: SwarmFailure) -> Iterator[Shape]:
    """Yield shapes that are a step smaller than the one that failed, the largest steps first."""
    shape = failure.shape
    if shape.faults is None:
        yield msgspec.structs.replace(
            shape, faults=tuple(FaultClass(name) for name, count in failure.faults.items() if count)
        )
        return
    faults = shape.faults
    if len(faults) > 2:
        half = len(faults) // 2
        yield msgspec.structs.replace(shape, faults=faults[:half])
        yield msgspec.structs.replace(shape, faults=faults[half:])
    for fault in faults:
        yield msgspec.structs.replace(shape, faults=tuple(other for other in faults if other is not fault))
    if shape.clients > 1:
        yield msgspec.structs.replace(shape, clients=max(1, shape.clients // 2))
        yield msgspec.structs.replace(shape, clients=shape.clients - 1)
    if shape.nodes > 1:
        yield msgspec.structs.replace(shape, nodes=shape.nodes - 1)
    for part in (0.5, 0.75, 0.9):
        if shape.seconds * part >= SECONDS_MIN:
            yield msgspec.structs.replace(shape, seconds=round(shape.seconds * part, 1))


def shrunk(
    failure: SwarmFailure, run: Try, runs_max: int = RUNS_MAX, tell: Tell | None = None
) -> tuple[SwarmFailure, int]:
    """Return the smallest failure of the same kind that was found, and the number of runs it took.

    Greedy: each smaller shape that fails in the same way becomes the start of the next round.
    """
    runs = 0
    while True:
        for shape in smaller(failure):
            if runs >= runs_max:
                return failure, runs
            runs += 1
            if tell is not None:
                tell(runs, failure)
            smaller_failure = run(shape)
            if smaller_failure is not None and smaller_failure.kind == failure.kind:
                failure = smaller_failure
                break
        else:
            return failure, runs
