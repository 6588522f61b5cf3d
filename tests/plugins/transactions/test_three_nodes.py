"""Transactions in a cluster of three: markers and verification go between nodes. Slow: three processes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from blumfeld.testing.process import free_port
from tests.plugins.transactions.test_client import WAIT_S, producer, read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

MANIFEST = """
nodes = 3
[node]
data_dir = "{data}"
[network]
listeners = [
  {{ name = "PLAINTEXT", kind = "broker", bind = "127.0.0.1:{port}", inter_broker = true }},
  {{ name = "CONTROLLER", kind = "controller", bind = "127.0.0.1:{controller_port}" }},
]
[transactions]
plugin = "transactions"
[config]
"transaction.state.log.num.partitions" = 6
"""
PARTITIONS = 6


def test_a_coordinator_ends_transactions_at_the_other_nodes(tmp_path: Path) -> None:
    """Four transactional ids and six partitions, so that coordinators and leaders are on different nodes."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    port = free_port(6)
    manifest = tmp_path / "three.toml"
    manifest.write_text(MANIFEST.format(data=tmp_path / "data", port=port, controller_port=port + 3))
    address = f"127.0.0.1:{port}"
    with (tmp_path / "log").open("w") as log:
        command = [sys.executable, "-m", "blumfeld.cli.main", "run", str(manifest)]
        cluster = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        deadline = time.monotonic() + 60
        while len(admin.list_topics(timeout=WAIT_S).brokers) < 3:
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.2)
        admin.create_topics([NewTopic("t", PARTITIONS, 3)])["t"].result(WAIT_S)
        committed, everything = [], []
        for number in range(4):
            made = producer(address, f"tx-{number}")
            for turn in range(6):
                values = [f"{number}-{turn}-{index}" for index in range(PARTITIONS)]
                made.begin_transaction()
                for index, value in enumerate(values):
                    made.produce("t", value, partition=index)
                everything += values
                if turn % 3 == 2:
                    assert made.flush(WAIT_S) == 0
                    made.abort_transaction(WAIT_S)
                else:
                    made.commit_transaction(WAIT_S)
                    committed += values
        assert read(address, "read_committed", PARTITIONS) == sorted(committed)
        assert read(address, "read_uncommitted", PARTITIONS) == sorted(everything)
    finally:
        cluster.terminate()
        cluster.wait(60)
