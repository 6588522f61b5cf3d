from __future__ import annotations

import html
import itertools
import re
from pathlib import Path

import msgspec
import pytest

from blumfeld_bench.report import plot as plot_module
from blumfeld_bench.report.page import overview_plots, page_of, step_plots, write_report
from blumfeld_bench.report.plot import PAGE_VARIABLES, svg_of
from blumfeld_bench.report.plots import median_series, ratio_ticks, short
from blumfeld_bench.result import Point, Result
from blumfeld_bench.statistics.cells import cells_of
from blumfeld_bench.statistics.verdict import conclude
from tests.bench.browser import CHROMIUM, look
from tests.bench.synthetic import CLOSED, OPEN, synthetic_result
from tests.everyday import first

pytestmark = pytest.mark.timeout(400)
"""Drawings, and a browser: tens of seconds on a busy machine."""
LABELS = ("epoll", "uring", "kafka 4.3.1 <with & a label> --set that.is=rather.long")


@pytest.fixture(scope="module")
def result() -> Result:
    return synthetic_result(labels=LABELS, effect=0.8, rounds=3, steps=(OPEN, CLOSED), ceiling=1.1)


@pytest.fixture(scope="module")
def folder(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("report") / "made"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plot_module, "PNG_DPI", 50)  # a quarter of the time
        write_report(result, into)
    return into


def test_the_page_and_a_png_of_each_plot_are_written(result: Result, folder: Path) -> None:
    page = (folder / "index.html").read_text()
    pngs = sorted(folder.glob("*.png"))
    assert page.count("<figure>") == len(pngs) > 10
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pngs)


def test_the_page_asks_nothing_of_a_network(folder: Path) -> None:
    page = (folder / "index.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', page)
    assert "<script" not in page
    assert "@import" not in page


def test_what_was_looked_for_and_not_found_is_not_hidden() -> None:
    """Two steps of equal variants: each sentence stands open; "too noisy to tell" is not "no difference"."""
    result = synthetic_result(rounds=4, steps=(OPEN, CLOSED))
    steps = cells_of(result)
    findings = conclude(result, steps)
    page = page_of(result, steps, findings, [], [[], []])
    summary = page[page.index("What came out") :]
    assert findings.others
    assert all(html.escape(verdict.sentence) in summary for verdict in findings.others)
    assert "<details>" not in summary.partition('id="setting"')[0]


def test_a_cell_in_words_holds_the_whole_of_them() -> None:
    result = synthetic_result(rounds=3, steps=(OPEN,))
    long = "acks=1: page cache: gone with the power; acks=all: the same"
    variants = tuple(msgspec.structs.replace(variant, durability=long) for variant in result.variants)
    result = msgspec.structs.replace(result, variants=variants)
    steps = cells_of(result)
    page = page_of(result, steps, conclude(result, steps), [], [[]])
    assert '<td class="words" title="page cache: gone with the power">page cache</td>' in page


def test_what_a_user_typed_stays_text(folder: Path) -> None:
    page = (folder / "index.html").read_text()
    assert "<with & a" not in page
    assert "&lt;with &amp; a label&gt;" in page


def test_each_plot_says_in_words_what_it_shows(folder: Path) -> None:
    page = (folder / "index.html").read_text()
    figures = re.findall(r"<figure>.*?</figure>", page, re.DOTALL)
    for figure in figures:
        (said,) = re.findall(r"<desc id=\"[^\"]+\">(.*?)</desc>", figure)
        assert 'role="img"' in figure
        assert figure.count("<title ") == 1
        assert "tables below" in said or (OPEN.name in said or CLOSED.name in said)
        assert "tables below" in said or re.search(r"(epoll|uring)[^;]*\d", said)
    assert len(figures) == len(list(folder.glob("*.png")))


def test_the_same_result_draws_the_same_bytes(result: Result) -> None:
    cells, *_ = steps = cells_of(result)
    findings = conclude(result, steps)
    first, again = ([svg_of(plot) for plot in step_plots(cells, 0, findings)[:2]] for _ in range(2))
    assert first == again


def test_a_plot_follows_the_pages_colours(result: Result) -> None:
    """No colour as drawn is left, or it would be lost on dark paper."""
    for plot in overview_plots(cells_of(result)):
        svg = svg_of(plot)
        assert "var(--v0)" in svg
        assert not [colour for colour in PAGE_VARIABLES if colour in svg]
        assert "#000" not in svg


def test_a_median_of_rounds_in_time_needs_half_of_the_rounds() -> None:
    def series(*points: tuple[float, float]) -> list[Point]:
        return [
            Point(at_s=at, records_per_s=value, bytes_per_s=0, p50_us=0, p99_us=0, max_us=0)
            for at, value in points
        ]

    rounds = [
        series((1.0, 1), (2.01, 10)),
        series((0.99, 2), (2.0, 20), (3.0, 99)),
        series((1.02, 9), (1.99, 30)),
    ]
    at, middle = median_series(rounds, lambda point: point.records_per_s)
    assert at == pytest.approx([1.0, 2.0], abs=0.05)
    assert middle == [2, 20]


@pytest.mark.parametrize(("value", "text"), [(1_500_000, "1.5M"), (40_000, "40k"), (12, "12"), (0.5, "0.5")])
def test_counts_on_an_axis_are_short(value: float, text: str) -> None:
    assert short(value) == text


@pytest.mark.parametrize(("low", "high"), [(0.97, 1.03), (0.8, 1.3), (0.3, 3), (0.01, 100), (0.9, 40)])
def test_ticks_of_ratios_have_room_and_hold_1(low: float, high: float) -> None:
    ticks = ratio_ticks(low, high)
    assert 1.0 in ticks
    assert ticks == sorted(ticks)
    assert low <= ticks[0]
    assert ticks[-1] <= high
    steps = [after / before for before, after in itertools.pairwise(ticks)]
    assert all(step >= (high / low) ** (1 / 8) for step in steps)


def test_a_result_without_series_calls_or_ceilings_still_makes_a_page(tmp_path: Path) -> None:
    bare = synthetic_result(labels=("alone",), rounds=1, steps=(OPEN,), system_calls=False)
    measured = tuple(msgspec.structs.replace(round_result, series=()) for round_result in bare.measured)
    written = write_report(msgspec.structs.replace(bare, measured=measured, ceilings=()), tmp_path)
    page = written[0].read_text()
    assert "measured alone" in page
    assert "ceiling was not measured" in page
    assert {path.stem for path in written[1:]} == {
        "step0-ack",
        "step0-end-to-end",
        "step0-cpu-request",
        "step0-cpu-mb",
    }


def test_a_variant_that_measured_nothing_leaves_the_others_drawn(result: Result) -> None:
    kept = tuple(
        round_result
        for round_result in result.measured
        if round_result.variant != "uring" and round_result.step == OPEN.name
    )
    gone = {"uring": "this kernel forbids it"}
    lacking = msgspec.structs.replace(result, measured=kept, skipped=gone)
    steps = cells_of(lacking)
    findings = conclude(lacking, steps)
    plots = step_plots(steps[0], 0, findings)
    page = page_of(lacking, steps, findings, [], [plots[:3], []])
    assert "uring could not run this workload: this kernel forbids it" in page
    assert len(plots) == 8


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
@pytest.mark.parametrize("width", first(1, [400, 1280]))
def test_a_real_browser_shows_the_page_whole(folder: Path, tmp_path: Path, width: int) -> None:
    """No complaint, nothing loaded, every drawing has a size, and a phone needn't push the page sideways."""
    seen = look(folder / "index.html", tmp_path, width)
    assert seen["complaints"] == []
    assert seen["asked"] == []
    assert len(seen["boxes"]) == len(list(folder.glob("*.png")))
    assert all(wide > 250 and high > 60 for _, wide, high in seen["boxes"]), seen["boxes"]
    assert seen["window_width"] == width
    assert seen["page_width"] <= width
    assert len(seen["ids"]) == len(set(seen["ids"]))
    for text in ("What came out", "Keep in mind", "as fast as it goes", LABELS[2], "Machine, variants"):
        assert text in seen["text"]


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
def test_the_probe_sees_what_is_wrong_with_a_page(tmp_path: Path) -> None:
    """A drawing without a size, an error, a page that is too wide: or the test above could not fail."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!DOCTYPE html><body><figure><svg width='0' height='0'><title>gone</title></svg></figure>"
        "<div style='width: 3000px'>wide</div><script>console.error('broken')</script></body>"
    )
    seen = look(bad, tmp_path, 400)
    assert [box[:2] for box in seen["boxes"]] == [["gone", 0]]
    assert seen["page_width"] >= 3000
    assert any("broken" in line for line in seen["complaints"])
