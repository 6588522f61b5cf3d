"""One data directory and Apache Kafka's transactions: each side goes on where the other stopped. Slow: Java."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from blumfeld.testing.process import BrokerProcess
from tests.kafka_peer import kafka_on, peer_script, tool
from tests.plugins.transactions.test_client import WAIT_S, read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SETTINGS = ("offsets.topic.num.partitions=2", "transaction.state.log.num.partitions=2")
HERE = ('transactions.plugin="transactions"',)
EXPECTED = ["a-0", "a-1"]


def producer(address: str, transactional_id: str) -> Any:
    from confluent_kafka import Producer

    made = Producer({"bootstrap.servers": address, "transactional.id": transactional_id, "log_level": 0})
    made.init_transactions(WAIT_S)
    return made


def write(made: Any, *values: str) -> None:
    made.begin_transaction()
    for value in values:
        made.produce("t", value, partition=0)
    assert made.flush(WAIT_S) == 0


def leave_one_of_each(address: str) -> list[Any]:
    """A committed, an aborted and an open transaction. Their producers, so that none ends by itself."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(WAIT_S)
    ended, left = producer(address, "ended"), producer(address, "left")
    write(ended, *EXPECTED)
    ended.commit_transaction(WAIT_S)
    write(ended, "aborted")
    ended.abort_transaction(WAIT_S)
    write(left, "open")
    return [ended, left]


def go_on(address: str, before: list[str], name: str) -> None:
    """The next producers of both ids: the open transaction is aborted, and new ones can be committed."""
    assert read(address, "read_committed", 1) == sorted(before)
    for transactional_id in ("ended", "left"):
        made = producer(address, transactional_id)
        write(made, f"{name}-{transactional_id}")
        made.commit_transaction(WAIT_S)
    after = [*before, f"{name}-ended", f"{name}-left"]
    assert read(address, "read_committed", 1) == sorted(after)


@pytest.mark.parametrize("crash", [False, True], ids=["clean stop", "kill -9"])
def test_kafkas_transactions_are_ended_here_and_ours_there(tmp_path: Path, crash: bool) -> None:
    """Kafka leaves a directory, this build goes on in it and leaves it, and Kafka goes on."""
    peer = peer_script()
    with kafka_on(peer, tmp_path, *SETTINGS, kill=crash) as address:
        held = leave_one_of_each(address)
    broker = BrokerProcess(tmp_path, settings=HERE)
    broker.start()
    go_on(broker.address, EXPECTED, "here")
    left = producer(broker.address, "left")
    write(left, "open here")
    broker.kill() if crash else broker.stop()
    del held
    with kafka_on(peer, tmp_path, *SETTINGS) as address:
        go_on(address, [*EXPECTED, "here-ended", "here-left"], "there")
        output = tool(
            peer, "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", address, "list"
        )
    rows = [line.split() for line in output.splitlines()]
    states = {row[0]: row[-1] for row in rows if row and row[0] in ("ended", "left")}
    assert states == {"ended": "CompleteCommit", "left": "CompleteCommit"}, output
