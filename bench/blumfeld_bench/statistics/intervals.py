"""Estimate a ratio from rounds: its value, an interval that holds with few rounds, and the detectable difference. Pure.

**The unit is the round**, not the request: a million requests of one round share its server, its page cache and its
moment. Variants are compared within a round, where they ran next to each other, as the logarithm of their ratio. So
influences on both variants cancel within a round, and slow drift cancels over a round forward and a round back.

**The estimate** is the mean of these log ratios. From 7 rounds on, the extreme one on each side is cut off, from 12
on two (:func:`trim`), so that one disturbed round does not decide. With fewer rounds the cut would cost more than
such a round does.

**The interval** is a studentised parametric bootstrap. The usual percentile bootstrap over rounds covers 78 % of the
time with 4 rounds, 86 % with 6 and 90 % with 10 where it says 95: resampling 4 values cannot know how far the fifth
lies. The estimate divided by its own standard error is pivotal: its distribution depends on the number of rounds
only, not on scale or place. So it is drawn once, from normal noise (log-normal times), for this number of rounds and
this trimming. Its quantiles stretch the interval. Without trimming this is Student's t. Tails heavier than the
normal's make the interval wider than necessary, not narrower; ``tests/bench/statistics/test_intervals.py`` measures
both.

**Several figures** of one run are tested together (:func:`holm`), so that a run of two equal variants calls any
figure different in at most 4 % of runs. Intervals are of 95 % or more.
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
"""Allowed share of runs of equal variants that call some figure different. It is one point below the claimed 5 %, since
noise is not as well-behaved as the normal distribution.
"""
POWER = 0.8
ROUNDS_MIN = 3
DRAWS = 200_000
"""Draws of the pivot's distribution: 50 of them lie beyond a level of 0.00025."""
SEED = 20_261_121
RESOLUTION = 0.0005
"""Relative resolution. Smaller differences can't be known even if all rounds agree: a histogram keeps three digits, and
a clock ticks.
"""


def trim(rounds: int) -> int:
    """Return the number of rounds that are cut off at each end."""
    return 0 if rounds < 7 else 1 if rounds < 12 else 2


@attrs.frozen
class Paired:
    """Two variants, compared over the rounds that both have."""

    rounds: int
    log_ratio: float
    standard_error: float

    @property
    def ratio(self) -> float:
        """Ratio of the second variant to the first."""
        return math.exp(self.log_ratio)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the interval of the ratio; it misses the true ratio in a share of ``level`` of cases."""
        reach = critical(self.rounds, level) * self.standard_error
        return math.exp(self.log_ratio - reach), math.exp(self.log_ratio + reach)

    @property
    def p_value(self) -> float:
        """Return the probability that equal variants show at least this difference."""
        return tail(self.rounds, abs(self.log_ratio) / self.standard_error)

    def detectable(self, level: float = LEVEL, power: float = POWER) -> float:
        """Return the least true ratio above 1 that rounds as noisy as these would show, with this power."""
        reach = critical(self.rounds, level) + critical(self.rounds, 2 * (1 - power))
        return math.exp(reach * self.standard_error)


def paired(first: Sequence[float], second: Sequence[float]) -> Paired | None:
    """Compare values of the same rounds, all above 0. None with fewer than :data:`ROUNDS_MIN` rounds."""
    if len(first) != len(second):
        raise ValueError("both variants need a value for each round")
    rounds = len(first)
    if rounds < ROUNDS_MIN:
        return None
    logs = np.log(np.asarray(second, np.float64)) - np.log(np.asarray(first, np.float64))
    estimate, error = _studentised(logs[None, :])
    return Paired(rounds, float(estimate[0]), max(float(error[0]), RESOLUTION))


def critical(rounds: int, level: float) -> float:
    """Return the number of standard errors that holds all but ``level`` of estimates, both sides together."""
    return float(_pivot(rounds)[min(DRAWS - 1, math.ceil((1 - level) * DRAWS))])


def tail(rounds: int, distance: float) -> float:
    """Return the share of estimates that are at least so many standard errors off. It is never 0, since draws are
    finite.
    """
    beyond = DRAWS - int(np.searchsorted(_pivot(rounds), distance))
    return (beyond + 1) / (DRAWS + 1)


def holm(
    p_values: Sequence[float], weights: Sequence[float], level: float = LEVEL
) -> list[tuple[bool, float]]:
    """Return for each figure whether it differs, and the level at which it was tested. An interval at that level
    holds 1 exactly if the figure was not found to differ.

    Holm's step-down procedure with weights (S. Holm 1979): the family-wise error rate is at most ``level``, however
    the figures depend on each other. Once a figure is found to differ, its share of the level goes to the others.
    """
    left = set(range(len(p_values)))
    shares: dict[int, float] = {}
    while left:
        total = sum(weights[nth] for nth in sorted(left))
        nth = min(sorted(left), key=lambda index: p_values[index] / weights[index])
        share = level * weights[nth] / total
        if p_values[nth] > share:
            break
        shares[nth] = share
        left.remove(nth)
    total = sum(weights[nth] for nth in sorted(left))
    return [
        (nth in shares, shares[nth] if nth in shares else level * weights[nth] / total)
        for nth in range(len(p_values))
    ]


@lru_cache(maxsize=32)
def _pivot(rounds: int) -> Floats:
    """Return estimates divided by their standard errors where nothing differs, absolute and sorted."""
    noise = np.random.default_rng(SEED + rounds).standard_normal((DRAWS, rounds))
    estimate, error = _studentised(noise)
    return np.sort(np.abs(estimate / error))


def _studentised(values: Floats) -> tuple[Floats, Floats]:
    """Return the trimmed means of rows, and their standard errors from the winsorised variance (Tukey and McLaughlin
    1963).
    """
    rounds = values.shape[1]
    cut = trim(rounds)
    ordered = np.sort(values, axis=1)
    kept = ordered[:, cut : rounds - cut]
    winsorised = np.clip(ordered, kept[:, :1], kept[:, -1:])
    spread = winsorised.std(axis=1, ddof=1)
    size = rounds - 2 * cut
    return kept.mean(axis=1), spread * math.sqrt((rounds - 1) / (size * (size - 1)))
