"""Claims about ratios, held against noise whose truth is known. All of it is seeded."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from blumfeld_bench.statistics import intervals
from blumfeld_bench.statistics.intervals import LEVEL, critical, holm, paired, tail

RUNS = 1000
TRUE_RATIO = 1.1


@pytest.fixture(scope="module", autouse=True)
def _no_tables_for_others() -> Iterator[None]:
    """Each number of rounds has a table of 1.6 MB, and this file asks for more of them than any run."""
    yield
    intervals._pivot.cache_clear()


def _pairs(
    random: np.random.Generator, rounds: int, *, heavy: bool = False, outliers: float = 0.0
) -> tuple[list[float], list[float]]:
    """Two variants over rounds: 4 % of noise each, 10 % shared by a round, drift of 20 % over the run."""
    size = (2, rounds)
    own = random.standard_t(3, size) / math.sqrt(3) if heavy else random.standard_normal(size)
    shared = random.normal(0, 0.1, rounds)
    order = np.arange(2 * rounds).reshape(rounds, 2)
    order[1::2] = order[1::2, ::-1]  # A B, B A
    slow = 0.04 * own + shared + 0.2 * order.T / (2 * rounds)
    slow += (random.random(size) < outliers) * np.log(random.uniform(1.2, 3.0, size))
    first, second = np.exp(slow[0]), TRUE_RATIO * np.exp(slow[1])
    return first.tolist(), second.tolist()


@pytest.mark.parametrize("rounds", [4, 6, 8, 10, 12])
@pytest.mark.parametrize("kind", ["normal", "heavy", "outliers"])
def test_the_interval_holds_the_true_ratio_at_least_as_often_as_it_says(rounds: int, kind: str) -> None:
    """At 95 %, with few rounds, heavy tails, outliers and drift. Two standard errors of 1,000 runs are allowed for."""
    random = np.random.default_rng(rounds)
    held = 0
    for _ in range(RUNS):
        first, second = _pairs(random, rounds, heavy=kind == "heavy", outliers=0.06 * (kind == "outliers"))
        comparison = paired(first, second)
        assert comparison is not None
        low, high = comparison.interval(0.05)
        held += low <= TRUE_RATIO <= high
    assert held / RUNS >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / RUNS)


def test_without_cut_rounds_the_quantiles_are_students() -> None:
    """t at 97.5 %: 3.182 with 3 degrees of freedom, 2.571 with 5."""
    assert critical(4, 0.05) == pytest.approx(3.182, rel=0.02)
    assert critical(6, 0.05) == pytest.approx(2.571, rel=0.02)


@pytest.mark.parametrize("level", [0.3, 0.05, 0.001])
def test_tail_and_critical_are_each_others_inverse(level: float) -> None:
    assert tail(8, critical(8, level)) == pytest.approx(level, rel=0.05)


def test_what_is_said_to_be_detectable_is_detected() -> None:
    """A true difference of that size is found in 80 of 100 runs, within what 1,000 runs can tell."""
    random = np.random.default_rng(11)
    reach = paired(*_flat(random, 8, 1.0))
    assert reach is not None
    true_error = (
        0.04 * math.sqrt(2 / 8) * 1.08
    )  # the mean's, and what cutting one round off at each end costs
    effect = math.exp((critical(8, LEVEL) + critical(8, 0.4)) * true_error)
    detections = 0
    for _ in range(1000):
        seen = paired(*_flat(random, 8, effect))
        assert seen is not None
        detections += seen.p_value <= LEVEL
    assert 0.75 < detections / 1000 < 0.95


def _flat(random: np.random.Generator, rounds: int, effect: float) -> tuple[list[float], list[float]]:
    noise = np.exp(random.normal(0, 0.04, (2, rounds)))
    return noise[0].tolist(), (effect * noise[1]).tolist()


def test_one_wild_round_of_eight_does_not_decide() -> None:
    first = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.0]
    second = [110.0, 111.5, 109.0, 110.0, 109.9, 110.1, 400.0, 110.3]
    comparison = paired(first, second)
    assert comparison is not None
    assert comparison.ratio == pytest.approx(1.1, abs=0.01)
    low, high = comparison.interval(0.05)
    assert 1.05 < low < 1.1 < high < 1.15


def test_values_that_agree_to_the_last_digit_are_not_taken_for_certainty() -> None:
    """A histogram keeps three digits, so that no interval is narrower."""
    comparison = paired([100.0] * 6, [100.0] * 6)
    assert comparison is not None
    low, high = comparison.interval()
    assert low < 1 < high


def test_two_rounds_say_nothing() -> None:
    assert paired([1.0, 2.0], [1.0, 2.0]) is None


def test_holm_gives_the_level_of_what_was_found_to_the_rest() -> None:
    """Weights 0.8 and 0.2: the second alone would be tried at 0.01; after the first was found, at the whole 0.05."""
    for p_values, decisions, levels in (
        ([0.001, 0.03], [True, True], [0.04, 0.05]),
        ([0.2, 0.03], [False, False], [0.04, 0.01]),
    ):
        decided = holm(p_values, [0.8, 0.2], 0.05)
        assert [decision for decision, _ in decided] == decisions
        assert [level for _, level in decided] == pytest.approx(levels)
    assert holm([], []) == []


@pytest.mark.parametrize("together", [0.0, 0.9])
def test_holm_errs_in_no_more_runs_than_it_says(together: float) -> None:
    random = np.random.default_rng(7)
    noise = random.standard_normal((2 * RUNS, 10)) * math.sqrt(1 - together)
    noise += random.standard_normal((2 * RUNS, 1)) * math.sqrt(together)
    wrong = 0
    for values in noise.tolist():
        p_values = [math.erfc(abs(value) / math.sqrt(2)) for value in values]
        wrong += any(decision for decision, _ in holm(p_values, [0.27] * 3 + [0.03] * 7, 0.05))
    assert wrong / (2 * RUNS) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / (2 * RUNS))
