"""The campaign of metadata by its size: its directories are what a controller reads, its table and plot say what it
measured.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from blumfeld.metadata.image.checkpoint import decode_checkpoint
from blumfeld.metadata.image.records import image_of
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld_bench.result import Machine
from campaigns.metadata_scale.__main__ import main, serving_table, table_of
from campaigns.metadata_scale.directories import (
    PARTITIONS_PER_TOPIC,
    make_directory,
    records_of,
    write_metadata,
)
from campaigns.metadata_scale.page import with_figures
from campaigns.metadata_scale.plot import svg_of_points
from campaigns.metadata_scale.points import Point
from campaigns.metadata_scale.serving import FailOver, Serving, contender_on, phases_of

PARTITIONS = PARTITIONS_PER_TOPIC + 5
POINTS = [
    Point("blumfeld", "log", 1_000, 100, 0.5, (0.1, 0.3, 0.2), 1.5, 1 << 20, 2 << 20),
    Point("blumfeld", "log", 10_000, 1_000, 0.7, (0.2,), 2.5, 1 << 20, 2 << 20),
    Point("kafka", "log", 1_000, 100, 5.0, (2.0,), 7.0, 1 << 28, 1 << 28),
]


def test_a_snapshot_has_each_partition(tmp_path: Path) -> None:
    size = write_metadata(tmp_path / "metadata", PARTITIONS, "snapshot", 1)
    (path,) = (tmp_path / "metadata").glob("*.checkpoint")
    assert path.stat().st_size == size
    records = decode_checkpoint(path.read_bytes(), path.name).records
    assert int(path.name.split("-")[0]) == len(records), "the log goes on behind them"
    image = image_of("cluster", records, len(records) - 1, 1)
    assert [len(topic.partitions) for topic in image.topics.values()] == [PARTITIONS_PER_TOPIC, 5]
    assert all(broker.fenced for broker in image.brokers.values())


def test_a_log_has_the_same_records(tmp_path: Path) -> None:
    size = write_metadata(tmp_path / "metadata", PARTITIONS, "log", 1)
    data = memoryview((tmp_path / "metadata" / f"{0:020}.log").read_bytes())
    assert len(data) == size
    end = 0
    while data:
        batch = RecordBatch(data)
        batch.verify_crc()
        assert batch.base_offset == end
        end, data = batch.next_offset, data[batch.size_bytes :]
    assert end == sum(1 for _ in records_of(PARTITIONS))


def test_a_directory_is_formatted_and_has_the_metadata(tmp_path: Path) -> None:
    write_metadata(tmp_path / "metadata", 5, "log", 1)
    make_directory(tmp_path / "data", 2, tmp_path / "metadata")
    files = {
        str(path.relative_to(tmp_path / "data")) for path in (tmp_path / "data").rglob("*") if path.is_file()
    }
    log = "__cluster_metadata-0"
    assert files == {
        "meta.properties",
        "bootstrap.checkpoint",
        f"{log}/{0:020}.log",
        f"{log}/leader-epoch-checkpoint",
        f"{log}/partition.metadata",
    }


def test_the_table_has_the_median_and_the_longest_of_the_rounds() -> None:
    text = Console(width=150)
    with text.capture() as captured:
        text.print(table_of(POINTS))
    row = next(line for line in captured.get().splitlines() if "1,000" in line and "blumfeld" in line)
    assert [cell.strip() for cell in row.split("│")[4:9]] == ["0.0", "0.50", "0.20", "0.30", "1.50"]


def test_the_plot_describes_each_point() -> None:
    svg = svg_of_points(POINTS, "log")
    assert "blumfeld with 10,000 partitions: fail-over 0.20 s, catch-up 2.50 s" in svg
    assert "kafka with 1,000 partitions" in svg


def test_an_unknown_form_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--forms", "tape"])
    assert "allowed: snapshot, log" in capsys.readouterr().err


def test_a_phase_ends_with_the_first_line_of_any_node() -> None:
    at = datetime.fromisoformat("2026-11-28T19:27:05.000+00:00").timestamp()
    lines = [
        "2026-11-28T19:27:06.500Z [info     ] elected as controller          [controller] epoch=3",
        "2026-11-28T19:27:05.250Z [info     ] elected as controller          [controller] epoch=2",
        "2026-11-28T19:27:05.750Z [info     ] controller at work             [controller] epoch=2 load_ms=154",
        "a line without a time: controller at work",
    ]
    assert phases_of(lines, at) == {"elected": 0.25, "at work": 0.75}


def test_the_table_of_kills_takes_the_detection_out() -> None:
    kills = [
        FailOver("controller", 2.0, 2.25, served, 10, {"elected": 2.1}, "", 0.5, 0.25)
        for served in (2.5, 3.5)
    ]
    text = Console(width=200)
    with text.capture() as captured:
        text.print(serving_table([Serving("blumfeld", "zookeeper", 30, 2_000, 1.0, tuple(kills))]))
    row = next(line for line in captured.get().splitlines() if "controller" in line)
    cells = [cell.strip() for cell in row.split("│")[3:11]]
    assert cells == ["controller", "2.00", "2.25", "3.00", "1.00", "1.50", "0.50", "0.25"]


@pytest.mark.parametrize("peer", [None, Path("kafka-peer")])
def test_only_nodes_on_a_zookeeper_are_told_of_one(peer: Path | None) -> None:
    for consensus, told in (("zookeeper", True), ("kraft", False)):
        commands = contender_on(consensus, peer, "127.0.0.1:1/scale", 2_000).commands
        (words,) = {" ".join(words) for roles, words in commands.items() if len(roles) == 2}
        assert ("127.0.0.1:1/scale" in words) is told
        assert "2000" in words


MACHINE = Machine(
    cpu="a CPU",
    cores=2,
    memory_bytes=24 << 30,
    kernel="Linux 6",
    python="3.11.7",
    virtual=True,
    load_before=0.5,
)
AT_WORK = "controller at work  epoch=2 load_ms=1500 take_over_ms=250 znodes=36"
SERVED = [
    Serving(
        contender,
        consensus,
        1_000,
        6_000,
        1.0,
        (
            FailOver("controller", 5.0, 7.25, 8.0, 10, {"elected": 5.1, "at work": 7.0}, at_work, 0.5, 0.25),
            FailOver("broker", 5.0, 5.5, 6.0, 10, {}, "", 0.5, 0.25),
        ),
    )
    for contender, consensus, at_work in (("blumfeld", "zookeeper", AT_WORK), ("kafka", "kraft", ""))
]


def test_the_figures_of_a_page_are_replaced_and_its_words_stay() -> None:
    page = "# Title\n\nwords\n\n<!-- figures -->\nold\n<!-- end of figures -->\n\nmore words\n"
    once = with_figures(page, SERVED, MACHINE)
    assert with_figures(once, SERVED, MACHINE) == once
    assert once.startswith("# Title\n\nwords\n")
    assert once.endswith("\n\nmore words\n")
    assert "old" not in once
    assert "| 1,000 | Blumfeld, ZooKeeper | controller | 5.00 | 7.25 | 8.00 | 3.00 |" in once
    assert "| 1,000 | Kafka 4.3.1, KRaft | broker | 5.00 | 5.50 | 6.00 | 1.00 |" in once
    assert "| 1,000 | 0.10 | 1.50 | 0.25 | 0.25 | 1.00 | 50% |" in once
    with pytest.raises(ValueError, match="<!-- figures -->"):
        with_figures("no marks", SERVED, MACHINE)


def test_figures_are_drawn_and_put_into_a_page_from_files(tmp_path: Path) -> None:
    page, files = tmp_path / "README.md", [tmp_path / "one.json", tmp_path / "two.json"]
    page.write_text("<!-- figures -->\n<!-- end of figures -->\n")
    for path, point in zip(files, SERVED, strict=True):
        path.write_bytes(msgspec.json.encode([point]))
    plot = tmp_path / "curve.svg"
    assert main(["--of", *map(str, files), "--page", str(page), "--plot", str(plot)]) == 0
    assert page.read_text().count("| 1,000 |") == 5
    assert "Kafka 4.3.1, KRaft with 1,000 partitions: 1.00 s" in (tmp_path / "curve-broker.svg").read_text()
    assert (
        "Blumfeld, ZooKeeper with 1,000 partitions: 3.00 s" in (tmp_path / "curve-controller.svg").read_text()
    )
