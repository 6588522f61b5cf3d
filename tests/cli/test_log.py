"""``blumfeld log`` on a directory that a broker wrote: what it shows, what it finds after damage, what it mends."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner

from blumfeld.cli.app import app
from blumfeld.metadata.image.record_frame import encode_record
from blumfeld.testing import EmbeddedBroker
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.messages.remote_log_metadata_records import RemoteLogSegmentMetadataUpdateRecord
from blumfeld_transactions.transaction import State, Transaction, record

TOPIC = "trades"
COUNT = 300
START_MS = int(time.time()) * 1000
"""Time of the first record. It is now, because a producer whose records are old is forgotten."""
RUNNER = CliRunner()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with one partition of several segments, cleanly closed."""
    folder = tmp_path_factory.mktemp("log") / "data"
    with EmbeddedBroker(storage="storage_local", data_dir=str(folder), config=CONFIG) as broker:
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "batch.num.messages": 10,
                "enable.idempotence": True,
            }
        )
        for number in range(COUNT):
            producer.produce(
                TOPIC, b"value-%04d" % number * 40, b"key-%03d" % number, timestamp=START_MS + number
            )
            if number % 10 == 9:
                assert producer.flush(20) == 0
    return folder


CONFIG = {"log.index.interval.bytes": 1000, "log.roll.ms": 95, "log.retention.ms": -1}


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "data"))


def log(*arguments: object, status: int = 0) -> str:
    done = RUNNER.invoke(app, ["log", *map(str, arguments)])
    assert done.exit_code == status, done.output
    return done.output


def rows(*arguments: object, status: int = 0) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in log(*arguments, "--json", status=status).splitlines() if line[:1] == "{"
    ]


def segments(data: Path) -> list[Path]:
    return sorted((data / f"{TOPIC}-0").glob("*.log"))


def served(data: Path) -> list[bytes]:
    """Keys in the topic, as a broker on this directory serves them to librdkafka, which checks CRCs."""
    with EmbeddedBroker(storage="storage_local", data_dir=str(data), config=CONFIG) as broker:
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "check.crcs": True,
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
            }
        )
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        keys: list[bytes] = []
        while (message := consumer.poll(20)) is not None and message.error() is None:
            key = message.key()
            assert isinstance(key, bytes)
            keys.append(key)
        consumer.close()
    return keys


def test_the_overview_says_whose_it_is_and_what_lies_in_it(written: Path) -> None:
    shown = rows(written)
    facts = {row["what"]: row["value"] for row in shown if "what" in row}
    assert facts["last stop"].startswith("clean")
    (entry,) = [row for row in shown if row.get("log") == f"{TOPIC}-0"]
    assert (entry["first offset"], entry["end offset"], entry["segments"]) == (
        0,
        COUNT,
        len(segments(written)),
    )
    assert entry["high watermark"] == entry["recovery point"] == COUNT
    assert entry["bytes"] == sum(path.stat().st_size for path in segments(written))
    assert len(segments(written)) > 2
    assert f"{TOPIC}-0" in log(written)


def test_a_partition_shows_segments_epochs_and_producers(written: Path) -> None:
    shown = rows(written / f"{TOPIC}-0")
    listed = [row for row in shown if "segment" in row and "batches" in row]
    assert [row["segment"] for row in listed] == [int(path.stem) for path in segments(written)]
    assert sum(row["records"] for row in listed) == COUNT
    assert [row["start offset"] for row in shown if row["table"] == "leader epochs"] == [0]
    (producer,) = [row for row in shown if "last sequence" in row]
    assert (producer["last offset"], producer["last sequence"]) == (COUNT - 1, COUNT - 1)


def test_a_log_file_shows_batches_or_records_from_an_offset_on(written: Path) -> None:
    first = segments(written)[0]
    batches = rows(first)
    assert batches[0]["first"] == 0
    assert {row["codec"] for row in batches} == {"none"}
    shown = rows(first, "--records", "--from", 17, "--limit", 4)
    assert [row["offset"] for row in shown] == [17, 18, 19, 20]
    assert shown[0]["key"] == "key-017"
    assert shown[0]["value"] == "value-0017" * 40
    assert shown[0]["time"].endswith(".017")
    assert "… (400 bytes)" in log(first, "--records", "--limit", 1)
    assert "--from and --limit say which" in log(first, "--limit", 1)


@pytest.mark.parametrize(
    "name",
    [
        *(f"{TOPIC}-0/*.{suffix}" for suffix in ("index", "timeindex", "snapshot")),
        f"{TOPIC}-0/leader-epoch-checkpoint",
        "meta.properties",
        "recovery-point-offset-checkpoint",
    ],
)
def test_other_files_are_shown(written: Path, name: str) -> None:
    assert rows(max(written.glob(name), key=lambda path: path.stat().st_size))


@pytest.mark.parametrize("suffix", ["log", "index", "timeindex", "snapshot"])
def test_a_file_of_a_remote_segment_is_shown_as_the_local_one(
    written: Path, tmp_path: Path, suffix: str
) -> None:
    """An object store has the same files, with the id of the segment in their names."""
    local = sorted((written / f"{TOPIC}-0").glob(f"*.{suffix}"))[-1]
    remote = tmp_path / f"{local.stem}-XrQlh8GbRfq72WiwM1JrJg.{suffix}"
    shutil.copy(local, remote)
    assert log(remote, "--json").replace(remote.name, local.name) == log(local, "--json")


def test_the_leader_epochs_of_a_remote_segment_are_shown(written: Path, tmp_path: Path) -> None:
    remote = tmp_path / "00000000000000000903-XrQlh8GbRfq72WiwM1JrJg.leader_epoch_checkpoint"
    shutil.copy(written / f"{TOPIC}-0" / "leader-epoch-checkpoint", remote)
    assert '"start offset"' in log(remote, "--json")


def test_a_sound_directory_verifies(written: Path) -> None:
    assert "2 of 2 logs are sound" in log(written, "--verify", "--deep")
    assert rows(written, "--verify") == []


def test_a_broker_that_runs_is_told_of_and_keeps_repair_out(data: Path) -> None:
    with EmbeddedBroker(storage="storage_local", data_dir=str(data), config=CONFIG):
        assert "a broker runs on it" in log(data)
        assert "a broker runs on it" in log(data, "--verify")
        assert "locked by another process" in log(data, "--repair", status=2)


def test_what_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    assert log(tmp_path / "absent", status=2) == f"blumfeld: {tmp_path}/absent: No such file or directory\n"
    assert "a data directory or a partition's" in log(__file__, "--verify", status=2)


def test_a_bit_flip_is_found_and_only_its_batch_is_lost(data: Path) -> None:
    """The others are served as before, and the damaged bytes are kept."""
    victim = segments(data)[1]
    spoilt = rows(victim)[3]
    with victim.open("r+b") as file:
        file.seek(spoilt["position"] + 100)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 4]))
    (finding,) = rows(data, "--verify", status=1)
    assert finding["file"] == victim.name
    assert "CRC" in finding["what"]
    assert "DAMAGED" in log(victim)
    done = log(data, "--repair", "--yes")
    assert f"offsets {spoilt['first']} to {spoilt['last']} lost" in done
    assert (victim.parent / f"{victim.name}.damaged-{spoilt['position']}").stat().st_size == spoilt["bytes"]
    lost = {b"key-%03d" % number for number in range(spoilt["first"], spoilt["last"] + 1)}
    assert served(data) == [key for n in range(COUNT) if (key := b"key-%03d" % n) not in lost]
    assert log(data, "--verify")


def test_records_of_a_partition_are_shown_over_its_segments(written: Path) -> None:
    shown = rows(written / f"{TOPIC}-0", "--records", "--from", 95, "--limit", 120)
    assert [row["offset"] for row in shown] == list(range(95, 215))
    assert shown[0]["key"] == "key-095"
    everything = rows(written / f"{TOPIC}-0", "--records", "--limit", COUNT + 1)
    assert len(everything) == COUNT


def test_records_of_the_metadata_say_what_they_mean(written: Path) -> None:
    """Also those of a snapshot, and of a directory that is named by a dot."""
    for path in (written / "__cluster_metadata-0", written / "bootstrap.checkpoint"):
        assert "FeatureLevelRecord(name='metadata.version', feature_level=30)" in log(path, "--records")
    with chdir(written / "__cluster_metadata-0"):
        assert "FeatureLevelRecord(" in log(".", "--records")


def test_records_of_remote_log_metadata_say_what_they_mean(tmp_path: Path) -> None:
    folder = tmp_path / "__remote_log_metadata-0"
    folder.mkdir()
    finished = RemoteLogSegmentMetadataUpdateRecord(broker_id=3, remote_log_segment_state=1)
    items = [Record(timestamp=1, value=encode_record(finished)), Record(timestamp=1, value=b"later")]
    (folder / "00000000000000000000.log").write_bytes(build_batch(items))
    shown = [row["value"] for row in rows(folder / "00000000000000000000.log", "--records")]
    assert "broker_id=3" in shown[0]
    assert "remote_log_segment_state=1" in shown[0]
    assert shown[1] == "later"


def test_records_of_transactions_say_what_they_mean(tmp_path: Path) -> None:
    folder = tmp_path / "__transaction_state-0"
    folder.mkdir()
    known = Transaction(
        producer_id=7,
        previous_producer_id=7,
        next_producer_id=9,
        epoch=32_767,
        timeout_ms=60_000,
        state=State.PREPARE_COMMIT,
        partitions=frozenset([("t", 1), ("t", 0)]),
        client_version=2,
    )
    made = [
        record("tx", known, 2),
        record("old", Transaction(producer_id=1, epoch=0, timeout_ms=1, state=State.EMPTY), 0),
    ]
    items = [
        Record(offset=at, timestamp=1, key=source.key, value=source.value) for at, source in enumerate(made)
    ]
    items.append(Record(offset=2, timestamp=1, key=record("gone", None, 0).key, value=None))
    items.append(Record(offset=3, timestamp=1, key=b"\x00\x09new", value=b"later"))
    (folder / "00000000000000000000.log").write_bytes(build_batch(items))
    shown = [(row["key"], row["value"]) for row in rows(folder / "00000000000000000000.log", "--records")]
    assert shown == [
        (
            "tx",
            "PrepareCommit, producer 7/32767, next 9, timeout 60000 ms, client transaction version 2: t-0 t-1",
        ),
        ("old", "Empty, producer 1/0, timeout 1 ms"),
        ("gone", "tombstone"),
        ("0x00096e6577", "later"),
    ]


def test_a_value_is_shown_as_it_is(tmp_path: Path) -> None:
    """No picture for ``:x:``, no bold for ``[b]``, and nothing that a terminal would obey."""
    (tmp_path / "meta.properties").write_text("a=:x:\nb=[b]c[/b]\nc=\x1b[31m")
    shown = log(tmp_path / "meta.properties")
    assert "a=:x:" in shown
    assert "b=[b]c[/b]" in shown
    assert "c=\\x1b[31m" in shown


def test_what_is_no_part_of_a_data_directory_is_named(tmp_path: Path, written: Path) -> None:
    (tmp_path / "noise").write_bytes(b"\0\1")
    for path, says in (
        (tmp_path, "neither a data directory"),
        (tmp_path / "noise", "no text"),
        (tmp_path / "gone", "No such file"),
    ):
        assert says in log(path, status=2)
    assert "partition's directory" in log(written, "--records", status=2)


def test_a_stray_is_shown_as_one(data: Path) -> None:
    stray = f"{TOPIC}-0.{'0123456789abcdef' * 2}-stray"
    (data / f"{TOPIC}-0").rename(data / stray)
    (entry,) = [row for row in rows(data) if row.get("log") == f"{TOPIC}-0"]
    assert (entry["state"], entry["end offset"]) == ("stray", COUNT)
    assert len(rows(data / stray, "--records", "--limit", COUNT)) == COUNT


def test_a_torn_tail_is_cut(data: Path) -> None:
    last = segments(data)[-1]
    with last.open("ab") as file:
        file.write(b"\0" * 700)
    (finding, *_) = rows(data, "--verify", status=1)
    assert "700 zero bytes" in finding["what"]
    size = last.stat().st_size
    assert "a broker runs on it" not in log(data, "--repair", "--yes")
    assert last.stat().st_size == size - 700
    assert len(served(data)) == COUNT


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("harm", ["deleted", "garbage", pytest.param("cut", marks=pytest.mark.slow)])
def test_an_index_is_rebuilt(data: Path, suffix: str, harm: str) -> None:
    victim = segments(data)[0].with_suffix(f".{suffix}")
    before = victim.read_bytes()
    if harm == "deleted":
        victim.unlink()
    else:
        victim.write_bytes(b"\xff" * len(before) if harm == "garbage" else before[:-5])
    (finding,) = rows(data, "--verify", status=1)
    assert finding["file"] == victim.name
    log(data, "--repair", "--yes")
    assert log(data, "--verify")
    assert victim.stat().st_size % {"index": 8, "timeindex": 12}[suffix] == 0
    assert len(served(data)) == COUNT


def test_unreadable_epochs_and_snapshots_are_made_anew(data: Path) -> None:
    partition = data / f"{TOPIC}-0"
    (partition / "leader-epoch-checkpoint").write_text("7\nnonsense\n")
    snapshot = max(partition.glob("*.snapshot"))
    snapshot.write_bytes(b"\1\2\3")
    assert {row["file"] for row in rows(data, "--verify", status=1)} == {
        "leader-epoch-checkpoint",
        snapshot.name,
    }
    log(data, "--repair", "--yes")
    assert not snapshot.exists()
    assert (partition / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    assert len(served(data)) == COUNT


def test_a_missing_segment_is_a_note_and_the_rest_is_served(data: Path) -> None:
    victim = segments(data)[1]
    lost = range(int(victim.stem), int(segments(data)[2].stem))
    victim.unlink()
    (finding,) = rows(data, "--verify")
    assert finding["what"] == f"offsets {lost[0]} to {lost[-1]} before it are missing"
    assert served(data) == [b"key-%03d" % n for n in range(COUNT) if n not in lost]


def test_no_is_no(data: Path) -> None:
    victim = segments(data)[0].with_suffix(".index")
    victim.unlink()
    done = RUNNER.invoke(app, ["log", str(data), "--repair"], input="n\n")
    assert done.exit_code == 1
    assert not victim.exists()


@pytest.fixture
def foreign(data: Path) -> Path:
    """A data directory as a storage of another form leaves it: the node's identity, and files of its own."""
    for entry in data.iterdir():
        if entry.name != "meta.properties":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    (data / f"{TOPIC}-0").mkdir()
    (data / f"{TOPIC}-0" / "records.0").write_bytes(b"sound")
    return data


def test_a_directory_of_another_storage_is_not_taken_for_an_unclean_stop(foreign: Path) -> None:
    text = " ".join(log(foreign).split())
    assert "unknown: nothing here says how the node stopped" in text
    assert "not clean" not in text
    assert "no log in Kafka's form lies here, but trades-0: the node's storage is not storage_local" in text


@pytest.mark.parametrize("options", [(), ("--verify",), ("--deep",), ("--repair", "--yes")])
def test_logs_of_another_storage_are_neither_sound_nor_empty(foreign: Path, options: tuple[str, ...]) -> None:
    if options:
        assert "no log in Kafka's form lies here" in log(*options, foreign, status=2)
    assert "but records.0: the node" in log(*options, foreign / f"{TOPIC}-0", status=2)


def test_a_directory_that_was_only_formatted_is_ours_and_one_without_identity_is_not(foreign: Path) -> None:
    shutil.rmtree(foreign / f"{TOPIC}-0")
    assert "not clean, or not yet" in log(foreign)
    (foreign / "meta.properties").rename(foreign / "records.db")
    ours = "Only the directories of storage_local and of Apache Kafka can be shown"
    assert ours in log(foreign, status=2)
