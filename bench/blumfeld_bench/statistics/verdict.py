"""The verdict of a run: every variant against the first, step by step, in sentences with their uncertainty.

All figures of all steps and variants of a run are one family (:func:`blumfeld_bench.statistics.intervals.holm`). The
headline figures of a step share :data:`HEADLINE_SHARE` of the run's error level, the other figures the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

import attrs

from blumfeld_bench.result import Result
from blumfeld_bench.statistics.cells import (
    CPU_PER_MB,
    CPU_PER_REQUEST,
    END_TO_END_P50,
    END_TO_END_P99,
    PRODUCE_P50,
    PRODUCE_P99,
    PRODUCE_P999,
    RATE,
    REACHED_SHARE,
    RECEIVED,
    RSS,
    TRANSACTIONS,
    Cell,
    Measure,
    StepCells,
    cells_of,
)
from blumfeld_bench.statistics.intervals import POWER, ROUNDS_MIN, Paired, holm, paired
from blumfeld_bench.workload import Step

FAMILY = (
    TRANSACTIONS,
    RATE,
    PRODUCE_P50,
    PRODUCE_P99,
    PRODUCE_P999,
    END_TO_END_P50,
    END_TO_END_P99,
    RECEIVED,
    CPU_PER_REQUEST,
    CPU_PER_MB,
    RSS,
)
"""Figures that get an interval."""
HEADLINE_SHARE = 0.8
NEGLIGIBLE = 0.01
"""A smaller difference counts as none, however certain it is: it decides no choice of a broker."""
TELLING = 0.25
"""An interval that reaches further from 1 than this supports no useful sentence."""
FAR = 9.0
"""A larger relative difference is not spelt out as a number."""
FAR_TIMES = 100.0
"""A bound of an interval beyond this factor, up or down, is not spelt out."""


@attrs.frozen(eq=False)
class Pair:
    """One figure of two variants, to be compared."""

    step: str
    variant: str
    baseline: str
    measure: Measure
    headline: bool
    """Whether the figure is one of those that share most of the run's error level."""
    rounds: int
    seen: Paired | None
    """``None`` if there were too few rounds."""


@attrs.frozen(eq=False)
class Comparison(Pair):
    """One figure of one variant against the first variant's; 1 where there were too few rounds."""

    ratio: float = 1.0
    low: float = 1.0
    high: float = 1.0
    """Upper bound of the interval at ``level``. The interval holds 1 unless the figure differs (or differs
    negligibly).
    """
    level: float = 1.0
    detectable: float = 0.0
    """The least true relative difference that would have been found with a power of 0.8."""
    different: bool = False

    @property
    def sentence(self) -> str:
        """The verdict of the rounds on the figure, with its uncertainty."""
        title = self.measure.title
        if self.different:
            exact = self.high - self.low < 0.02 or abs(self.ratio - 1) < 0.05 or self.ratio < 0.2
            digits = 3 if exact else 2
            interval = f"(95 % CI {_bounds(self.low, self.high, digits)})"
            return f"{self.variant}'s {title} is {self.ratio:.{digits}f}× {self.baseline}'s {interval}"
        reach = max(self.high - 1, 1 - self.low, NEGLIGIBLE)
        if self.seen is None:
            said = f"too few rounds to tell: {self.rounds}, and {ROUNDS_MIN} are the least"
        elif reach <= TELLING:
            said = f"no difference larger than {_percent(reach)} at this power ({_power(self.detectable)})"
        else:
            interval = f"95 % CI {_bounds(self.low, self.high)} (only {_power(self.detectable)})"
            said = f"too noisy to tell: {self.ratio:.2f}×, {interval}"
        return f"{title} of {self.variant} and {self.baseline}: {said}"


@attrs.frozen
class Conclusion:
    """All conclusions about a run."""

    comparisons: tuple[Comparison, ...] = ()
    """Comparisons in the order of steps, variants and measures."""
    sustained: tuple[str, ...] = ()
    """One sentence for each variant, where the workload asks for the sustained rate."""

    @property
    def verdicts(self) -> tuple[Comparison, ...]:
        """The comparisons to show: every headline figure, and the others that were found to differ."""
        return tuple(
            comparison for comparison in self.comparisons if comparison.headline or comparison.different
        )

    @property
    def differences(self) -> tuple[Comparison, ...]:
        """Verdicts that found a difference."""
        return tuple(verdict for verdict in self.verdicts if verdict.different)

    @property
    def others(self) -> tuple[Comparison, ...]:
        """Verdicts that found none."""
        return tuple(verdict for verdict in self.verdicts if not verdict.different)

    def of(self, step: str, variant: str, measure: str) -> Comparison | None:
        """Return one comparison, if the figure was compared and had enough rounds."""
        for comparison in self.comparisons:
            if (comparison.step, comparison.variant, comparison.measure.key) == (step, variant, measure):
                return comparison if comparison.rounds >= ROUNDS_MIN else None
        return None


def conclude(result: Result, steps: Sequence[StepCells] | None = None) -> Conclusion:
    """Compare every variant with the first that has rounds.

    :param steps: the result's cells, if the caller has them already
    """
    steps = cells_of(result) if steps is None else steps
    pairs = [pair for cells in steps for pair in _pairs(cells)]
    return Conclusion(judged(pairs), tuple(_sustained(result, steps)))


def judged(pairs: Sequence[Pair]) -> tuple[Comparison, ...]:
    """Test all pairs together; return the comparisons in their order."""
    tried = [pair for pair in pairs if pair.seen is not None]
    weights = _weights(tried)
    p_values = [pair.seen.p_value for pair in tried if pair.seen is not None]
    decided = dict(zip(map(id, tried), holm(p_values, weights), strict=True))
    return tuple(_comparison(pair, decided.get(id(pair))) for pair in pairs)


def headline_of(step: Step) -> frozenset[str]:
    """Return the keys of the measures that a step is run for."""
    if step.produce is None:
        return frozenset({RECEIVED.key, CPU_PER_MB.key})
    if step.produce.transaction is not None:
        return frozenset({TRANSACTIONS.key, PRODUCE_P99.key})
    keys = {CPU_PER_REQUEST.key, PRODUCE_P99.key if step.produce.rate_per_s else RATE.key}
    if step.consume is not None and step.produce.rate_per_s:
        keys.add(END_TO_END_P99.key)
    return frozenset(keys)


def _pairs(cells: StepCells) -> Iterator[Pair]:
    ran = [cell for cell in cells.cells if cell.rounds]
    headline = headline_of(cells.step)
    for cell in ran[1:]:
        for measure in FAMILY:
            first, second = _common(ran[0], cell, measure)
            if first:
                yield Pair(
                    step=cells.step.name,
                    variant=cell.variant.label,
                    baseline=ran[0].variant.label,
                    measure=measure,
                    headline=measure.key in headline,
                    rounds=len(first),
                    seen=paired(first, second),
                )


def _common(first: Cell, second: Cell, measure: Measure) -> tuple[list[float], list[float]]:
    """Return the values of both variants from the rounds in which both can be compared."""
    ours, theirs = _by_round(first, measure), _by_round(second, measure)
    rounds = sorted(ours.keys() & theirs.keys())
    return [ours[number] for number in rounds], [theirs[number] for number in rounds]


def _by_round(cell: Cell, measure: Measure) -> dict[int, float]:
    values = ((cell_round.measured.round, measure.of(cell_round)) for cell_round in cell.rounds)
    return {number: value for number, value in values if value is not None and isfinite(value) and value > 0}


def _weights(pairs: Sequence[Pair]) -> list[float]:
    headline = sum(pair.headline for pair in pairs)
    others = len(pairs) - headline
    return [HEADLINE_SHARE / headline if pair.headline else (1 - HEADLINE_SHARE) / others for pair in pairs]


def _comparison(pair: Pair, decided: tuple[bool, float] | None) -> Comparison:
    known = attrs.asdict(pair, recurse=False)
    if pair.seen is None or decided is None:
        return Comparison(**known)
    is_significant, level = decided
    low, high = pair.seen.interval(level)
    ratio, detectable = pair.seen.ratio, pair.seen.detectable(level) - 1
    different = is_significant and abs(ratio - 1) >= NEGLIGIBLE
    return Comparison(
        **known, ratio=ratio, low=low, high=high, level=level, detectable=detectable, different=different
    )


def _power(detectable: float) -> str:
    return f"a difference of {_percent(detectable)} would be found in {POWER * 100:.0f} of 100 such runs"


def _percent(share: float) -> str:
    if share > FAR:
        return f"more than {FAR * 100:.0f} %"
    return f"{share * 100:.0f} %" if share >= 0.0995 else f"{share * 100:.1f} %"


def _bounds(low: float, high: float, digits: int = 2) -> str:
    below = f"{low:.{digits}f}" if low > 1 / FAR_TIMES else f"less than {1 / FAR_TIMES:.2f}"
    above = f"{high:.{digits}f}" if high < FAR_TIMES else f"more than {FAR_TIMES:.0f}"
    return f"{below}–{above}" if below[0] != "l" and above[0] != "m" else f"{below} to {above}"


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
