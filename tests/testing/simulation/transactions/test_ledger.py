"""Reasons to refuse a transaction that the ledger knows, and the machines that the workload strikes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.spi.internal_topics import TRANSACTIONS_TOPIC
from blumfeld.spi.storage import TopicPartition
from blumfeld.testing.simulation.transactions.aging import coordinator_of, leader_of
from blumfeld.testing.simulation.transactions.histories import ALWAYS_S, NEVER_S, Transaction
from blumfeld.testing.simulation.transactions.ledger import TransactionLedger
from blumfeld.testing.simulation.transactions.session import Session
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.init_producer_id import InitProducerIdResponse

WORK = TopicPartition("work", 0)


def second_process(renewed_s: float) -> tuple[TransactionLedger, Transaction]:
    """A transaction of a process that was let in after another one, which asked for a further epoch until then."""
    ledger = TransactionLedger()
    first = ledger.incarnation("relay", 1.0)
    first.known_s, first.renewed_s = 1.1, renewed_s
    second = ledger.incarnation("relay", 12.36)
    second.known_s = 12.38
    return ledger, ledger.begin(second, 2, 12.39)


@pytest.mark.parametrize("renewed_s", [14.069, ALWAYS_S])
def test_a_fenced_process_that_asks_for_a_further_epoch_may_abort_its_successor(renewed_s: float) -> None:
    """Apache Kafka 4.3.1 does the same: ``init, has an older epoch`` in ``transactions_wire_*.txt``."""
    ledger, transaction = second_process(renewed_s)
    assert ledger.reason_to_refuse(transaction, 6_000, 14.074)


@pytest.mark.parametrize("renewed_s", [NEVER_S, 12.3])
def test_a_further_epoch_that_was_given_before_is_no_reason(renewed_s: float) -> None:
    ledger, transaction = second_process(renewed_s)
    assert not ledger.reason_to_refuse(transaction, 6_000, 14.074)


def test_another_transactional_id_is_no_reason() -> None:
    ledger, transaction = second_process(ALWAYS_S)
    ledger.incarnations[0].name = "another"
    assert not ledger.reason_to_refuse(transaction, 6_000, 14.074)


@pytest.mark.parametrize(("lost", "renewed_s"), [(False, 5.0), (True, ALWAYS_S)])
def test_a_session_says_up_to_when_it_may_ask_for_a_further_epoch(lost: bool, renewed_s: float) -> None:
    during: list[float] = []

    class Answered(Session):
        async def _ask(self, *_args: Any) -> Any:
            during.append(self.incarnation.renewed_s)
            self.incarnation.repeated = lost and len(during) == 2
            return InitProducerIdResponse(producer_id=1, producer_epoch=len(during)), ErrorCode.NONE

    async def live() -> float:
        session = Answered(routes, TransactionLedger(), "relay", 1, 6_000)
        await session.begin()
        await session.begin(renew=True)
        return session.incarnation.renewed_s

    routes: Any = SimpleNamespace(network=SimpleNamespace(loop=SimpleNamespace(time=lambda: 5.0)))
    assert asyncio.run(live()) == renewed_s
    assert during == [NEVER_S, ALWAYS_S]


def image_of(leader: int) -> Any:
    topics = {}
    for name in (WORK.topic, TRANSACTIONS_TOPIC):
        one = PartitionImage(
            partition=0, replicas=(1, 2), isr=(1, 2), leader=leader, leader_epoch=0, partition_epoch=0
        )
        topics[name] = TopicImage(name=name, topic_id=b"", partitions={0: one})
    return SimpleNamespace(topics=topics)


@pytest.mark.parametrize(("leader", "found"), [(2, "second"), (-1, None)])
def test_the_machine_that_leads_is_found(leader: int, found: str | None) -> None:
    world: Any = SimpleNamespace(machines=["first", "second"])
    places: list[Any] = [
        leader_of(world, image_of(leader), WORK),
        coordinator_of(world, image_of(leader), "relay"),
    ]
    assert places == [found, found]


def test_no_machine_leads_what_the_image_of_a_starting_node_lacks() -> None:
    world: Any = SimpleNamespace(machines=["first"])
    empty: Any = SimpleNamespace(topics={})
    assert leader_of(world, empty, WORK) is None
    assert coordinator_of(world, empty, "relay") is None
