"""A process under a transactional id: when it stops trying."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from blumfeld.spi.internal_topics import TRANSACTIONS_TOPIC
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from blumfeld_kit.simulation.transactions.histories import Append
from blumfeld_kit.simulation.transactions.oracle import INTERNAL_PARTITIONS, TransactionOracle
from blumfeld_kit.simulation.transactions.session import EndedError, Session

WORK = TopicPartition("work", 0)
TRIES_MAX = 5


class Concurrent:
    """Routes to a leader whose coordinator has a transaction that it can't end. The excuse comes behind a try."""

    def __init__(self, oracle: TransactionOracle, excused_after: int) -> None:
        self.network = SimpleNamespace(loop=SimpleNamespace(time=lambda: 1.0))
        self.tries = 0
        self._oracle = oracle
        self._excused_after = excused_after

    async def leader(self, partition: TopicPartition) -> Concurrent:
        return self

    def send(self, request: object, version: int) -> None:
        self.tries += 1
        assert self.tries <= TRIES_MAX, "it never gives up"

    async def wait(self, sent: None) -> ProduceResponse:
        outcome = PartitionProduceResponse(
            index=0, error_code=ErrorCode.CONCURRENT_TRANSACTIONS, base_offset=-1
        )
        topic = TopicProduceResponse(name=WORK.topic, partition_responses=[outcome])
        return ProduceResponse(responses=[topic])

    async def lost(self, partition: TopicPartition) -> None:
        if self.tries == self._excused_after:
            for number in range(INTERNAL_PARTITIONS):
                self._oracle.excuse(TopicPartition(TRANSACTIONS_TOPIC, number), 1.0)


def test_a_produce_gives_up_when_the_coordinator_may_have_lost_its_state() -> None:
    oracle = TransactionOracle()
    for number in range(INTERNAL_PARTITIONS):
        oracle.add(TopicPartition(TRANSACTIONS_TOPIC, number))
    routes: Any = Concurrent(oracle, excused_after=3)
    session = Session(routes, oracle, "one", 2, 10_000)
    session.incarnation = oracle.incarnation("one", 0.0)
    session.begin_transaction()
    batch = session.batch([Append(partition=WORK, value=b"0|0.0", sent_s=1.0)])

    with pytest.raises(EndedError) as ended:
        asyncio.run(session.produce([batch]))

    assert routes.tries == 3
    assert ended.value.fenced
