"""A rolling restart by ``blumfeld cluster`` under load, as docs/cluster.md describes it."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import pytest

from blumfeld.cli.app import run_app
from blumfeld.testing.process import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
PARTITIONS = 6
RECORDS_PER_S = 300
WHOLE_S_MAX = 60


class Load:
    """An idempotent producer with acks=all that sends steadily."""

    def __init__(self, servers: str) -> None:
        confluent_kafka = pytest.importorskip("confluent_kafka")
        admin = pytest.importorskip("confluent_kafka.admin")
        client = admin.AdminClient({"bootstrap.servers": servers})
        client.create_topics([admin.NewTopic("load", PARTITIONS, 3)])["load"].result(30)
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "log_level": 0}
        )
        self.acknowledged = 0
        self.refused: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began, sent = time.monotonic(), 0
        while not self._ends.is_set():
            self._producer.produce("load", b"x" * 100, partition=sent % PARTITIONS, on_delivery=self._report)
            sent += 1
            self._producer.poll(max(0.0, began + sent / RECORDS_PER_S - time.monotonic()))
        self._producer.flush(60)

    def _report(self, error: object, _message: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.refused.append(str(error))

    def end(self) -> None:
        """Wait for all that was sent."""
        self._ends.set()
        self._thread.join(90)
        assert not self._thread.is_alive()


def test_each_node_is_restarted_without_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def cluster(*arguments: str) -> str:
        status = run_app(["cluster", *arguments, "--dir", str(tmp_path)])
        out, err = capsys.readouterr()
        assert status == 0, out + err
        return out

    def wait_until_whole() -> None:
        deadline = time.monotonic() + WHOLE_S_MAX
        while True:
            found = json.loads(cluster("status", "--json"))
            if found["quorum"] is not None and found["under_replicated"] == found["without_leader"] == 0:
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.2)

    settings = ['config."default.replication.factor"=3', 'config."min.insync.replicas"=2']
    flags = [part for one in settings for part in ("--set", one)]
    said = cluster("up", "3", "--listen", f"127.0.0.1:{free_port(adjacent=22)}", *flags)
    try:
        load = Load(said.rpartition("bootstrap.servers=")[2].strip())
        for node in ("1", "2", "3"):
            before = load.acknowledged
            cluster("stop", node)
            cluster("up")
            wait_until_whole()
            assert load.acknowledged > before
        load.end()
        assert load.refused == []
    finally:
        run_app(["cluster", "stop", "--dir", str(tmp_path)])
