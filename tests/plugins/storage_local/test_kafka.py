"""One data directory, Apache Kafka's and ours in turn: each opens what the other left, and serves the same
records; Kafka's own tool reads every file without a complaint. Skipped where Kafka or Java is not there.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from blumfeld.testing.process import BrokerProcess
from blumfeld.wire.compression.codec import Codec
from blumfeld_kit.storage_driver.node import TIME_MS, make_batch
from tests.kafka_peer import kafka_on, peer_script
from tests.plugins.kafka_records import (
    CODECS,
    Seen,
    compact,
    consume,
    delete_records,
    fill,
    latest,
    make_retained,
    produce,
    watermarks,
)
from tests.plugins.storage_local.local_node import node_on_disk

TOOL_TIMEOUT_S = 200
CLEANED_TOPICS = ("compacted", "compacted-transactions")
CLEANED, STARTS = "cleaner-offset-checkpoint", "log-start-offset-checkpoint"
COMPLAINTS = re.compile(
    r"(?i)mismatch|corrupt|exception|invalid|could not|not valid|isvalid: false|out of order|found log offset"
)
KAFKA_SETTINGS = (
    "log.cleaner.backoff.ms=500",
    "log.flush.start.offset.checkpoint.interval.ms=500",
    "offsets.topic.num.partitions=4",
    "transaction.state.log.num.partitions=4",
)
OUR_SETTINGS = (
    'config."log.cleaner.backoff.ms"=500',
    'config."log.initial.task.delay.ms"=500',
    'config."log.retention.check.interval.ms"=500',
)


def dump(files: list[Path], *options: str) -> str:
    """What ``DumpLogSegments --deep-iteration`` says of these files."""
    command = [peer_script(), "tool", "org.apache.kafka.tools.DumpLogSegments"]
    command += [*(options or ("--deep-iteration",)), "--files", ",".join(map(str, files))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["clean", "not at all"])
def test_kafkas_dump_tool_has_no_complaint(tmp_path: Path, stop: str) -> None:
    """Log, offset index and time index, sealed and active, after a clean stop and of a node that runs."""
    peer_script()
    node = node_on_disk(str(tmp_path))
    log = node.open(segment_bytes=20_000)
    for n in range(400):
        codec = list(Codec)[n % len(Codec)]
        log.append(
            make_batch(1 + n % 5, value_bytes=100, timestamp_ms=TIME_MS + n * 10, codec=codec, seed=n),
            epoch=3,
        )
    if stop == "clean":
        node.stop()
    files = sorted(
        p for p in (tmp_path / "topic-0").iterdir() if p.suffix in (".log", ".index", ".timeindex")
    )
    said = dump(files)
    assert len(files) >= 5
    assert not re.search(r"(?i)mismatch|invalid|exception|could not|not valid|isvalid: false", said)
    # the tool begins each file at -1, so it calls the first offset of every later segment a gap
    gaps = re.findall(r"(-?\d+) is followed by (\d+)", said)
    assert set(gaps) == {("-1", str(int(f.stem))) for f in files if f.suffix == ".log" and int(f.stem)}
    assert said.count("| offset:") == sum(1 + n % 5 for n in range(400))
    assert said.count("timestamp: ") > 5
    node.end()


def until(holds: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    """Wait for it."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:.0f} s"
        time.sleep(0.2)


def kept(data: Path, checkpoint: str, topic: str) -> int:
    """The offset of partition 0 in a checkpoint file, or 0."""
    path = data / checkpoint
    lines = path.read_text().splitlines() if path.exists() else []
    return max((int(line.split()[2]) for line in lines if line.startswith(f"{topic} 0 ")), default=0)


def read(address: str) -> tuple[dict[tuple[str, int], tuple[int, int]], Seen, Seen]:
    """(log start and last stable offset, what every reader gets, what a reader of committed records gets)."""
    return watermarks(address), consume(address, committed=False), consume(address, committed=True)


def settled(seen: tuple[dict[tuple[str, int], tuple[int, int]], Seen, Seen]) -> object:
    """The same with, of compacted topics, what no round of cleaning can take: the newest committed of each key."""
    ends, all_records, committed = seen
    return (
        ends,
        {place: rows for place, rows in all_records.items() if not place[0].startswith("compacted")},
        {
            place: latest(rows) if place[0].startswith("compacted") else rows
            for place, rows in committed.items()
        },
    )


def work(address: str, data: Path) -> None:
    """What our broker adds: every codec, rolls, retention, DeleteRecords, more for the cleaner, producers that
    go on.
    """
    before = kept(data, CLEANED, "compacted")
    make_retained(address)
    compact(address, "compacted-later")
    for codec in CODECS:
        produce(address, "codecs", codec, 200, partitions=2)
        produce(address, "compacted", codec, 200, keys=5)
        produce(address, "retained", codec, 300)
    delete_records(address, "deleted-from", 201)
    until(lambda: watermarks(address, {"retained": 1})["retained", 0][0] > 0, "retention")
    until(lambda: kept(data, STARTS, "deleted-from") == 201, "our checkpoint")
    until(lambda: kept(data, CLEANED, "compacted") > before, "our cleaner")
    until(lambda: kept(data, CLEANED, "compacted-later") > 0, "our cleaner, of transactions")


def check_files(data: Path) -> None:
    """Kafka's reader on every file of every topic."""
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = [
        file
        for directory in sorted(data.iterdir())
        if directory.is_dir() and not directory.name.startswith("__cluster_metadata")
        for file in sorted(directory.iterdir())
        if file.suffix in suffixes and file.stat().st_size
    ]
    assert {file.suffix for file in files} == set(suffixes)
    assert len([file for file in files if file.suffix == ".txnindex"]) >= 3
    said = dump(files)
    assert not COMPLAINTS.findall(said)
    assert said.count("Dumping ") == len(files)
    indexes = [file for file in files if file.suffix in (".index", ".timeindex")]
    assert not COMPLAINTS.findall(dump(indexes, "--verify-index-only"))
    assert not COMPLAINTS.findall(dump(indexes, "--index-sanity-check").replace("passed sanity check", ""))


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("crash", [False, True], ids=["clean stops", "kill -9"])
def test_kafkas_directory_is_ours_and_ours_is_kafkas(tmp_path: Path, crash: bool) -> None:
    """Kafka fills a directory with several topics of every codec, one that its cleaner has cleaned, transactions
    with aborts and one that is open; we serve it, go on in it, and Kafka serves what we left.
    """
    peer, data = peer_script(), tmp_path / "data"
    with kafka_on(peer, tmp_path, *KAFKA_SETTINGS, kill=crash) as address:
        held = fill(address)
        for topic in CLEANED_TOPICS:
            until(lambda topic=topic: kept(data, CLEANED, topic) > 0, "Kafka's cleaner")  # type: ignore[misc]
        until(lambda: kept(data, STARTS, "deleted-from") == 133, "Kafka's checkpoint")
        theirs = read(address)
    del held
    (tmp_path / "kafka.log").rename(tmp_path / "kafka-first.log")
    broker = BrokerProcess(tmp_path, settings=OUR_SETTINGS)
    broker.start()
    try:
        assert settled(read(broker.address)) == settled(theirs)
        work(broker.address, data)
        ours = read(broker.address)
        if crash:
            broker.kill()
            broker.start()
            assert settled(read(broker.address)) == settled(ours)
    finally:
        if crash:
            broker.kill()
        else:
            assert broker.stop() == 0, broker.log_path.read_text()
    if not crash:
        check_files(data)
    with kafka_on(peer, tmp_path, *KAFKA_SETTINGS) as address:
        assert settled(read(address)) == settled(ours)
    again = BrokerProcess(tmp_path, settings=OUR_SETTINGS)
    again.start()
    try:
        assert settled(read(again.address)) == settled(ours)
    finally:
        assert again.stop() == 0, again.log_path.read_text()
    check_files(data)
