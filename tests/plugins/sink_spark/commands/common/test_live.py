"""The lines that the archiving commands show, and the settings that their options become; no Spark."""

from __future__ import annotations

import msgspec
import pytest

from blumfeld_sink_spark.commands.archiving.backfill import of_its_own
from blumfeld_sink_spark.commands.common import live, options
from blumfeld_sink_spark.commands.common.times import position
from blumfeld_sink_spark.errors import SettingsError
from blumfeld_sink_spark.records import CommitRecord, FileEntry, OffsetRange
from blumfeld_sink_spark.settings import ArchiveSettings, load
from blumfeld_sink_spark.spark.run.progress import (
    Back,
    BatchDone,
    Event,
    Notice,
    ProgressFile,
    Step,
    Totals,
    Waiting,
    batch_done,
)

RECORD = CommitRecord(
    query="q-1",
    batch=3,
    ranges=(OffsetRange("t", 0, 0, 1000),),
    files=(FileEntry(path="a", table="trades", date="2024-08-08", rows=900, bytes=20_000, sha256=""),),
    messages=1000,
    bytes_in=200_000,
    quarantined=1,
    gaps=2,
    decoders={},
    state={},
    committed_ms=5,
)
SPARK = {
    "durationMs": {"triggerExecution": 500},
    "sources": [{"endOffset": {"t": {"0": 1000}}, "latestOffset": '{"t": {"0": 1500}}'}],
}


def _done() -> BatchDone:
    return batch_done(RECORD, SPARK)


def test_a_batch_is_told_in_a_line_with_rate_ratio_lag_and_findings() -> None:
    assert live.line_of(_done()) == (
        "batch 3: 1,000 messages in 0.5 s (2,000/s, 0.4 MB/s), 1 file, ratio 10.0, lag 500, "
        "2 gaps, 1 in quarantine"
    )
    assert live.line_of(Notice(text="mind")) == "mind"
    waiting = Waiting(text="b:9092 doesn't answer", away_s=65.2, next_s=8.0)
    assert live.line_of(waiting) == "waiting, away for 65 s, asking again in 8 s: b:9092 doesn't answer"
    waiting = Waiting(text="b:9092 doesn't answer", away_s=0, next_s=0)
    assert live.line_of(waiting) == "waiting: b:9092 doesn't answer"
    assert live.line_of(Step(text="starting Spark")) == "starting Spark…"


@pytest.mark.parametrize("view", [live._LineView, live._JsonView, live._LiveView])
def test_an_outage_is_told_once_and_so_is_its_end(
    view: type[live._JsonView], capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver tells of it at each try, thirty seconds apart: a day of that would fill the log."""
    away = [Waiting(text="gone", away_s=second, next_s=1) for second in range(5)]
    outages: list[Event] = [*away, Back(away_s=5), *away, Back(away_s=5), *away]
    with view() as shown:
        for event in outages:
            shown.show(event)
    output = capsys.readouterr()
    text = output.out + output.err
    assert text.count("gone") - 3 in ((0, 1) if view is live._LiveView else (0,))  # what it draws last stays
    assert text.count("works again") == 2 or text.count('"back"') == 2


def test_one_batch_shows_one_rate() -> None:
    """Spark's start isn't the batch's, and a batch lasts as long as its commit record says, as in ``status``."""
    done = batch_done(msgspec.structs.replace(RECORD, seconds=0.4), SPARK)
    view = live._LiveView()
    with view:
        view.show(done)
        columns = [list(column.cells) for column in view._table(done).columns]
    assert columns[1][:3] == columns[2][:3] == ["1,000", "2,500", "0.5"]
    assert "in 0.4 s (2,500/s, 0.5 MB/s)" in live.line_of(done)


def test_a_batch_that_an_earlier_process_planned_counts_from_this_ones_trigger() -> None:
    assert batch_done(msgspec.structs.replace(RECORD, seconds=7200.0), SPARK).seconds == 0.5


def test_partitions_that_are_furthest_behind_come_first() -> None:
    done = batch_done(RECORD, {"sources": [{"latestOffset": {"t": {"0": 5, "1": 9, "2": 9}}}]})
    assert live.lags(done) == [("t-1", 9), ("t-2", 9), ("t-0", 5)]


def test_totals_count_batches_in() -> None:
    totals = Totals()
    totals.add(_done())
    totals.add(_done())
    assert (totals.batches, totals.messages, totals.rows, totals.files) == (2, 2000, {"trades": 1800}, 2)
    assert "2,000 messages in 2 batches of 1.0 s, in all 0.0 s" in live.summary(totals)
    assert "10.0x smaller" in live.summary(totals)


def test_a_line_a_batch_is_kept_and_a_full_disk_is_no_error(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("root")
    file = ProgressFile(ArchiveSettings(topics=("t",), root=str(root), name="n"))
    file.add(_done())
    file.add(_done())
    assert (root / "_progress" / "n.jsonl").read_bytes().count(b"\n") == 2
    (root / "blocked").touch()
    ProgressFile(ArchiveSettings(topics=("t",), root=str(root / "blocked"))).add(_done())


def test_options_become_settings() -> None:
    sets = ["skew_ms=5", "compression=zstd:9", "spark.executor.memory=2g", "kafka.security.protocol=SSL"]
    archive_settings = load(
        None, options.overrides({"topics": "a, b", "root": "r", "name": None, "as_json": True, "sets": sets})
    )
    assert (
        archive_settings.topics,
        archive_settings.root,
        archive_settings.name,
        archive_settings.skew_ms,
    ) == (("a", "b"), "r", "archive", 5)
    assert archive_settings.compression == "zstd:9"
    assert (archive_settings.spark, archive_settings.kafka) == (
        {"spark.executor.memory": "2g"},
        {"security.protocol": "SSL"},
    )
    with pytest.raises(SettingsError, match="KEY=VALUE"):
        options.overrides({"sets": ["skew_ms"]})


@pytest.mark.parametrize(
    ("text", "position_text"),
    [
        ("2024-08-08", "timestamp:1723075200000"),
        ("2024-08-08T12:00:00Z", "timestamp:1723118400000"),
        ("2024-08-08T12:00+02:00", "timestamp:1723111200000"),
        ("1723161256299", "timestamp:1723161256299"),
        ("latest", "latest"),
        ('{"t": {"0": 1}}', '{"t": {"0": 1}}'),
    ],
)
def test_times_as_a_person_writes_them(text: str, position_text: str) -> None:
    assert position(text, "--from") == position_text


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(SettingsError, match="--to: 'noon'"):
        position("noon", "--to")


def test_a_backfill_has_a_name_of_its_own_that_stays() -> None:
    settings = ArchiveSettings(topics=("t",), starting="timestamp:1", ending="timestamp:2")
    again = of_its_own(settings)
    assert again.name.startswith("archive-backfill-")
    assert of_its_own(settings) == again
    assert (
        of_its_own(ArchiveSettings(topics=("t",), starting="timestamp:1", ending="latest")).name != again.name
    )


def test_what_it_came_to_is_said_when_nothing_is_drawn_over_it_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a terminal the view takes its lines away when it ends."""
    pytest.importorskip("pyspark")
    said: list[str] = []

    class View(live._LineView):
        def __exit__(self, *exc: object) -> None:
            said.append("gone")

        def end(self, totals: Totals) -> None:
            said.append(live.summary(totals))

    monkeypatch.setattr(live, "_LineView", View)
    monkeypatch.setattr("blumfeld_sink_spark.spark.run.driver.archive", lambda *given: Totals())
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    live.run(ArchiveSettings(topics=("t",)), "once", as_json=False)
    assert said == ["gone", live.summary(Totals())]
