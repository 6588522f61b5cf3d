"""Transactions in a cluster of three: markers and verification go between nodes. Slow: three processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld_kit.cluster import cluster_of_this_build
from tests.plugins.transactions.test_client import WAIT_S, producer, read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

PARTITIONS = 6


def test_a_coordinator_ends_transactions_at_the_other_nodes(tmp_path: Path) -> None:
    """Four transactional ids and six partitions, so that coordinators and leaders are on different nodes."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    settings = ('transactions.plugin="transactions"', 'config."transaction.state.log.num.partitions"=6')
    cluster = cluster_of_this_build(3, tmp_path, settings)
    try:
        cluster.start()
        address = cluster.addresses
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
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
        cluster.stop()
