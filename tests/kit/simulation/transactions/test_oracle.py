"""Reasons to refuse a transaction that the oracle knows, and the machines that the workload strikes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.spi.internal_topics import TRANSACTIONS_TOPIC
from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.simulation.transactions.coordinators import coordinator_of, leader_of
from blumfeld_kit.simulation.transactions.oracle import TransactionOracle

WORK = TopicPartition("work", 0)


def test_a_process_that_was_let_in_before_is_no_reason_to_refuse_its_successor() -> None:
    """Not even if it asks late for a further epoch (seed 2373): it is fenced, and aborts nothing."""
    oracle = TransactionOracle()
    first = oracle.incarnation("relay", 1.0)
    first.known_s = 1.1
    second = oracle.incarnation("relay", 12.36)
    second.known_s = 12.38
    transaction = oracle.begin(second, 2, 12.39)
    assert not oracle.reason_to_refuse(transaction, 6_000, 14.074)
    oracle.incarnation("relay", 14.0)
    assert oracle.reason_to_refuse(transaction, 6_000, 14.074)


def image_of(leader: int) -> Any:
    topics = {}
    for name in (WORK.topic, TRANSACTIONS_TOPIC):
        partition_image = PartitionImage(
            partition=0, replicas=(1, 2), isr=(1, 2), leader=leader, leader_epoch=0, partition_epoch=0
        )
        topics[name] = TopicImage(name=name, topic_id=b"", partitions={0: partition_image})
    return SimpleNamespace(topics=topics)


@pytest.mark.parametrize(("leader", "machine_name"), [(2, "second"), (-1, None)])
def test_the_machine_that_leads_is_found(leader: int, machine_name: str | None) -> None:
    world: Any = SimpleNamespace(machines=["first", "second"])
    places: list[Any] = [
        leader_of(world, image_of(leader), WORK),
        coordinator_of(world, image_of(leader), "relay"),
    ]
    assert places == [machine_name, machine_name]


def test_no_machine_leads_what_the_image_of_a_starting_node_lacks() -> None:
    world: Any = SimpleNamespace(machines=["first"])
    empty: Any = SimpleNamespace(topics={})
    assert leader_of(world, empty, WORK) is None
    assert coordinator_of(world, empty, "relay") is None
