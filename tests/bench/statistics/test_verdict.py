"""What is said of whole runs, of which the truth is known."""

from __future__ import annotations

import attrs
import msgspec
import pytest

from blumfeld_bench.statistics.cells import CPU_PER_REQUEST, END_TO_END_P99, PRODUCE_P99, RECEIVED
from blumfeld_bench.statistics.verdict import NEGLIGIBLE, conclude, headline_of
from blumfeld_bench.workload import Produce, Step
from tests.bench.noise import LABELS, Noise, simulated
from tests.bench.synthetic import CATCH_UP, CLOSED, OPEN, synthetic_result

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
    found = 0
    for seed in range(RUNS):
        cpu = conclude(*simulated(seed, rounds, noise, 1.1)).of(OPEN.name, LABELS[1], CPU_PER_REQUEST.key)
        assert cpu is not None
        found += cpu.different and cpu.ratio > 1
    assert found >= 80


@pytest.mark.parametrize(("rounds", "noise_share"), [(6, 0.01), (10, 0.015)])
def test_a_planted_tenth_is_found_in_the_tail(rounds: int, noise_share: float) -> None:
    """p99 scatters three times as much: it needs calmer rounds, or more of them."""
    noise = attrs.evolve(CALM, round_to_round=noise_share)
    found = 0
    for seed in range(RUNS):
        p99 = conclude(*simulated(seed, rounds, noise, 1.1)).of(OPEN.name, LABELS[1], PRODUCE_P99.key)
        assert p99 is not None
        found += p99.different
    assert found >= 80


def test_intervals_hold_the_truth_and_agree_with_the_verdict() -> None:
    """What differs has an interval without 1, what doesn't one with 1 or a negligible ratio; 95 % hold the truth."""
    held = total = 0
    for seed in range(RUNS):
        for one in conclude(*simulated(seed, 8, CALM, 1.1)).comparisons:
            if one.measure.title in ("records/s", "received MB/s"):
                continue
            total += 1
            held += one.low <= 1.1 <= one.high
            excludes_one = one.low > 1 or one.high < 1
            assert one.different == (excludes_one and abs(one.ratio - 1) >= NEGLIGIBLE)
    assert held / total >= 0.95


def test_verdicts_are_sentences() -> None:
    """Different, not different, and too noisy to tell, each in its own words."""
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
    """From encoded histograms to the verdict on p99, in a result as it is saved."""
    conclusion = conclude(synthetic_result(rounds=8, effect=0.7, seed=3))
    p99 = conclusion.of(OPEN.name, "uring", PRODUCE_P99.key)
    assert p99 is not None
    assert p99.different
    assert 0.6 < p99.low < 0.7 < p99.high < 0.8


def test_two_rounds_are_too_few() -> None:
    conclusion = conclude(synthetic_result(rounds=2, effect=0.7))
    assert not conclusion.differences
    assert all("too few rounds" in one.sentence for one in conclusion.comparisons)
    assert conclusion.of(OPEN.name, "uring", PRODUCE_P99.key) is None


FASTER = Step(name="2,000/s", produce=Produce(connections=4, rate_per_s=2000))


def test_the_rate_sustained_is_the_highest_that_was_reached_below_the_bound() -> None:
    """epoll falls short of 2,000/s, uring reaches it; a closed loop offers nothing."""
    result = synthetic_result(steps=(OPEN, FASTER, CLOSED), rounds=3)
    measured = tuple(
        msgspec.structs.replace(one, records_per_s=1950.0)
        if (one.step, one.variant) == (FASTER.name, "epoll")
        else one
        for one in result.measured
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
