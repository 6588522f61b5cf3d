from __future__ import annotations

import io

import pytest
from rich.console import Console

from blumfeld_bench.report.table import figure_text, ratio_text, result_table, rows_of
from blumfeld_bench.result import Result
from blumfeld_bench.statistics.cells import cells_of
from blumfeld_bench.statistics.verdict import Conclusion
from tests.bench.synthetic import CLOSED, OPEN, comparison, synthetic_result


def printed(result: Result, width: int = 120) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(result_table(result))
    return console.export_text()


def test_the_table_names_each_measure_and_what_an_ack_is() -> None:
    text = printed(synthetic_result())
    for part in ("records/s", "ack p99.9 µs", "e2e p99 µs", "CPU/MB ms", "system calls/request", "an ack is"):
        assert part in text
    assert text.count("page cache") == 4 + 2, "on each variant's row in both steps, and once in full"
    assert "saturated" in text
    assert "uring (made up)" in text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_figure_is_lost_on_a_narrow_terminal(width: int) -> None:
    result = synthetic_result(steps=(CLOSED,))
    (cells,) = cells_of(result)
    text = printed(result, width)
    for row in rows_of(cells, Conclusion()):
        for figure in row.figures:
            assert not figure.number or figure.text in text


def test_a_ratio_stands_with_its_interval_beside_the_figure() -> None:
    (cells,) = cells_of(synthetic_result(steps=(OPEN,)))
    findings = Conclusion((comparison(0.71, 0.66, 0.78),))
    row = next(entry for entry in rows_of(cells, findings) if entry.title == "ack p99")
    assert [figure.ratio for figure in row.figures] == ["", "0.71× (0.66–0.78)"]


def test_all_steps_stand_in_one_table_if_there_are_several() -> None:
    text = printed(synthetic_result(effect=0.8))
    overview = text.partition("All steps")[2].partition("Verdict")[0].splitlines()[1:]
    assert overview[0].split()[:3] == ["step", "variant", "records/s"]
    assert [line.split()[:2] for line in overview[1:3]] == [["1,000/s", "epoll"], ["uring", "1,000"]]
    assert "All steps" not in printed(synthetic_result(steps=(OPEN,)))


@pytest.mark.parametrize(
    ("interval", "text"),
    [((0.5, 0.01, 100.0), "0.50× (0.01–100.00)"), ((1.0, 0.0001, 4000), "1.00× (<0.01–>100)")],
)
def test_an_interval_that_says_nothing_has_no_digits(interval: tuple[float, float, float], text: str) -> None:
    assert ratio_text(comparison(*interval)) == text


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_of_all_steps_fits_a_terminal(width: int) -> None:
    overview = printed(synthetic_result(effect=0.8), width).partition("All steps")[2].partition("Verdict")[0]
    for part in ("1,000", "as fast as", "740", "0.79×", "31.7", "CPU/request"):
        assert part in overview


def test_rows_that_nobody_has_are_left_out() -> None:
    (cells,) = cells_of(synthetic_result(steps=(CLOSED,), system_calls=False))
    titles = [row.title for row in rows_of(cells, Conclusion())]
    assert "system calls/request" not in titles
    assert "e2e p99" not in titles
    assert "of the offered rate" not in titles


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234567.8, "1,234,568"),
        (99.96, "100.0"),
        (12.345, "12.3"),
        (1.234, "1.23"),
        (0.1234, "0.123"),
        (0, "0"),
    ],
)
def test_figures_have_the_digits_that_count(value: float, text: str) -> None:
    assert figure_text(value) == text
