"""What the statistics say of a result, gathered for the table and for the page."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from blumfeld.bench.report.cells import StepCells
from blumfeld.bench.result import Result


@attrs.frozen
class Interval:
    """A variant against the first: 0.7 is 0.7 times as much."""

    ratio: float
    low: float
    high: float


@attrs.frozen
class Findings:
    """All that is concluded."""

    verdicts: tuple[tuple[str, str], ...] = ()
    """(Step, sentence), in the order of steps."""
    intervals: dict[tuple[str, str, str], Interval] = attrs.field(factory=dict)
    """By step, variant and the measure's key."""
    sustained: tuple[str, ...] = ()
    """A sentence for each variant, where the workload asks for it."""


def findings_of(result: Result, steps: Sequence[StepCells]) -> Findings:
    """Ask the statistics."""
    return Findings()
