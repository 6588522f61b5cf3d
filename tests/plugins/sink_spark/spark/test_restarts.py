"""``archive run`` as a process: Apache Kafka restarts under it, and its JVM dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld.testing.process import free_port
from tests.kafka_peer import kafka_on, peer_script
from tests.plugins.sink_spark.spark_tools import make_topic, produce

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

WAIT_S = 120


class _Archive:
    """A live archive of one topic and what it printed."""

    def __init__(self, folder: Path, bootstrap: str, topic: str) -> None:
        self.root = folder / "archive"
        self._log = folder / "archive.log"
        options = [f"--bootstrap={bootstrap}", f"--topics={topic}", "--decoder=raw", f"--root={self.root}"]
        options += ["--trigger-ms=500", "--set=spark.spark.driver.memory=1g"]
        with self._log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "blumfeld.cli.main", "archive", "run", *options],
                stdout=out,
                stderr=out,
            )

    @property
    def text(self) -> str:
        return self._log.read_text()

    def until(self, words: str, times: int = 1) -> None:
        """Waits until the archive has printed these words so many times."""
        end = time.monotonic() + WAIT_S
        while self.text.count(words) < times:
            assert self.process.poll() is None, self.text
            assert time.monotonic() < end, self.text
            time.sleep(0.1)

    def jvm(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        [jvm_pid] = [
            int(pid)
            for file in children
            for pid in file.read_text().split()
            if b"java" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        return jvm_pid


@contextmanager
def _archiving(folder: Path, bootstrap: str, topic: str) -> Iterator[_Archive]:
    archiver = _Archive(folder, bootstrap, topic)
    try:
        yield archiver
    finally:
        if archiver.process.poll() is None:
            archiver.process.kill()
            archiver.process.wait(30)


@pytest.mark.parametrize("version", ["4.3.1", "4.4.0"])
def test_a_live_archive_outlives_restarts_of_apache_kafka(tmp_path: Path, version: str) -> None:
    """The broker is stopped in order, then killed. Each time the archive reports outage and end once, and goes on."""
    peer, port = peer_script(), free_port(adjacent=2)
    folder = tmp_path / "kafka"
    folder.mkdir()
    with kafka_on(peer, folder, port=port, version=version) as bootstrap:
        make_topic(bootstrap, "restarted")
        produce(bootstrap, "restarted", 20)
        archive = _Archive(tmp_path, bootstrap, "restarted")
        archive.until("20 messages in")
    try:
        archive.until("waiting: ")
        with kafka_on(peer, folder, port=port, version=version, kill=True):
            archive.until("it works again")
            produce(bootstrap, "restarted", 5)
            archive.until("5 messages in")
        archive.until("waiting: ", times=2)
        with kafka_on(peer, folder, port=port, version=version):
            archive.until("it works again", times=2)
            produce(bootstrap, "restarted", 7)
            archive.until("7 messages in")
            archive.process.terminate()
            assert archive.process.wait(WAIT_S) == 0, archive.text
    finally:
        archive.process.kill()
        archive.process.wait(30)
    notices = re.findall(r"^waiting|^it works again", archive.text, re.MULTILINE)
    assert notices == ["waiting", "it works again"] * (len(notices) // 2), archive.text
    assert len(notices) >= 4, archive.text
    assert "Traceback" not in archive.text
    rows = ds.dataset([str(path) for path in (archive.root / "raw").rglob("*.parquet")]).to_table()
    assert sorted(rows["k_offset"].to_pylist()) == list(range(32))


def test_a_jvm_that_is_killed_is_one_line_and_a_status(tmp_path: Path) -> None:
    """The archive ends. When a supervisor starts it again, it goes on."""
    with EmbeddedBroker() as broker:
        bootstrap = broker.bootstrap_servers
        make_topic(bootstrap, "killed")
        produce(bootstrap, "killed", 20)
        with _archiving(tmp_path, bootstrap, "killed") as archive:
            archive.until("20 messages in")
            pid = archive.jvm()
            before = len(archive.text.splitlines())
            os.kill(pid, signal.SIGKILL)
            assert archive.process.wait(WAIT_S) == 1, archive.text
            assert archive.text.splitlines()[before:] == [
                f"blumfeld archive: Spark's JVM (process {pid}) ended by signal SIGKILL. Nothing is lost: start again, "
                "and it goes on"
            ]
        produce(bootstrap, "killed", 5)
        with _archiving(tmp_path, bootstrap, "killed") as again:
            again.until("5 messages in")
