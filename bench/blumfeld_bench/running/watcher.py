"""The contract of a watcher: the events that a session reports while it runs. The live view and the plain log implement
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from blumfeld_bench.drivers.contract import Progress
from blumfeld_bench.plan.schedule import Turn
from blumfeld_bench.result import Measured, Variant
from blumfeld_bench.statistics.verdict import Verdict
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


class Watcher(Protocol):
    """Receiver of a session's events.

    Their order: started, (doing | skipped)*, planned, then for each turn: turn_begins, (step_begins, progress*,
    measured | step_failed)*; verdict_so_far after each round from the third; doing for the work after the rounds;
    ended.

    The session's own thread calls it, never while it times a request: drivers run in processes of their own.
    """

    def started(self, plan: SessionPlan) -> None:
        """Nothing runs yet; the estimate is a guess."""
        ...

    def doing(self, what: str) -> None:
        """Work outside the measured steps begins, in words: a preflight, a ceiling, counting system calls."""
        ...

    def skipped(self, variant: str, why: str) -> None:
        """This variant can't run the workload, and is left out from here on."""
        ...

    def planned(self, plan: SessionPlan) -> None:
        """The remaining work, now that every variant has been started once."""
        ...

    def turn_begins(self, turn: Turn) -> None:
        """A server is started with fresh data."""
        ...

    def step_begins(self, turn: Turn, step: str, lasts_s: float) -> None:
        """The step's load begins; warm-up and measured part together last so long."""
        ...

    def progress(self, progress: Progress) -> None:
        """Progress of the running step."""
        ...

    def measured(self, measured: Measured) -> None:
        """A step is over."""
        ...

    def step_failed(self, turn: Turn, step: str, error: str) -> None:
        """A step, or all remaining steps of a turn (``step`` is empty), could not be measured; the run goes on."""
        ...

    def verdict_so_far(self, verdicts: Sequence[Verdict]) -> None:
        """Verdicts of the rounds so far, for display only. Stopping a run as soon as its verdict pleases biases the
        result.
        """
        ...

    def ended(self, interrupted: bool) -> None:
        """No server runs any more."""
        ...
