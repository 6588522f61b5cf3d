"""A rolling restart by ``blumfeld cluster`` under load, as docs/cluster.md describes it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from blumfeld.cli.app import run_app
from blumfeld.testing.process import free_port
from campaigns.clients.load.load import Load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
PARTITIONS = 6
RECORDS_PER_S = 300
WHOLE_S_MAX = 60


def test_each_node_is_restarted_without_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def cluster(*arguments: str) -> str:
        status = run_app(["cluster", *arguments, "--dir", str(tmp_path)])
        out, err = capsys.readouterr()
        assert status == 0, out + err
        return out

    def wait_until_whole() -> None:
        deadline = time.monotonic() + WHOLE_S_MAX
        while True:
            status = json.loads(cluster("status", "--json"))
            if status["quorum"] is not None and status["under_replicated"] == status["without_leader"] == 0:
                return
            assert time.monotonic() < deadline, status
            time.sleep(0.2)

    settings = ['config."default.replication.factor"=3', 'config."min.insync.replicas"=2']
    flags = [part for setting in settings for part in ("--set", setting)]
    said = cluster("up", "3", "--listen", f"127.0.0.1:{free_port(adjacent=22)}", *flags)
    try:
        load = Load(said.rpartition("bootstrap.servers=")[2].strip(), PARTITIONS, RECORDS_PER_S)
        load.make_topic(3, {})
        load.start()
        for node in ("1", "2", "3"):
            began = time.monotonic()
            cluster("stop", node)
            cluster("up")
            wait_until_whole()
            assert load.await_acks(began, WHOLE_S_MAX)
        load.finish()
        assert (dict(load.given_up), load.account().lost, load.wrong) == ({}, 0, [])
    finally:
        run_app(["cluster", "stop", "--dir", str(tmp_path)])
