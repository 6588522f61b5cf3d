"""What a session tells whoever watches it, while it runs: the live view implements this, and so does a plain log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from blumfeld.bench.drivers.contract import Progress
from blumfeld.bench.plan.workload import Workload
from blumfeld.bench.result import Measured, Variant


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One variant in one round."""

    round: int
    """From 0, as ``Measured.round``."""
    position: int
    """From 0, over the whole run."""
    variant: str


class SessionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is about to do."""

    workload: Workload
    """With the lengths of steps that will be run: ``--quick`` shortens them."""
    variants: tuple[Variant, ...]
    turns: tuple[Turn, ...]
    """In the order in which they are run: ABBA…"""
    rounds: int
    quick: bool
    left_out: tuple[str, ...] = ()
    """Steps of the workload that a quick run has no time for."""
    estimate_s: float
    """How long all of it takes, preflight and system calls included; a guess until the preflight is over."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence on one figure of one step."""

    step: str
    variant: str
    measure: str
    """``report.cells.Measure.key``."""
    sentence: str
    different: bool


class Watcher(Protocol):
    """Told in this order: started, (doing | skipped)*, planned, then for each turn: turn_begins, (step_begins,
    progress*, measured | step_failed)*; verdict_so_far after each round from the third; doing for what comes
    after; ended.

    Called from the session's own thread, never while a request is timed there: drivers run in processes of their own.
    """

    def started(self, plan: SessionPlan) -> None:
        """Nothing runs yet; the estimate is a guess."""
        ...

    def doing(self, what: str) -> None:
        """Something that is no measured step begins, in words: a preflight, a ceiling, counting system calls."""
        ...

    def skipped(self, variant: str, why: str) -> None:
        """This one can't run the workload, and is left out from here on."""
        ...

    def planned(self, plan: SessionPlan) -> None:
        """What is left to do, now that all have been started once."""
        ...

    def turn_begins(self, turn: Turn) -> None:
        """A server is started with fresh data."""
        ...

    def step_begins(self, turn: Turn, step: str, lasts_s: float) -> None:
        """Its load begins; warm-up and measured part together last so long."""
        ...

    def progress(self, progress: Progress) -> None:
        """Of the step that runs."""
        ...

    def measured(self, measured: Measured) -> None:
        """A step is over."""
        ...

    def step_failed(self, turn: Turn, step: str, error: str) -> None:
        """A step, or all that were left of a turn (``step`` is empty), could not be measured; the run goes on."""
        ...

    def verdict_so_far(self, verdicts: Sequence[Verdict]) -> None:
        """What the rounds up to here say. To be shown, not acted upon: who stops when it pleases him fools himself."""
        ...

    def ended(self, interrupted: bool) -> None:
        """No server runs any more."""
        ...
