"""The events that a session reports while it runs, and what a display of them knows."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from blumfeld_bench.drivers.contract import Progress
from blumfeld_bench.plan.schedule import Turn
from blumfeld_bench.result import Measured, Point, Variant
from blumfeld_bench.statistics.cells import Measure, Round, open_round
from blumfeld_bench.statistics.verdict import Comparison
from blumfeld_bench.workload import Workload


class SessionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The work that a session is about to do."""

    workload: Workload
    """The workload, with the lengths of steps that will be run: ``--quick`` shortens them."""
    variants: tuple[Variant, ...]
    turns: tuple[Turn, ...]
    """Turns in the order in which they run: ABBA…"""
    rounds: int
    quick: bool
    left_out: tuple[str, ...] = ()
    """Steps of the workload that a quick run has no time for."""
    estimate_s: float
    """Time of the whole run, preflight and system calls included; a guess until the preflight is over."""


POINTS_KEPT = 120


class Watcher:
    """A receiver of a session's events, which remembers the state of the run for display. It draws nothing.

    The order of events: started, (doing | skipped)*, planned, then for each turn: turn_begins, (step_begins, progress*,
    measured | step_failed)*; verdict_so_far after each round from the third; doing for the work after the rounds;
    ended. The session's own thread calls it, never while it times a request: drivers run in processes of their own.

    :param clock: returns monotonic seconds
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.plan: SessionPlan | None = None
        self.what = ""
        """The present work in words, while no step runs."""
        self.turn: Turn | None = None
        self.step = ""
        self.step_lasts_s = 0.0
        self.elapsed_s = 0.0
        """Time since the step's load began."""
        self.measuring = False
        self.points: deque[Point] = deque(maxlen=POINTS_KEPT)
        """Latest points of the step."""
        self.rounds: dict[tuple[str, str], list[Round]] = {}
        """Rounds by step and variant."""
        self.verdicts: Sequence[Comparison] = ()
        self.failures: list[str] = []
        self.skips: dict[str, str] = {}
        self._clock = clock
        self._estimated_at = clock()
        self._began = clock()

    def started(self, plan: SessionPlan) -> None:
        """Nothing runs yet; the estimate is a guess."""
        self._began = self._clock()
        self._take(plan)

    def doing(self, what: str) -> None:
        """Work outside the measured steps begins, in words: a preflight, a ceiling, counting system calls."""
        self.what, self.step = what, ""
        self.points.clear()

    def skipped(self, variant: str, why: str) -> None:
        """This variant can't run the workload, and is left out from here on."""
        self.skips[variant] = why

    def planned(self, plan: SessionPlan) -> None:
        """The remaining work, now that every variant has been started once."""
        self._take(plan)

    def turn_begins(self, turn: Turn) -> None:
        """A server is started with fresh data."""
        self.turn = turn
        self.doing(f"starting {turn.variant}")

    def step_begins(self, turn: Turn, step: str, lasts_s: float) -> None:
        """The step's load begins; warm-up and measured part together last so long."""
        self.turn, self.step, self.what = turn, step, ""
        self.step_lasts_s, self.elapsed_s, self.measuring = lasts_s, 0.0, False
        self.points.clear()

    def progress(self, progress: Progress) -> None:
        """Progress of the running step, about twice a second."""
        self.elapsed_s, self.measuring = progress.elapsed_s, progress.measuring
        self.points.append(progress.point)

    def measured(self, measured: Measured) -> None:
        """A step is over."""
        self.rounds.setdefault((measured.step, measured.variant), []).append(open_round(measured))

    def step_failed(self, turn: Turn, step: str, error: str) -> None:
        """A step, or all remaining steps of a turn (``step`` is empty), could not be measured; the run goes on."""
        where = step or "the rest of the round"
        self.failures.append(f"{where}, {turn.variant}, round {turn.round + 1}: {error}")

    def verdict_so_far(self, verdicts: Sequence[Comparison]) -> None:
        """Verdicts of the rounds so far, for display only. Stopping a run as soon as its verdict pleases biases the
        result.
        """
        self.verdicts = verdicts

    def ended(self, interrupted: bool) -> None:
        """No server runs any more."""
        self.doing("interrupted" if interrupted else "done")

    def median(self, step: str, variant: str, measure: Measure) -> float | None:
        """Return the median over the rounds so far, or None."""
        figures = (measure.of(cell_round) for cell_round in self.rounds.get((step, variant), []))
        values = [value for value in figures if value is not None]
        return statistics.median(values) if values else None

    @property
    def left_s(self) -> float:
        """Return the estimated time left; never below 0."""
        if self.plan is None:
            return 0.0
        return max(0.0, self.plan.estimate_s - (self._clock() - self._estimated_at))

    @property
    def spent_s(self) -> float:
        """Return the time since the run began."""
        return self._clock() - self._began

    def _take(self, plan: SessionPlan) -> None:
        self.plan = plan
        self._estimated_at = self._clock()
