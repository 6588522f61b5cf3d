"""What rounds say about a ratio: an estimate, an interval that holds with few rounds, and what could have been
seen. Pure.

**The unit is the round**, not the request: a million requests of one round share its server, its page cache
and its moment. Variants are compared within a round, where they ran next to each other, as the logarithm of
their ratio: what a round did to both falls out, and slow drift falls out over a round forward and a round
back.

**The estimate** is the mean of these log ratios, the extreme one on both sides cut off from 7 rounds on, two
from 12 (:func:`trim`), so that a round in which something else happened does not decide. With fewer rounds
the cut would cost more than such a round does.

**The interval** is a studentised parametric bootstrap. The percentile bootstrap over rounds, which is the
usual choice, covers 78 % of the time with 4 rounds, 86 % with 6 and 90 % with 10 where it says 95: resampling
4 values cannot know how far the fifth lies. The estimate over its own standard error is pivotal: its
distribution depends on the number of rounds only, not on scale or place. So it is drawn once, from normal
noise (log-normal times), for this number of rounds and this trimming, and its quantiles stretch the interval.
Without trimming this is Student's t. Heavier tails than the normal's make it wider than it had to be, not
narrower; ``tests/bench/statistics/test_intervals.py`` measures both.

**Several figures** of one run are tried together (:func:`holm`), so that a run of two equal variants says
"different" of anything at all in at most 4 % of runs: intervals of 95 % or more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import attrs
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL = 0.04
"""Share of runs of equal variants in which something may be called different: one in a hundred below what is
claimed, since noise is not as well-behaved as the normal's.
"""
POWER = 0.8
ROUNDS_MIN = 3
DRAWS = 200_000
"""Of the pivot's distribution: 50 lie beyond a level of 0.00025."""
SEED = 20_261_121
RESOLUTION = 0.0005
"""Relative. Below it nothing is known, whatever the rounds agree on: a histogram keeps three digits, a clock
ticks.
"""


def trim(rounds: int) -> int:
    """How many rounds are cut off at either end."""
    return 0 if rounds < 7 else 1 if rounds < 12 else 2


@attrs.frozen
class Paired:
    """Two variants over rounds that both have."""

    rounds: int
    log_ratio: float
    standard_error: float

    @property
    def ratio(self) -> float:
        """The second over the first."""
        return math.exp(self.log_ratio)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Where the ratio lies, but for ``level`` of cases."""
        reach = critical(self.rounds, level) * self.standard_error
        return math.exp(self.log_ratio - reach), math.exp(self.log_ratio + reach)

    @property
    def p_value(self) -> float:
        """How often equal variants would show at least this."""
        return tail(self.rounds, abs(self.log_ratio) / self.standard_error)

    def detectable(self, level: float = LEVEL, power: float = POWER) -> float:
        """The least true ratio above 1 that rounds as noisy as these would show, with this power."""
        reach = critical(self.rounds, level) + critical(self.rounds, 2 * (1 - power))
        return math.exp(reach * self.standard_error)


def paired(first: Sequence[float], second: Sequence[float]) -> Paired | None:
    """Compare values of the same rounds, all above 0. None with fewer than :data:`ROUNDS_MIN`."""
    if len(first) != len(second):
        raise ValueError("values of the same rounds, one each")
    rounds = len(first)
    if rounds < ROUNDS_MIN:
        return None
    logs = np.log(np.asarray(second, np.float64)) - np.log(np.asarray(first, np.float64))
    estimate, error = _studentised(logs[None, :])
    return Paired(rounds, float(estimate[0]), max(float(error[0]), RESOLUTION))


def critical(rounds: int, level: float) -> float:
    """How many standard errors hold all but ``level`` of estimates, both sides together."""
    return float(_pivot(rounds)[min(DRAWS - 1, math.ceil((1 - level) * DRAWS))])


def tail(rounds: int, distance: float) -> float:
    """The share of estimates at least so many standard errors off; never 0, since draws are finite."""
    beyond = DRAWS - int(np.searchsorted(_pivot(rounds), distance))
    return (beyond + 1) / (DRAWS + 1)


def holm(
    p_values: Sequence[float], weights: Sequence[float], level: float = LEVEL
) -> list[tuple[bool, float]]:
    """Which of several figures differ, and the level at which each was tried: an interval at that level holds 1
    just if the figure was not found to differ.

    Holm's step-down procedure with weights (S. Holm 1979): the family-wise error rate is at most ``level``,
    whatever the figures have to do with each other. Once a figure is found, its share of the level goes to
    the others.
    """
    left = set(range(len(p_values)))
    found: dict[int, float] = {}
    while left:
        total = sum(weights[nth] for nth in sorted(left))
        nth = min(sorted(left), key=lambda one: p_values[one] / weights[one])
        share = level * weights[nth] / total
        if p_values[nth] > share:
            break
        found[nth] = share
        left.remove(nth)
    total = sum(weights[nth] for nth in sorted(left))
    return [
        (nth in found, found[nth] if nth in found else level * weights[nth] / total)
        for nth in range(len(p_values))
    ]


@lru_cache(maxsize=32)
def _pivot(rounds: int) -> Floats:
    """Estimates over their standard errors where nothing differs, absolute and sorted."""
    noise = np.random.default_rng(SEED + rounds).standard_normal((DRAWS, rounds))
    estimate, error = _studentised(noise)
    return np.sort(np.abs(estimate / error))


def _studentised(values: Floats) -> tuple[Floats, Floats]:
    """Trimmed means of rows, and their standard errors from the winsorised variance (Tukey and McLaughlin 1963)."""
    rounds = values.shape[1]
    cut = trim(rounds)
    ordered = np.sort(values, axis=1)
    kept = ordered[:, cut : rounds - cut]
    winsorised = np.clip(ordered, kept[:, :1], kept[:, -1:])
    spread = winsorised.std(axis=1, ddof=1)
    size = rounds - 2 * cut
    return kept.mean(axis=1), spread * math.sqrt((rounds - 1) / (size * (size - 1)))
