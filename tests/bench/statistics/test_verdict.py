"""Verdicts on whole runs of which the truth is known."""

from __future__ import annotations

import math

import attrs
import msgspec
import numpy as np
import pytest

from blumfeld_bench.plan.schedule import turns_of
from blumfeld_bench.result import DriverUsage, Measured, Result, Usage
from blumfeld_bench.statistics.cells import (
    CPU_PER_REQUEST,
    END_TO_END_P99,
    PRODUCE_P99,
    RECEIVED,
    Cell,
    Round,
    StepCells,
)
from blumfeld_bench.statistics.verdict import NEGLIGIBLE, conclude, headline_of
from blumfeld_bench.workload import Produce, Step
from tests.bench.synthetic import CATCH_UP, CLOSED, OPEN, synthetic_result

LABELS = ("one", "two")


@attrs.frozen
class Noise:
    """The scatter of a round's figures. All are shares: 0.03 is 3 %."""

    round_to_round: float = 0.03
    """Scatter of each variant's figures, log-normal, or Student's t with 3 degrees of freedom if ``heavy``."""
    between_rounds: float = 0.05
    """Shared by the variants of a round."""
    drift: float = 0.10
    """From the first turn to the last."""
    heavy: bool = False
    outliers: float = 0.0
    """Chance that something else happens in a turn, which makes it 1.2 to 3 times as slow."""


def simulated(
    seed: int, rounds: int, noise: Noise, effect: float = 1.0
) -> tuple[Result, tuple[StepCells, ...]]:
    """A result without rounds, and its cells with them; the second variant's figures are ``effect`` times the first's.

    Produce p99 scatters three times as much as the rest, p99.9 five times.
    """
    random = np.random.default_rng(seed)
    turns = turns_of(LABELS, rounds)
    together = random.normal(0, noise.between_rounds, rounds)
    rounds_by_label: dict[str, list[Round]] = {label: [] for label in LABELS}
    for turn in turns:
        slow = together[turn.round] + noise.drift * turn.position / len(turns)
        if random.random() < noise.outliers:
            slow += math.log(random.uniform(1.2, 3.0))
        if turn.variant == LABELS[1]:
            slow += math.log(effect)
        scatter = _scatter(random, noise, 8)
        rounds_by_label[turn.variant].append(_round(turn.variant, turn.round, turn.position, slow, scatter))
    result = synthetic_result(rounds=0, labels=LABELS, steps=(OPEN,))
    variants = {variant.label: variant for variant in result.variants}
    cells = tuple(Cell(variants[label], OPEN, tuple(rounds_by_label[label]), None, None) for label in LABELS)
    return result, (StepCells(OPEN, cells),)


def _scatter(random: np.random.Generator, noise: Noise, size: int) -> list[float]:
    drawn = random.standard_t(3, size) / math.sqrt(3) if noise.heavy else random.standard_normal(size)
    return [float(value) * noise.round_to_round for value in drawn]


def _round(label: str, number: int, position: int, slow: float, scatter: list[float]) -> Round:
    p50, p99, p999, e2e_p50, e2e_p99, user, system, memory = scatter
    cpu_s = 0.2 * math.exp(slow)
    measured = Measured(
        variant=label,
        step=OPEN.name,
        round=number,
        position=position,
        seconds=5.0,
        offered_per_s=1000.0,
        records_per_s=1000.0,
        bytes_per_s=132_000.0,
        received_bytes_per_s=132_000.0,
        requests=5000,
        errors=0,
        produce_ack="",
        server=Usage(
            user_s=0.6 * cpu_s * math.exp(user),
            system_s=0.4 * cpu_s * math.exp(system),
            rss_bytes=int(40e6 * math.exp(slow + memory)),
            rss_max_bytes=int(50e6),
            voluntary_switches=100,
            involuntary_switches=10,
        ),
        driver=DriverUsage(user_s=0.1, system_s=0.1, busy=0.1, late_us_p99=10.0),
    )
    produce = {
        50.0: 300 * math.exp(slow + p50),
        99.0: 900 * math.exp(slow + 3 * p99),
        99.9: 2000 * math.exp(slow + 5 * p999),
    }
    end_to_end = {50.0: 500 * math.exp(slow + e2e_p50), 99.0: 1500 * math.exp(slow + 3 * e2e_p99)}
    return Round(measured, None, None, produce, end_to_end)


RUNS = 100
CALM = Noise()
HEAVY = Noise(heavy=True)
WILD = Noise(outliers=0.06)
WORST = Noise(heavy=True, outliers=0.06, drift=0.3)


@pytest.mark.parametrize("rounds", [4, 6, 10])
@pytest.mark.parametrize("noise", [CALM, HEAVY, WILD, WORST], ids=["calm", "heavy", "outliers", "worst"])
def test_equal_variants_come_out_as_no_difference(rounds: int, noise: Noise) -> None:
    """In at least 95 of 100 runs, whatever of ten figures is looked at."""
    clean = sum(not conclude(*simulated(seed, rounds, noise)).differences for seed in range(RUNS))
    assert clean >= 95


@pytest.mark.parametrize(("rounds", "noise_share"), [(4, 0.015), (6, 0.03), (8, 0.04), (10, 0.05)])
def test_a_planted_tenth_is_found(rounds: int, noise_share: float) -> None:
    """A headline figure that is 10 % worse, in at least 80 of 100 runs, at this noise from round to round."""
    noise = attrs.evolve(CALM, round_to_round=noise_share)
    detections = 0
    for seed in range(RUNS):
        cpu = conclude(*simulated(seed, rounds, noise, 1.1)).of(OPEN.name, LABELS[1], CPU_PER_REQUEST.key)
        assert cpu is not None
        detections += cpu.different and cpu.ratio > 1
    assert detections >= 80


@pytest.mark.parametrize(("rounds", "noise_share"), [(6, 0.01), (10, 0.015)])
def test_a_planted_tenth_is_found_in_the_tail(rounds: int, noise_share: float) -> None:
    """p99 scatters three times as much: it needs calmer rounds, or more of them."""
    noise = attrs.evolve(CALM, round_to_round=noise_share)
    detections = 0
    for seed in range(RUNS):
        p99 = conclude(*simulated(seed, rounds, noise, 1.1)).of(OPEN.name, LABELS[1], PRODUCE_P99.key)
        assert p99 is not None
        detections += p99.different
    assert detections >= 80


def test_intervals_hold_the_truth_and_agree_with_the_verdict() -> None:
    """An interval holds 1 where no difference was found, or the ratio is negligible; 95 % hold the truth."""
    held = total = 0
    for seed in range(RUNS):
        for comparison in conclude(*simulated(seed, 8, CALM, 1.1)).comparisons:
            if comparison.measure.title in ("records/s", "received MB/s"):
                continue
            total += 1
            held += comparison.low <= 1.1 <= comparison.high
            excludes_one = comparison.low > 1 or comparison.high < 1
            assert comparison.different == (excludes_one and abs(comparison.ratio - 1) >= NEGLIGIBLE)
    assert held / total >= 0.95


def test_verdicts_are_sentences() -> None:
    faster = conclude(*simulated(1, 6, attrs.evolve(CALM, round_to_round=0.05), 0.7))
    cpu = faster.of(OPEN.name, "two", CPU_PER_REQUEST.key)
    assert cpu is not None
    assert (
        cpu.sentence == f"two's CPU/request is {cpu.ratio:.2f}× one's (95 % CI {cpu.low:.2f}–{cpu.high:.2f})"
    )
    same = conclude(*simulated(2, 10, attrs.evolve(CALM, round_to_round=0.01)))
    words = {verdict.measure.key: verdict.sentence for verdict in same.verdicts}
    assert "CPU/request of two and one: no difference larger than" in words[CPU_PER_REQUEST.key]
    assert "would be found in 80 of 100 such runs" in words[CPU_PER_REQUEST.key]
    noisy = conclude(*simulated(3, 4, attrs.evolve(CALM, round_to_round=0.5)))
    assert "too noisy to tell" in {v.measure.key: v.sentence for v in noisy.verdicts}[PRODUCE_P99.key]


def test_a_difference_that_is_sure_but_negligible_is_none() -> None:
    quiet = Noise(round_to_round=0.0003, between_rounds=0.0, drift=0.0)
    assert not conclude(*simulated(1, 10, quiet, 1.005)).differences


def test_headlines_follow_the_load() -> None:
    assert headline_of(OPEN) == {PRODUCE_P99.key, END_TO_END_P99.key, CPU_PER_REQUEST.key}
    assert headline_of(CLOSED) == {"rate", CPU_PER_REQUEST.key}
    assert headline_of(CATCH_UP) == {RECEIVED.key, "cpu_per_mb"}


def test_histograms_of_a_result_come_through() -> None:
    conclusion = conclude(synthetic_result(rounds=8, effect=0.7, seed=3))
    p99 = conclusion.of(OPEN.name, "uring", PRODUCE_P99.key)
    assert p99 is not None
    assert p99.different
    assert 0.6 < p99.low < 0.7 < p99.high < 0.8


def test_two_rounds_are_too_few() -> None:
    conclusion = conclude(synthetic_result(rounds=2, effect=0.7))
    assert not conclusion.differences
    assert all("too few rounds" in comparison.sentence for comparison in conclusion.comparisons)
    assert conclusion.of(OPEN.name, "uring", PRODUCE_P99.key) is None


FASTER = Step(name="2,000/s", produce=Produce(connections=4, rate_per_s=2000))


def test_the_rate_sustained_is_the_highest_that_was_reached_below_the_bound() -> None:
    """epoll falls short of 2,000/s, uring reaches it; a closed loop offers nothing."""
    result = synthetic_result(steps=(OPEN, FASTER, CLOSED), rounds=3)
    measured = tuple(
        msgspec.structs.replace(round_result, records_per_s=1950.0)
        if (round_result.step, round_result.variant) == (FASTER.name, "epoll")
        else round_result
        for round_result in result.measured
    )
    assert conclude(msgspec.structs.replace(result, measured=measured)).sustained == (
        "epoll sustains 1,000 records/s with an ack p99 below 10 ms.",
        "uring sustains 2,000 records/s with an ack p99 below 10 ms, and more was not offered.",
    )


def test_a_rate_that_is_reached_too_late_is_not_sustained() -> None:
    result = synthetic_result(steps=(OPEN,), rounds=3, labels=("a",))
    workload = msgspec.structs.replace(result.workload, sustained_p99_ms=0.5)
    assert conclude(msgspec.structs.replace(result, workload=workload)).sustained == (
        "a sustains none of the offered rates with an ack p99 below 0.5 ms.",
    )


@pytest.mark.parametrize("bound", [None, 10.0])
def test_nothing_is_sustained_where_nobody_asks_or_offers(bound: float | None) -> None:
    result = synthetic_result(steps=(CLOSED,) if bound else (OPEN,), rounds=3)
    workload = msgspec.structs.replace(result.workload, sustained_p99_ms=bound)
    assert conclude(msgspec.structs.replace(result, workload=workload)).sustained == ()
