"""Pictures: the numbers behind them, and that they are drawn."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.image
import msgspec
import pyarrow as pa
import pytest

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.reading.plots import depth, gaps, spread, throughput
from blumfeld_sink_spark.reading.plots.windows import window_of
from tests.plugins.sink_spark.archive_tools import MIDNIGHT_S, archive, captured, write_capture
from tests.plugins.sink_spark.command import run, said
from tests.plugins.sink_spark.results import changed

pytestmark = pytest.mark.archive

NS = 10**9


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of forty seconds over midnight. It lacks a depth change and later two trades; some messages lag."""
    folder = tmp_path_factory.mktemp("plots")
    rows = captured([write_capture(folder / "feed.gz")], "ticks", recv_header="ns")
    missing = {3 + 4 * 5, 4 + 4 * 30, 4 + 4 * 31}
    rows = rows.filter(pa.array([nth not in missing for nth in range(rows.num_rows)]))
    rows = changed(rows, offset=list(range(rows.num_rows))).combine_chunks()
    made = archive(folder / "archive", rows, decoders=("binance-usdm",), recv_header="ns", batch_rows=40)
    progress = folder / "archive" / "_progress" / "archive.jsonl"
    progress.parent.mkdir()
    lines = [
        json.dumps({"at_ms": record.committed_ms, "lag": {"ticks": {"0": 100 - nth, "1": 5}}, "batch": nth})
        for nth, record in enumerate(made)
    ]
    progress.write_text("\n".join([*lines, '{"at_ms": 17']))
    return folder / "archive"


@pytest.fixture
def committed_archive(root: Path) -> Committed:
    return Committed.open(str(root))


def test_lag_is_summed_by_topic_and_a_line_cut_off_is_passed_over(root: Path) -> None:
    assert [count for _, count in throughput.lags(root)["ticks"]] == [105, 104, 103, 102]


def test_rates_are_of_the_batches(committed_archive: Committed) -> None:
    made = throughput.batches(committed_archive.records)
    assert made.messages.tolist() == [40, 40, 40, 38]
    assert (made.seconds == 1).all()
    assert (made.bytes_in > made.bytes_out * 0).all()


def test_many_batches_are_put_together_and_none_is_lost(committed_archive: Committed) -> None:
    many = [
        msgspec.structs.replace(
            committed_archive.records[0], batch=nth, committed_ms=nth * 1000, messages=nth + 1
        )
        for nth in range(5000)
    ]
    made = throughput.batches(many)
    assert len(made.messages) <= throughput.BATCHES_MAX
    assert made.messages.sum() == sum(range(1, 5001))
    assert made.end_ms[-1] == 4_999_000


def test_the_book_at_a_moment_is_the_changes_up_to_it(committed_archive: Committed) -> None:
    window = window_of(committed_archive, "book_deltas", "BTCUSDT", None, None)
    shown = list(depth.columns(committed_archive, window, bins=8))
    assert [column.ts_ns for column in shown] == sorted(column.ts_ns for column in shown)
    assert all(column.bid < column.ask for column in shown)
    last = shown[-1]
    sizes = dict(
        zip(zip(last.side.tolist(), last.price.tolist(), strict=True), last.size.tolist(), strict=True)
    )
    assert sizes[1, 59996.1] == 40.125  # of second 39
    assert (1, 59993.1) not in sizes  # taken away in second 39


def test_a_window_inside_is_built_on_what_came_before(committed_archive: Committed) -> None:
    window = window_of(committed_archive, "book_deltas", "BTCUSDT", MIDNIGHT_S * NS, (MIDNIGHT_S + 4) * NS)
    shown = list(depth.columns(committed_archive, window, bins=4))
    assert len(shown) == 4
    assert [column.ts_ns for column in shown][-1] == window.end_ns == (MIDNIGHT_S + 4) * NS
    assert len(shown[0].price) > 25  # the snapshot's levels are there, which came 20 s before


def test_the_calendar_counts_by_hour_and_tells_no_data_from_no_findings(committed_archive: Committed) -> None:
    made = gaps.calendar(committed_archive, "", None, None)
    assert made.dates == ["2024-08-08", "2024-08-09"]
    assert made.hours[0].tolist() == [gaps.NONE] * 23 + [1]
    assert made.hours[1].tolist() == [1] + [gaps.NONE] * 23
    assert made.kinds == {"gap": [1, 1]}
    only = gaps.calendar(committed_archive, "", MIDNIGHT_S * NS, None)
    assert only.hours.tolist()[-1] == [1] + [gaps.NONE] * 23


def test_all_pictures_are_drawn_and_not_blank(root: Path, tmp_path: Path) -> None:
    drawn = said("plot", root, "all", "--out", str(tmp_path))
    names = ["throughput.png", "spread-BTCUSDT.png", "depth-BTCUSDT.png", "gaps.png"]
    assert [Path(line).name for line in drawn.splitlines()] == names
    for name in names:
        picture = matplotlib.image.imread(tmp_path / name)
        assert picture.shape[1] == 1540
        assert picture[:, :, :3].std() > 0.03, name


def test_one_batch_has_bars_and_a_calendar_without_findings_the_whole_width(tmp_path: Path) -> None:
    """The picture has no meaningless block over time and no empty third."""
    rows = captured([write_capture(tmp_path / "feed.gz")], "ticks")
    archive(tmp_path / "archive", rows, decoders=("binance-usdm",))
    committed = Committed.open(str(tmp_path / "archive"))
    picture = matplotlib.image.imread(throughput.draw(committed, tmp_path, svg=False))
    assert picture.shape[0] < picture.shape[1] / 3  # a line of title, two bars
    picture = matplotlib.image.imread(gaps.draw(committed, tmp_path, svg=False))
    right = picture[:, -picture.shape[1] // 5 :, :3]
    assert (right.min(axis=2) < 0.98).mean() > 0.4  # hours, not an empty panel


def test_the_same_archive_gives_the_same_svg(committed_archive: Committed, tmp_path: Path) -> None:
    first_plot = spread.draw(committed_archive, "BTCUSDT", tmp_path / "a", svg=True)
    second_plot = spread.draw(committed_archive, "BTCUSDT", tmp_path / "b", svg=True)
    assert first_plot.read_bytes() == second_plot.read_bytes()
    assert b"<svg" in first_plot.read_bytes()[:1000]


def test_what_cannot_be_drawn_says_why(committed_archive: Committed, root: Path, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="bbo has no rows of ETHUSDT; it has BTCUSDT"):
        spread.draw(committed_archive, "ETHUSDT", tmp_path, svg=False)
    left_out = run("plot", root, "all", "--out", str(tmp_path), "--from", "2030-01-01")
    assert left_out.exit_code == 0
    assert left_out.stderr.count("left out") == 3  # throughput has no event time


def test_a_book_without_a_snapshot_is_refused(tmp_path: Path) -> None:
    feed = write_capture(tmp_path / "feed.gz", seconds=5, done=100)
    archive(tmp_path / "a", captured([feed], "ticks"), decoders=("binance-usdm",))
    with pytest.raises(ArchiveError, match="no snapshot of BTCUSDT"):
        depth.draw(Committed.open(str(tmp_path / "a")), "BTCUSDT", tmp_path, svg=False)
