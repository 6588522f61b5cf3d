"""Runs one seed after the other, in one process or in several, until all are done or the time is over."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import msgspec

from blumfeld_kit.simulation.swarm.run import SwarmFailure, SwarmReport
from blumfeld_kit.simulation.swarm.shape import Shape
from blumfeld_kit.simulation.workloads import MakeWorkload, run_shape, workload_of


class Result(NamedTuple):
    """The result of one seed."""

    seed: int
    outcome: SwarmReport | SwarmFailure
    seconds: float
    """Real time that it took."""


def sweep(
    shape: Shape,
    seeds: Sequence[int],
    make: MakeWorkload,
    *,
    jobs: int = 1,
    minutes: float | None = None,
) -> Iterator[Result]:
    """Yield the result of each seed, in their order.

    :param jobs: processes at a time
    :param minutes: real time after which no other seed begins; the first one always does. ``None``: no limit
    """
    ends_s = time.monotonic() + minutes * 60.0 if minutes is not None else float("inf")
    shapes = [msgspec.structs.replace(shape, seed=seed) for seed in seeds]
    yield from _here(shapes, make, ends_s) if jobs == 1 else _in_processes(shapes, make, jobs, ends_s)


def _here(shapes: Sequence[Shape], make: MakeWorkload, ends_s: float) -> Iterator[Result]:
    for shape in shapes:
        began_s = time.monotonic()
        yield Result(shape.seed, run_shape(shape, make), time.monotonic() - began_s)
        if time.monotonic() >= ends_s:
            return


def _in_processes(shapes: Sequence[Shape], make: MakeWorkload, jobs: int, ends_s: float) -> Iterator[Result]:
    # Spawned, not forked: a fork would share what this process has imported and drawn so far.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        under_way: deque[tuple[Shape, Future[tuple[SwarmReport | None, float]]]] = deque()
        left = deque(shapes)
        try:
            while left or under_way:
                began_none = len(left) == len(shapes)
                while left and len(under_way) < jobs and (began_none or time.monotonic() < ends_s):
                    shape = left.popleft()
                    under_way.append((shape, pool.submit(_report, shape)))
                if not under_way:
                    return
                shape, running = under_way.popleft()
                report, seconds = running.result()
                # A failure holds tasks and tracebacks, which stay in their process. The same seed fails here, too.
                yield Result(shape.seed, report or run_shape(shape, make), seconds)
        finally:
            pool.shutdown(cancel_futures=True)


def _report(shape: Shape) -> tuple[SwarmReport | None, float]:
    """Run one shape in a process of its own. Return its report, or ``None`` if it failed, and the time it took."""
    began_s = time.monotonic()
    outcome = run_shape(shape, workload_of(shape.workload))
    return outcome if isinstance(outcome, SwarmReport) else None, time.monotonic() - began_s
