"""Kafka's own producer in transactions of both generations, and Kafka's tool on the records it led to. Slow: Java."""

from __future__ import annotations

import itertools
import re
import subprocess
import time
from pathlib import Path

import pytest

from blumfeld.cli.app import run_app
from blumfeld.testing.process import BrokerProcess
from blumfeld.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.kafka_peer import peer_script, tool
from tests.plugins.transactions.test_client import WAIT_S, read
from tests.plugins.transactions.wire_rows import Wire

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

RECORDS = 1_000
HERE = ('transactions.plugin="transactions"', 'config."transaction.state.log.num.partitions"=1')


@pytest.mark.parametrize("level", [0, 2])
def test_the_java_producer_in_both_generations(tmp_path: Path, level: int) -> None:
    """In the second one each of its transactions has an epoch of its own (KIP-890)."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    peer = peer_script()
    data = tmp_path / "data"
    settings = [option for setting in HERE for option in ("--set", setting)]
    run_app(
        ["format", "--data-dir", str(data), "--feature", f"transaction.version={level}", *settings],
    )
    broker = BrokerProcess(tmp_path, settings=HERE)
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(WAIT_S)
    said = tool(
        peer, "org.apache.kafka.tools.ProducerPerformance", "--topic", "t", "--num-records", str(RECORDS),
        "--record-size", "20", "--throughput", "500", "--bootstrap-server", broker.address,
        "--transactional-id", "tx", "--transaction-duration-ms", "100",
    )  # fmt: skip
    assert f"{RECORDS} records sent" in said
    assert len(read(broker.address, "read_committed", 2)) == RECORDS
    broker.stop()
    dumped = tool(
        peer, "org.apache.kafka.tools.DumpLogSegments", "--transaction-log-decoder",
        "--files", str(data / "__transaction_state-0" / "00000000000000000000.log"),
    )  # fmt: skip
    states = re.findall(r'"transactionStatus":(\d)', dumped) or re.findall(r"state=(\w+)", dumped)
    epochs = [int(epoch) for epoch in re.findall(r'[pP]roducerEpoch["=:]+(\d+)', dumped)]
    assert states, dumped[-2_000:]
    transactions = sum(state in ("4", "CompleteCommit") for state in states)
    assert transactions > 3, dumped[-2_000:]
    assert max(epochs) == (transactions if level == 2 else 0)


def test_the_level_changes_while_a_java_producer_transacts(tmp_path: Path) -> None:
    """It is raised and lowered in the middle of transactions. The producer goes on, and each record is there once."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    peer = peer_script()
    broker = BrokerProcess(tmp_path, settings=HERE)
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(WAIT_S)
    running = subprocess.Popen(
        [
            peer, "tool", "org.apache.kafka.tools.ProducerPerformance", "--topic", "t",
            "--num-records", str(5 * RECORDS), "--record-size", "20", "--throughput", "250",
            "--bootstrap-server", broker.address, "--transactional-id", "tx", "--transaction-duration-ms", "100",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    wire, changes = Wire(broker.address), 0
    levels = itertools.cycle([0, 2, 1, 2])
    while running.poll() is None:
        level = next(levels)
        for upgrade_type in (1, 2):  # one of them is the right one
            update = FeatureUpdateKey(
                feature="transaction.version", max_version_level=level, upgrade_type=upgrade_type
            )
            answer = wire.ask(UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update]), 1)
            if not answer.error_code:
                changes += 1
                break
        time.sleep(1)
    said, _ = running.communicate(timeout=WAIT_S)
    assert running.returncode == 0, said
    assert f"{5 * RECORDS} records sent" in said, said
    assert changes >= 4
    assert len(read(broker.address, "read_committed", 2)) == 5 * RECORDS
    wire.close()
    broker.stop()
