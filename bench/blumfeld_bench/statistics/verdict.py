"""The verdict of a run: every variant against the first, step by step, in sentences with their uncertainty.

All figures of all steps and variants of a run are one family (:func:`blumfeld_bench.statistics.intervals.holm`). The
headline figures of a step share :data:`HEADLINE_SHARE` of the run's error level, the other figures the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

import attrs
import msgspec

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


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence on one figure of one step."""

    step: str
    variant: str
    measure: str
    """The ``key`` of a ``Measure``."""
    sentence: str
    different: bool


@attrs.frozen
class Comparison:
    """One figure of one variant against the first variant's."""

    step: str
    variant: str
    baseline: str
    measure: Measure
    headline: bool
    rounds: int
    ratio: float
    """Ratio to the first variant; 1 where there were too few rounds."""
    low: float
    high: float
    """Upper bound of the interval at ``level``. The interval holds 1 unless the figure differs (or differs
    negligibly).
    """
    level: float
    detectable: float
    """The least true relative difference that would have been found with a power of 0.8."""
    different: bool
    sentence: str


@attrs.frozen
class Conclusion:
    """All comparisons of a run, in the order of steps, variants and measures."""

    comparisons: tuple[Comparison, ...]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Return the verdicts to show: every headline figure, and the others that were found to differ."""
        return tuple(
            Verdict(
                step=one.step,
                variant=one.variant,
                measure=one.measure.key,
                sentence=one.sentence,
                different=one.different,
            )
            for one in self.comparisons
            if one.headline or one.different
        )

    def of(self, step: str, variant: str, measure: str) -> Comparison | None:
        """Return one comparison, if the figure was compared and had enough rounds."""
        for one in self.comparisons:
            if (one.step, one.variant, one.measure.key) == (step, variant, measure):
                return one if one.rounds >= ROUNDS_MIN else None
        return None

    @property
    def some_difference(self) -> bool:
        """Whether any figure differs."""
        return any(one.different for one in self.comparisons)


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


def conclude(result: Result, steps: Sequence[StepCells] | None = None) -> Conclusion:
    """Compare every variant with the first that has rounds.

    :param steps: the result's cells, if the caller has them already
    """
    return Conclusion(
        judged([pair for cells in (cells_of(result) if steps is None else steps) for pair in _pairs(cells)])
    )


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
    values = ((one.measured.round, measure.of(one)) for one in cell.rounds)
    return {number: value for number, value in values if value is not None and isfinite(value) and value > 0}


def _weights(pairs: Sequence[Pair]) -> list[float]:
    headline = sum(pair.headline for pair in pairs)
    others = len(pairs) - headline
    return [HEADLINE_SHARE / headline if pair.headline else (1 - HEADLINE_SHARE) / others for pair in pairs]


def _comparison(pair: Pair, decided: tuple[bool, float] | None) -> Comparison:
    seen = pair.seen
    if seen is None or decided is None:
        said = f"too few rounds to tell: {pair.rounds}, and {ROUNDS_MIN} are the least"
        return _made(pair, 1.0, (1.0, 1.0), 1.0, 0.0, different=False, said=said)
    found, level = decided
    low, high = seen.interval(level)
    different = found and abs(seen.ratio - 1) >= NEGLIGIBLE
    detectable = seen.detectable(level) - 1
    reach = max(high - 1, 1 - low, NEGLIGIBLE)
    if different:
        said = ""
    elif reach <= TELLING:
        said = f"no difference larger than {_percent(reach)} at this power ({_power(detectable)})"
    else:
        said = (
            f"too noisy to tell: {seen.ratio:.2f}×, 95 % CI {_bounds(low, high)} (only {_power(detectable)})"
        )
    return _made(pair, seen.ratio, (low, high), level, detectable, different=different, said=said)


def _made(
    pair: Pair,
    ratio: float,
    interval: tuple[float, float],
    level: float,
    detectable: float,
    *,
    different: bool,
    said: str,
) -> Comparison:
    low, high = interval
    title = pair.measure.title
    if different:
        digits = 2 if high - low >= 0.02 and abs(ratio - 1) >= 0.05 and ratio >= 0.2 else 3
        figures = f"{ratio:.{digits}f}× {pair.baseline}'s (95 % CI {_bounds(low, high, digits)})"
        sentence = f"{pair.variant}'s {title} is {figures}"
    else:
        sentence = f"{title} of {pair.variant} and {pair.baseline}: {said}"
    return Comparison(
        step=pair.step,
        variant=pair.variant,
        baseline=pair.baseline,
        measure=pair.measure,
        headline=pair.headline,
        rounds=pair.rounds,
        ratio=ratio,
        low=low,
        high=high,
        level=level,
        detectable=detectable,
        different=different,
        sentence=sentence,
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
