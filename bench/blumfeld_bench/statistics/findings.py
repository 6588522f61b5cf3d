"""The verdicts and intervals of a result, gathered for the table and the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from blumfeld_bench.result import Result
from blumfeld_bench.statistics.cells import PRODUCE_P99, RATE, REACHED_SHARE, StepCells
from blumfeld_bench.statistics.verdict import Comparison, Verdict, conclude


@attrs.frozen
class Interval:
    """Ratio of a variant to the first one, with its interval. The interval holds 1 unless the figure was found to
    differ.
    """

    ratio: float
    low: float
    high: float


@attrs.frozen
class Findings:
    """All conclusions about a result."""

    verdicts: tuple[Verdict, ...] = ()
    """Verdicts in the order of steps, variants and measures."""
    intervals: dict[tuple[str, str, str], Interval] = attrs.field(factory=dict)
    """Intervals by step, variant and the measure's key."""
    sustained: tuple[str, ...] = ()
    """One sentence for each variant, where the workload asks for the sustained rate."""

    @property
    def differences(self) -> tuple[Verdict, ...]:
        """Verdicts that found a difference."""
        return tuple(one for one in self.verdicts if one.different)

    @property
    def others(self) -> tuple[Verdict, ...]:
        """Verdicts that found none."""
        return tuple(one for one in self.verdicts if not one.different)


def findings_of(result: Result, steps: Sequence[StepCells]) -> Findings:
    """Return the conclusions about a result."""
    conclusion = conclude(result, steps)
    return Findings(
        verdicts=conclusion.verdicts,
        intervals={
            (one.step, one.variant, one.measure.key): Interval(one.ratio, one.low, one.high)
            for one in conclusion.comparisons
            if _is_known(one)
        },
        sustained=tuple(_sustained(result, steps)),
    )


def _is_known(comparison: Comparison) -> bool:
    return comparison.high > comparison.low  # with too few rounds the interval is empty


def _sustained(result: Result, steps: Sequence[StepCells]) -> Iterator[str]:
    """Yield the highest offered rate that was reached with a p99 below the workload's bound."""
    bound_ms = result.workload.sustained_p99_ms
    offered = [cells for cells in steps if cells.step.produce and cells.step.produce.rate_per_s]
    if bound_ms is None or not offered:
        return
    highest = max(_rate(cells) for cells in offered)
    for index, variant in enumerate(result.variants):
        held = [_rate(cells) for cells in offered if _holds(cells, index, bound_ms)]
        if not any(cells.cells[index].rounds for cells in offered):
            continue
        if not held:
            yield f"{variant.label} sustains none of the offered rates with an ack p99 below {bound_ms:g} ms."
            continue
        most = " and more was not offered" if max(held) == highest else ""
        said = f"{max(held):,.0f} records/s with an ack p99 below {bound_ms:g} ms"
        yield f"{variant.label} sustains {said}{',' if most else ''}{most}."


def _rate(cells: StepCells) -> float:
    return cells.step.produce.rate_per_s if cells.step.produce else 0.0


def _holds(cells: StepCells, index: int, bound_ms: float) -> bool:
    rate, p99_us = (cells.cells[index].median(measure) for measure in (RATE, PRODUCE_P99))
    if rate is None or p99_us is None:
        return False
    return rate >= REACHED_SHARE * _rate(cells) and p99_us < bound_ms * 1000
