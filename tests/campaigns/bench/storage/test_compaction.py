"""The bench of compaction: what it reads of both cleaners, the same bytes for both, and a round on a real broker."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from campaigns.bench.storage import compaction
from campaigns.bench.storage.compacted_log import MIB, Shape, cleaned_end_offset, log_files, survivors
from campaigns.bench.storage.compaction import (
    BenchError,
    Cleaner,
    Sample,
    measure,
    ours,
    run,
    table,
    written,
)

KAFKA_SAYS = """
	Log cleaner thread 0 cleaned log cleaned-0 (dirty section = [0, 386853])
	1,043.9 MB of log processed in 1,234.5 seconds (49.1 MB/sec).
	Indexed 43.9 MB in 0.4 seconds (121.5 Mb/sec, 40.4% of total time)
	Cleaned 43.9 MB in 0.5 seconds (82.4 Mb/sec, 59.6% of total time)
"""
WE_SAY = "[info ] log cleaned  [broker] bytes_after=9 bytes_before=45 log=cleaned-0 records_after=7 seconds=9.779\n"
SHAPE = Shape("small", 40_000, 8_000, 100, segment_bytes=MIB)


def sample(seconds: float, digest: str = "abcdef0123") -> Sample:
    return Sample(100_000_000, seconds, 2 * seconds, 40_000_000, 90_000_000, 123, digest)


def test_the_time_is_what_each_cleaner_says_of_its_whole_round() -> None:
    assert compaction.kafka(Path("peer")).seconds("before" + KAFKA_SAYS + "after") == 1234.5
    assert ours().seconds("ready\n" + WE_SAY) == 9.779
    assert ours().seconds("ready") is None


def test_the_table_says_rates_and_what_they_are_of_the_last_ones() -> None:
    samples = {"small": {"blumfeld": [sample(2), sample(4), sample(3)], "kafka": [sample(1)] * 3}}
    out = io.StringIO()
    Console(width=200, file=out).print(table(samples, 3))
    ours_row, kafka_row = [line for line in out.getvalue().splitlines() if "123" in line]
    assert "0.33×" in ours_row
    assert "33" in ours_row
    assert "1.00×" in kafka_row
    assert "123 (abcdef01)" in ours_row


def test_cleaners_that_keep_different_records_end_the_bench(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    digests = iter(["one", "two"])

    def made(_cleaner: Cleaner, _data: Path, work: Path) -> Sample:
        work.mkdir()
        return sample(1, next(digests))

    monkeypatch.setattr(compaction, "written", lambda *_: tmp_path)
    monkeypatch.setattr(compaction, "log_files", lambda _: [tmp_path, tmp_path])
    monkeypatch.setattr(compaction, "measure", made)
    cleaners = [Cleaner(name, [], "data", lambda _: None) for name in ("a", "b")]
    with pytest.raises(BenchError, match="different records are left"):
        run(SHAPE, cleaners, 1)


def test_a_log_of_one_segment_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cleaner takes the active one: the bench would wait for nothing."""
    monkeypatch.setattr(compaction, "written", lambda *_: tmp_path)
    with pytest.raises(BenchError, match="active segment"):
        run(SHAPE, [], 1)


@pytest.mark.slow
def test_a_round_leaves_the_newest_record_of_each_key(tmp_path: Path) -> None:
    data = written(SHAPE, tmp_path / "written")
    assert cleaned_end_offset(data) == 0
    before, digest = survivors(data)
    assert before == SHAPE.records
    outcome = measure(ours(), data, tmp_path / "round")
    assert outcome.log_bytes == sum(path.stat().st_size for path in log_files(data)[:-1])
    assert SHAPE.keys * 0.9 < outcome.records < before
    assert outcome.peak_bytes > outcome.rest_bytes > 0
    assert outcome.seconds > 0
    assert survivors(data) == (before, digest), "the original stays"
