"""A driver that makes no load, and a watcher that writes down what it hears."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from blumfeld_bench.drivers.contract import DriverError, Marks, Outcome, Progress, Task
from blumfeld_bench.plan.schedule import Turn
from blumfeld_bench.result import Ceiling, DriverUsage, Measured, Point
from blumfeld_bench.runs.watcher import SessionPlan, Watcher
from blumfeld_bench.statistics.verdict import Comparison
from blumfeld_bench.workload import Step
from tests.bench.synthetic import histogram

POINT = Point(at_s=1, records_per_s=1000, bytes_per_s=1e5, p50_us=300, p99_us=900, max_us=1000)


class FakeDriver:
    """Says at once that a step went well.

    :param latency_ns: what it saw, by the number of the call
    :param fail: calls (from 0) that raise what it returns; ``None`` is none
    """

    def __init__(
        self,
        latency_ns: Callable[[int], float] = lambda call: 300_000.0,
        fail: Callable[[int], BaseException | None] = lambda call: None,
    ) -> None:
        self.tasks: list[Task] = []
        self.preloads: list[int] = []
        self.ceilings: list[str] = []
        self.closed = False
        self._latency_ns = latency_ns
        self._fail = fail

    def run(self, task: Task, marks: Marks, progress: Callable[[Progress], None]) -> Outcome:
        call = len(self.tasks)
        self.tasks.append(task)
        error = self._fail(call)
        if error is not None:
            raise error
        marks.measuring_begins()
        progress(Progress(elapsed_s=1.0, measuring=True, point=POINT))
        marks.measuring_ended()
        seen = histogram(np.full(100, self._latency_ns(call)))
        return Outcome(
            seconds=2.0,
            records=2000,
            bytes=200_000,
            received_bytes=200_000,
            requests=2000,
            errors=0,
            produce_ack=seen,
            end_to_end=seen,
            series=(POINT,),
            usage=DriverUsage(user_s=0.1, system_s=0.1, busy=0.1, late_us_p99=1.0),
        )

    def preload(self, task: Task, total_bytes: int, record_bytes: int) -> None:
        self.preloads.append(total_bytes)

    def ceiling(self, step: Step, seed: int) -> Ceiling:
        self.ceilings.append(step.name)
        if step.name == "no ceiling":
            raise DriverError("no ceiling")
        return Ceiling(step=step.name, records_per_s=1e5, bytes_per_s=1e7)

    def close(self) -> None:
        self.closed = True


class Heard(Watcher):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.plans: list[SessionPlan] = []

    def started(self, plan: SessionPlan) -> None:
        self.said.append("started")
        self.plans.append(plan)

    def doing(self, what: str) -> None:
        self.said.append(f"doing: {what}")

    def skipped(self, variant: str, why: str) -> None:
        self.said.append(f"skipped {variant}: {why}")

    def planned(self, plan: SessionPlan) -> None:
        self.said.append("planned")
        self.plans.append(plan)

    def turn_begins(self, turn: Turn) -> None:
        self.said.append(f"turn {turn.round} {turn.variant}")

    def step_begins(self, turn: Turn, step: str, lasts_s: float) -> None:
        self.said.append(f"step {step} {lasts_s:g}")

    def progress(self, progress: Progress) -> None:
        self.said.append("progress")

    def measured(self, measured: Measured) -> None:
        self.said.append("measured")

    def step_failed(self, turn: Turn, step: str, error: str) -> None:
        self.said.append(f"failed {step or 'turn'}: {error}")

    def verdict_so_far(self, verdicts: Sequence[Comparison]) -> None:
        self.said.append("verdict")

    def ended(self, interrupted: bool) -> None:
        self.said.append(f"ended {interrupted}")
