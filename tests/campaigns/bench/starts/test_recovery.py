"""The bench of starts on a full directory: what it copies, what it counts, and one small run against this build."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import msgspec
from rich.console import Console

from campaigns.bench.rivals import this_build
from campaigns.bench.starts.recovery import KINDS, Result, run, table
from campaigns.bench.starts.recovery_data import TOPIC, Shape, copy_tree, log_bytes


def test_a_shape_says_where_each_partition_ends() -> None:
    shape = Shape(size_bytes=10_000_000_000, partitions=1000, batch_bytes=16_384)
    assert (shape.batches, shape.end_offset) == (610, 9760)
    assert Shape(1, 2, 16_384).batches == 1


def test_a_copy_shares_the_logs_of_the_topic_and_nothing_else(tmp_path: Path) -> None:
    """A start changes indexes, checkpoints and the metadata log: those are a round's own."""
    source = tmp_path / "source"
    for name in (f"{TOPIC}-0", "__cluster_metadata-0"):
        (source / name).mkdir(parents=True)
        (source / name / "0.log").write_bytes(b"log")
        (source / name / "0.index").write_bytes(b"index")
    copy_tree(source, tmp_path / "copy")
    shared = {
        str(path.relative_to(tmp_path / "copy")): path.stat().st_nlink == 2
        for path in (tmp_path / "copy").rglob("*.*")
        if path.is_file()
    }
    assert {name for name, links in shared.items() if links} == {f"{TOPIC}-0/0.log"}
    assert len(shared) == 4
    assert log_bytes(tmp_path / "copy") == {f"{TOPIC}-0/0.log": 3}


def test_a_small_run_measures_both_starts(tmp_path: Path) -> None:
    """Every partition must be back with all that was written, or there is no result."""
    shape = Shape(size_bytes=400_000, partitions=4, batch_bytes=16_384, idempotent=True)
    result = run([this_build()], tmp_path, shape, 1, cold=True, told=Console(quiet=True))
    assert [start.kind for start in result.starts] == list(KINDS)
    assert all(start.ready_s >= start.answers_s > 0 for start in result.starts)
    assert all(start.rss_peak_bytes > 10_000_000 for start in result.starts)
    assert msgspec.json.decode(msgspec.json.encode(result), type=Result) == result
    shown = Console(width=200, record=True, file=StringIO())
    shown.print(table(result))
    assert "batches of idempotent producers, page cache" in shown.export_text()
