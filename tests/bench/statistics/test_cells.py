from __future__ import annotations

import msgspec
import pytest

from blumfeld_bench.result import Result, Usage
from blumfeld_bench.statistics.cells import (
    CPU_PER_MB,
    CPU_PER_REQUEST,
    END_TO_END_P99,
    PRODUCE_P99,
    RATE,
    RSS,
    SWITCHES,
    cells_of,
)
from tests.bench.synthetic import CATCH_UP, CLOSED, OPEN, histogram, synthetic_result


def changed(result: Result, **fields: object) -> Result:
    return msgspec.structs.replace(
        result,
        measured=tuple(msgspec.structs.replace(round_result, **fields) for round_result in result.measured),
    )


def test_each_step_has_each_variant_in_the_order_of_the_result() -> None:
    cells = cells_of(synthetic_result(labels=("b", "a"), rounds=2))
    assert [step_cells.step.name for step_cells in cells] == [OPEN.name, CLOSED.name]
    assert [cell.variant.label for cell in cells[0].cells] == ["b", "a"]
    assert [cell_round.measured.round for cell_round in cells[0].cells[1].rounds] == [0, 1]


def test_what_is_said_of_a_cell_is_the_median_of_its_rounds() -> None:
    import numpy as np

    result = synthetic_result(labels=("a",), rounds=3, steps=(OPEN,))
    latencies_ms = (1, 9, 2)
    measured = tuple(
        msgspec.structs.replace(round_result, produce_ack=histogram(np.full(100, ms * 1e6)))
        for round_result, ms in zip(result.measured, latencies_ms, strict=True)
    )
    (cells,) = cells_of(msgspec.structs.replace(result, measured=measured))
    assert cells.cells[0].median(PRODUCE_P99) == pytest.approx(2000, rel=0.01)


def test_a_round_without_a_histogram_has_no_latency() -> None:
    (cells,) = cells_of(synthetic_result(steps=(CATCH_UP,)))
    assert cells.cells[0].median(PRODUCE_P99) is None
    assert not cells.has(END_TO_END_P99)
    assert cells.cells[0].median(RATE)


def test_cost_is_taken_over_what_was_answered_and_moved() -> None:
    """2 s of CPU over 1,000 requests and 10 MB (5 s of 1 MB/s in and 1 MB/s out): 2,000 µs and 200 ms."""
    result = synthetic_result(labels=("a",), rounds=1, steps=(OPEN,))
    usage = Usage(
        user_s=1.5,
        system_s=0.5,
        rss_bytes=1,
        rss_max_bytes=1,
        voluntary_switches=300,
        involuntary_switches=200,
    )
    (cells,) = cells_of(
        changed(result, server=usage, requests=1000, seconds=5.0, bytes_per_s=1e6, received_bytes_per_s=1e6)
    )
    cell = cells.cells[0]
    assert cell.median(CPU_PER_REQUEST) == pytest.approx(2000)
    assert cell.median(CPU_PER_MB) == pytest.approx(200)
    assert cell.median(SWITCHES) == pytest.approx(500)


def test_reading_is_not_counted_twice_where_nothing_is_written() -> None:
    result = synthetic_result(labels=("a",), rounds=1, steps=(CATCH_UP,))
    (cells,) = cells_of(changed(result, seconds=1.0, bytes_per_s=5e6, received_bytes_per_s=5e6))
    assert cells.cells[0].rounds[0].moved_bytes == 5e6


def test_a_server_of_somebody_elses_has_no_cost() -> None:
    (cells,) = cells_of(changed(synthetic_result(steps=(OPEN,)), server=None))
    cell = cells.cells[0]
    assert [cell.median(measure) for measure in (CPU_PER_REQUEST, CPU_PER_MB, SWITCHES, RSS)] == [None] * 4
    assert cell.median(PRODUCE_P99)


def test_no_request_is_no_figure() -> None:
    (cells,) = cells_of(changed(synthetic_result(steps=(OPEN,)), requests=0))
    assert cells.cells[0].median(CPU_PER_REQUEST) is None


@pytest.mark.parametrize(("ceiling", "busy", "expected"), [(4, 0.3, False), (1.2, 0.3, True), (4, 0.9, True)])
def test_a_result_near_the_drivers_limit_is_the_drivers(ceiling: float, busy: float, expected: bool) -> None:
    result = synthetic_result(ceiling=ceiling, steps=(OPEN,))
    usage = msgspec.structs.replace(result.measured[0].driver, busy=busy)
    (cells,) = cells_of(changed(result, driver=usage))
    assert cells.cells[0].is_the_drivers is expected


def test_only_a_closed_loop_is_saturated() -> None:
    cells = cells_of(synthetic_result(steps=(OPEN, CLOSED, CATCH_UP)))
    assert [step_cells.cells[0].saturated for step_cells in cells] == [False, True, False]


def test_a_variant_that_could_not_run_has_an_empty_cell() -> None:
    result = synthetic_result(labels=("a", "b"), steps=(OPEN,))
    kept = tuple(round_result for round_result in result.measured if round_result.variant == "a")
    (cells,) = cells_of(msgspec.structs.replace(result, measured=kept, system_calls=()))
    absent = cells.cells[1]
    assert absent.median(RATE) is None
    assert (absent.busy, absent.is_the_drivers, absent.calls_per_request) == (0.0, False, {})
