"""The table ``raw`` is sent back into a topic and archived again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from blumfeld_sink_spark.errors import ArchiveError, SettingsError
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.reading.producing.pace import Pace
from blumfeld_sink_spark.reading.producing.raw_rows import RawTopic
from blumfeld_sink_spark.reading.producing.replay import ReplayPlan, replay
from blumfeld_sink_spark.reading.producing.topic_writer import Topic
from tests.plugins.sink_spark.archive_tools import MIDNIGHT_S, archive, captured, rows_of, write_capture
from tests.plugins.sink_spark.command import refused, rows_said, said
from tests.plugins.sink_spark.results import changed
from tests.plugins.sink_spark.spark_tools import read_topic

pytestmark = pytest.mark.archive

NS = 10**9


@pytest.fixture
def rows(tmp_path: Path) -> pa.Table:
    """Returns raw rows of two partitions over midnight, with headers."""
    first_capture = captured([write_capture(tmp_path / "one.gz")], "ticks", recv_header="ns")
    second_capture = captured(
        [write_capture(tmp_path / "two.gz", seconds=25, symbol="ETHUSDT")], "ticks", recv_header="ns"
    )
    return pa.concat_tables([first_capture, changed(second_capture, partition=[1] * second_capture.num_rows)])


def raw_hashes(root: Path) -> dict[str, str]:
    return {entry.path: entry.sha256 for entry in Committed.open(str(root)).files("raw")}


def archived(root: Path, rows: pa.Table, batch_rows: int = 30) -> RawTopic:
    archive(root, rows, decoders=("raw",), headers=True, batch_rows=batch_rows)
    return RawTopic.find(Committed.open(str(root)))


def test_records_come_back_by_offset_though_midnight_splits_their_files(
    tmp_path: Path, rows: pa.Table
) -> None:
    replayed_records = list(archived(tmp_path / "archive", rows).records())
    assert [(record.partition, record.offset) for record in replayed_records] == [
        (0, n) for n in range(161)
    ] + [(1, n) for n in range(101)]
    assert [record.value for record in replayed_records] == rows["value"].to_pylist()
    assert [record.key for record in replayed_records] == rows["key"].to_pylist()
    assert [record.timestamp_ms * 1000 for record in replayed_records] == rows["timestamp"].cast(
        pa.int64()
    ).to_pylist()
    headers = [[(pair["key"], pair["value"]) for pair in pairs] for pairs in rows["headers"].to_pylist()]
    assert [record.headers for record in replayed_records] == headers


def test_records_of_a_range_go_by_their_offsets_though_their_stamps_jump_over_midnight(
    tmp_path: Path,
) -> None:
    plain = captured([write_capture(tmp_path / "feed.gz", seconds=5)], "ticks")
    rows = changed(plain, timestamp=[(MIDNIGHT_S + (-1) ** nth * 5) * 10**6 for nth in range(plain.num_rows)])
    source = archived(tmp_path / "archive", rows, batch_rows=8)
    assert len(Committed.open(str(tmp_path / "archive")).files("raw")) == 2 * 3
    assert [record.offset for record in source.records()] == list(range(plain.num_rows))


def test_by_time_partitions_go_side_by_side_and_each_keeps_its_order(tmp_path: Path, rows: pa.Table) -> None:
    replayed_records = list(archived(tmp_path / "archive", rows).records(by_time=True))
    assert sorted(record.timestamp_ms for record in replayed_records) == [
        record.timestamp_ms for record in replayed_records
    ]
    for partition, size in ((0, 161), (1, 101)):
        assert [record.offset for record in replayed_records if record.partition == partition] == list(
            range(size)
        )
    assert [record.partition for record in replayed_records[:120]].count(1) > 20


def test_a_replay_archived_again_gives_the_same_files(bootstrap: str, tmp_path: Path, rows: pa.Table) -> None:
    source = archived(tmp_path / "archive", rows)
    target = Topic(bootstrap, "ticks-2")
    done = replay(source, target, ReplayPlan(compression="lz4"))
    sent = read_topic(bootstrap, "ticks-2", {0: 161, 1: 101})
    assert (done.records, done.partitions, done.same_offsets) == (262, 2, True)
    with pytest.raises(ArchiveError, match=r"ticks-2 isn't empty \(partition 0 ends at 161\)"):
        replay(source, target, ReplayPlan())
    replay(source, target, ReplayPlan(append=True))
    assert target.ends() == {0: (0, 322), 1: (0, 202)}
    again = pa.concat_tables(
        rows_of([record for record in sent if record.partition == part], "ticks", part, headers=True)
        for part in (0, 1)
    )
    archived(tmp_path / "again", again)
    assert raw_hashes(tmp_path / "again") == raw_hashes(tmp_path / "archive")
    assert len(raw_hashes(tmp_path / "again")) > 4


def test_an_archive_without_a_raw_table_says_what_is_missing(tmp_path: Path) -> None:
    archive(
        tmp_path / "a",
        captured([write_capture(tmp_path / "feed.gz", 3)], "ticks"),
        decoders=("binance-usdm",),
    )
    with pytest.raises(ArchiveError, match=r"no raw table.*--decoder raw"):
        RawTopic.find(Committed.open(str(tmp_path / "a")))


def test_of_several_topics_one_must_be_named(tmp_path: Path) -> None:
    feed = write_capture(tmp_path / "feed.gz", 3)
    rows = pa.concat_tables([captured([feed], "a"), captured([feed], "b")])
    archive(tmp_path / "archive", rows, decoders=("raw",))
    opened_archive = Committed.open(str(tmp_path / "archive"))
    with pytest.raises(SettingsError, match="a, b"):
        RawTopic.find(opened_archive)
    with pytest.raises(ArchiveError, match="nothing of c; it has a, b"):
        RawTopic.find(opened_archive, "c")
    assert RawTopic.find(opened_archive, "b").rows == {0: 13}


@pytest.mark.parametrize(
    ("start", "skipped", "why"),
    [
        (7, range(0), "partition 0, offsets 0 to 6: before the archive begins"),
        (0, range(5, 8), "partition 0, offsets 0 to 160: 3 have no record"),
    ],
)
def test_holes_are_refused_unless_offsets_may_differ(
    bootstrap: str, tmp_path: Path, rows: pa.Table, start: int, skipped: range, why: str
) -> None:
    part_rows = rows.slice(0, 161)
    part_rows = changed(part_rows, offset=list(range(start, start + 161)))
    part_rows = part_rows.filter(pa.array([nth not in skipped for nth in range(161)]))
    source = archived(tmp_path / "archive", part_rows, batch_rows=500)
    target = Topic(bootstrap, f"holes-{start}")
    with pytest.raises(ArchiveError, match=why):
        replay(source, target, ReplayPlan())
    assert target.partitions() == 0  # nothing was made
    done = replay(source, target, ReplayPlan(renumber=True))
    assert target.ends() == {0: (0, 161 - len(skipped))}
    assert not done.same_offsets


def test_a_topic_with_fewer_partitions_is_refused(bootstrap: str, tmp_path: Path, rows: pa.Table) -> None:
    source = archived(tmp_path / "archive", rows)
    target = Topic(bootstrap, "narrow")
    target.make(1)
    with pytest.raises(ArchiveError, match="has 1 partitions and ticks had 2"):
        replay(source, target, ReplayPlan())
    with pytest.raises(SettingsError, match="2 or more"):
        replay(source, Topic(bootstrap, "other"), ReplayPlan(partitions=1))


def test_a_paced_replay_waits_for_each_stamp(bootstrap: str, tmp_path: Path, rows: pa.Table) -> None:
    source = archived(tmp_path / "archive", rows)
    done = replay(source, Topic(bootstrap, "paced"), ReplayPlan(), pace=Pace(speed=100))
    assert done.records == 262
    assert 0.39 < done.seconds < 20


def test_a_compacted_archive_replays_the_same_records(tmp_path: Path, rows: pa.Table) -> None:
    before = list(archived(tmp_path / "archive", rows).records())
    said("compact", tmp_path / "archive")
    opened_archive = Committed.open(str(tmp_path / "archive"))
    after = RawTopic.find(opened_archive)
    assert len(opened_archive.files("raw")) < 7
    assert list(after.records()) == before
    assert after.holes() == []


def test_a_file_that_is_gone_is_named(tmp_path: Path, rows: pa.Table) -> None:
    source = archived(tmp_path / "archive", rows)
    entry = source.archive.files("raw")[0]
    (tmp_path / "archive" / entry.path).unlink()
    with pytest.raises(ArchiveError, match="is gone"):
        list(source.records())


def test_the_command_replays_and_refuses_with_a_status(
    bootstrap: str, tmp_path: Path, rows: pa.Table
) -> None:
    archived(tmp_path / "archive", rows)
    where = (tmp_path / "archive", "--bootstrap", bootstrap, "--to-topic", "again")
    [summary] = rows_said("replay", *where, "--speed", "max")
    assert (summary["from"], summary["records"], summary["same_offsets"]) == ("ticks", 262, True)
    assert refused("replay", *where, "--speed", "max")[0] == 1
    assert refused("replay", *where, "--speed", "fast")[0] == 2
    span = ("--from", "2024-08-09", "--to", "2024-08-09T00:00:02")
    said("replay", *where, "--append", "--speed", "max", *span)
    assert Topic(bootstrap, "again").ends() == {0: (0, 169), 1: (0, 109)}
