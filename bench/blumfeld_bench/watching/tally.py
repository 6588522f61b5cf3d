"""The state of a run for display: the present step, figures so far, time left. Draws nothing."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence

from blumfeld_bench.drivers.contract import Progress
from blumfeld_bench.plan.schedule import Turn
from blumfeld_bench.result import Measured, Point
from blumfeld_bench.running.watcher import SessionPlan
from blumfeld_bench.statistics.cells import Measure, Round, open_round
from blumfeld_bench.statistics.verdict import Verdict

POINTS_KEPT = 120


class Tally:
    """A watcher (see :class:`blumfeld_bench.running.watcher.Watcher`) that remembers the run's state.

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
        self.verdicts: Sequence[Verdict] = ()
        self.failures: list[str] = []
        self.skips: dict[str, str] = {}
        self._clock = clock
        self._estimated_at = clock()
        self._began = clock()

    def started(self, plan: SessionPlan) -> None:
        """See Watcher, for this method and all that follow."""
        self._began = self._clock()
        self._take(plan)

    def doing(self, what: str) -> None:
        """Remember work outside steps."""
        self.what, self.step = what, ""
        self.points.clear()

    def skipped(self, variant: str, why: str) -> None:
        """Remember a variant that will not run."""
        self.skips[variant] = why

    def planned(self, plan: SessionPlan) -> None:
        """Take the better estimate."""
        self._take(plan)

    def turn_begins(self, turn: Turn) -> None:
        """Remember the turn whose server starts."""
        self.turn = turn
        self.doing(f"starting {turn.variant}")

    def step_begins(self, turn: Turn, step: str, lasts_s: float) -> None:
        """Reset the step's state: load begins."""
        self.turn, self.step, self.what = turn, step, ""
        self.step_lasts_s, self.elapsed_s, self.measuring = lasts_s, 0.0, False
        self.points.clear()

    def progress(self, progress: Progress) -> None:
        """Add a point; called about twice a second."""
        self.elapsed_s, self.measuring = progress.elapsed_s, progress.measuring
        self.points.append(progress.point)

    def measured(self, measured: Measured) -> None:
        """Add the figures of a finished step."""
        self.rounds.setdefault((measured.step, measured.variant), []).append(open_round(measured))

    def step_failed(self, turn: Turn, step: str, error: str) -> None:
        """Remember a step that could not be measured."""
        where = step or "the rest of the round"
        self.failures.append(f"{where}, {turn.variant}, round {turn.round + 1}: {error}")

    def verdict_so_far(self, verdicts: Sequence[Verdict]) -> None:
        """Replace the verdicts by the newest ones."""
        self.verdicts = verdicts

    def ended(self, interrupted: bool) -> None:
        """Remember that nothing runs any more."""
        self.doing("interrupted" if interrupted else "done")

    def median(self, step: str, variant: str, measure: Measure) -> float | None:
        """Return the median over the rounds so far, or None."""
        found = (measure.of(one) for one in self.rounds.get((step, variant), []))
        values = [value for value in found if value is not None]
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
