from __future__ import annotations

import msgspec
import pytest

from blumfeld_bench.result import Result
from blumfeld_bench.statistics.cells import cells_of
from blumfeld_bench.statistics.findings import Findings, findings_of
from blumfeld_bench.workload import Produce, Step
from tests.bench.synthetic import CLOSED, OPEN, synthetic_result

FASTER = Step(name="2,000/s", produce=Produce(connections=4, rate_per_s=2000))


def found(result: Result) -> Findings:
    return findings_of(result, cells_of(result))


def slowed(result: Result, step: str, variant: str, **fields: object) -> Result:
    measured = tuple(
        msgspec.structs.replace(one, **fields) if (one.step, one.variant) == (step, variant) else one
        for one in result.measured
    )
    return msgspec.structs.replace(result, measured=measured)


def test_a_planted_difference_has_a_sentence_and_an_interval_below_1() -> None:
    findings = found(synthetic_result(effect=0.5, rounds=8, steps=(OPEN,)))
    assert "produce_p99" in {one.measure for one in findings.differences}
    interval = findings.intervals[OPEN.name, "uring", "produce_p99"]
    assert interval.low < interval.ratio < interval.high < 1
    assert interval.ratio == pytest.approx(0.5, rel=0.2)


def test_equal_variants_have_sentences_and_no_difference() -> None:
    findings = found(synthetic_result(effect=1.0, rounds=8, steps=(OPEN,)))
    assert findings.differences == ()
    assert findings.others
    interval = findings.intervals[OPEN.name, "uring", "produce_p99"]
    assert interval.low < 1 < interval.high


def test_too_few_rounds_have_no_interval() -> None:
    findings = found(synthetic_result(effect=0.5, rounds=2, steps=(OPEN,)))
    assert findings.intervals == {}
    assert findings.differences == ()


def test_the_rate_sustained_is_the_highest_that_was_reached_below_the_bound() -> None:
    """epoll falls short of 2,000/s, uring reaches it; a closed loop offers nothing."""
    result = synthetic_result(steps=(OPEN, FASTER, CLOSED), rounds=3)
    findings = found(slowed(result, FASTER.name, "epoll", records_per_s=1950.0))
    assert findings.sustained == (
        "epoll sustains 1,000 records/s with an ack p99 below 10 ms.",
        "uring sustains 2,000 records/s with an ack p99 below 10 ms, and more was not offered.",
    )


def test_a_rate_that_is_reached_too_late_is_not_sustained() -> None:
    result = synthetic_result(steps=(OPEN,), rounds=3, labels=("a",))
    workload = msgspec.structs.replace(result.workload, sustained_p99_ms=0.5)
    assert found(msgspec.structs.replace(result, workload=workload)).sustained == (
        "a sustains none of the offered rates with an ack p99 below 0.5 ms.",
    )


@pytest.mark.parametrize("bound", [None, 10.0])
def test_nothing_is_sustained_where_nobody_asks_or_offers(bound: float | None) -> None:
    result = synthetic_result(steps=(CLOSED,) if bound else (OPEN,), rounds=3)
    workload = msgspec.structs.replace(result.workload, sustained_p99_ms=bound)
    assert found(msgspec.structs.replace(result, workload=workload)).sustained == ()
