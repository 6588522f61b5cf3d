"""The bench of starts on a full directory: what it copies, what it shows, and one small run against this build."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from rich.console import Console

from blumfeld_bench.runs.machine import this_machine
from campaigns.bench.rivals import this_build
from campaigns.bench.starts.recovery import TOPIC, Logs
from campaigns.bench.starts.restarts import CLEAN, KILLED, Result, Start, run, table


def test_a_shape_says_where_each_partition_ends() -> None:
    logs = Logs(size_bytes=10_000_000_000, partitions=1000, batch_bytes=16_384)
    assert (logs.batches, logs.end_offset) == (610, 9760)
    assert Logs(1, 2, 16_384).batches == 1


def test_a_copy_shares_the_logs_of_the_topic_and_nothing_else(tmp_path: Path) -> None:
    """A start changes indexes, checkpoints and the metadata log: those are a round's own."""
    source, logs = tmp_path / "source", Logs(1, 1, 1)
    for name in (f"{TOPIC}-0", "__cluster_metadata-0"):
        (source / name).mkdir(parents=True)
        (source / name / "0.log").write_bytes(b"log")
        (source / name / "0.index").write_bytes(b"index")
    logs.copy(source, tmp_path / "copy")
    shared = {
        str(path.relative_to(tmp_path / "copy")): path.stat().st_nlink == 2
        for path in (tmp_path / "copy").rglob("*.*")
        if path.is_file()
    }
    assert {name for name, links in shared.items() if links} == {f"{TOPIC}-0/0.log"}
    assert len(shared) == 4
    assert logs.unchanged(tmp_path / "copy") == {f"{TOPIC}-0/0.log": 3}


def test_a_small_run_measures_both_starts(tmp_path: Path) -> None:
    """Every partition must be back with all that was written, or there is no result."""
    logs = Logs(size_bytes=400_000, partitions=4, batch_bytes=16_384, idempotent=True)
    result = run([this_build()], tmp_path, lambda: logs, 1, Console(quiet=True), cold=True)
    assert [start.kind for start in result.starts] == [KILLED, CLEAN]
    assert all(start.served_s >= start.answers_s > 0 for start in result.starts)
    assert all(start.rss_peak_bytes > 10_000_000 for start in result.starts)
    assert "batches of idempotent producers" in result.title


def test_the_table_tells_load_from_start() -> None:
    """Medians, and ratios to the last server: of all that it took, and of what came after the first answer."""
    starts = [
        Start(
            server=server,
            kind=KILLED,
            answers_s=answers_s,
            served_s=served_s,
            rss_bytes=50_000_000,
            rss_peak_bytes=60_000_000,
            cpu_s=1.5,
        )
        for server, answers_s, served_s in (("a", 0.5, 2.5), ("b", 4.0, 8.0))
    ]
    shown = Console(width=200, record=True, file=StringIO())
    shown.print(table(Result(machine=this_machine(), title="10 groups", cold=True, starts=starts)))
    text = shown.export_text()
    assert "10 groups, page cache dropped" in text
    ours = next(line for line in text.splitlines() if " a " in line)
    assert [cell.strip() for cell in ours.split("│")][3:8] == ["0.50", "2.50", "0.31×", "2.00", "0.50×"]
