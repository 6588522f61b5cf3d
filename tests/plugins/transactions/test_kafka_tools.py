"""``kafka-transactions.sh`` of Apache Kafka 4.3.1 against one node and three. Slow: Java."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from blumfeld_kit.cluster import Cluster, cluster_of_this_build
from tests.kafka_peer import peer_script, tool
from tests.plugins.transactions.test_client import WAIT_S, producer, read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COMMAND = "org.apache.kafka.tools.TransactionsCommand"
TRANSACTION_TIMEOUT_MS = 600_000
"""Longer than the tools take together."""
OPEN, DONE, HANGING = "open", "done", "hanging"


@contextmanager
def running(cluster: Cluster) -> Iterator[str]:
    """The nodes, started on what they have; their address."""
    try:
        cluster.start()
        yield cluster.addresses
    finally:
        cluster.stop()


def leave_open(address: str, transactional_id: str, value: str) -> Any:
    """A producer with an open transaction. It must be kept, or it ends the transaction."""
    made = producer(address, transactional_id, TRANSACTION_TIMEOUT_MS)
    made.begin_transaction()
    made.produce("t", value, partition=0)
    assert made.flush(WAIT_S) == 0
    return made


def table(text: str) -> list[dict[str, str]]:
    """The rows of a table of the tool, by the names in its head."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    at = next(number for number, words in enumerate(lines) if words[0][0].isupper())
    return [dict(zip(lines[at], words, strict=False)) for words in lines[at + 1 :]]


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_tool_lists_finds_and_ends_transactions(tmp_path: Path, nodes: int) -> None:
    """A transaction hangs because its coordinator's log is taken away while the nodes are stopped."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    peer = peer_script()
    settings = ('transactions.plugin="transactions"', 'config."transaction.state.log.num.partitions"=6')
    cluster = cluster_of_this_build(nodes, tmp_path, settings)

    def transactions(*arguments: str) -> str:
        return tool(peer, COMMAND, "--bootstrap-server", cluster.addresses, *arguments)

    with running(cluster) as address:
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        admin.create_topics([NewTopic("t", 1, nodes)])["t"].result(WAIT_S)
        held = leave_open(address, HANGING, "lost")
    del held
    for path in tmp_path.rglob("__transaction_state-*"):
        shutil.rmtree(path)
    with running(cluster) as address:
        done = leave_open(address, DONE, "seen")
        done.commit_transaction(WAIT_S)
        held = leave_open(address, OPEN, "open")
        assert read(address, "read_uncommitted", 1) == ["lost", "open", "seen"]
        assert read(address, "read_committed", 1) == []

        listed = {row["TransactionalId"]: row["TransactionState"] for row in table(transactions("list"))}
        assert listed == {DONE: "CompleteCommit", OPEN: "Ongoing"}
        ids = {
            row["TransactionalId"] for row in table(transactions("list", "--transactional-id-pattern", "o.*"))
        }
        assert ids == {OPEN}

        (described,) = table(transactions("describe", "--transactional-id", OPEN))
        assert (described["TransactionState"], described["TopicPartitions"]) == ("Ongoing", "t-0")

        states = table(transactions("describe-producers", "--topic", "t", "--partition", "0"))
        starts = {row["CurrentTransactionStartOffset"] for row in states}
        assert starts == {"0", "None", "3"}

        hanging = table(
            transactions("find-hanging", "--topic", "t", "--partition", "0", "--max-transaction-timeout", "0")
        )
        assert [row["StartOffset"] for row in hanging] == ["0"]

        transactions("abort", "--topic", "t", "--partition", "0", "--start-offset", "0")
        assert read(address, "read_committed", 1) == ["seen"]

        transactions("forceTerminateTransaction", "--transactionalId", OPEN)
        assert read(address, "read_committed", 1) == ["seen"]
        (described,) = table(transactions("describe", "--transactional-id", OPEN))
        assert described["TransactionState"] in ("CompleteAbort", "Empty")
        after = leave_open(address, OPEN, "after")
        after.commit_transaction(WAIT_S)
        assert read(address, "read_committed", 1) == ["after", "seen"]
        del held
