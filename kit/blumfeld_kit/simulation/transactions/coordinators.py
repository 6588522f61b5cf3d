"""Makes a transactional id old: the epochs of its producer id are nearly exhausted, as after 32,000 transactions."""

from __future__ import annotations

from typing import Any

from blumfeld.coordinator.runtime.coordinator import partition_for
from blumfeld.spi.groups import CoordinatorRecord, Decision
from blumfeld.spi.internal_topics import TRANSACTIONS_TOPIC
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.codec import encode
from blumfeld.wire.messages.transaction_coordinator_records import TransactionLogKey, TransactionLogValue
from blumfeld_kit.simulation.machine.host import Machine
from blumfeld_kit.simulation.swarm.world import World
from blumfeld_kit.simulation.zookeeper.tree_oracle import Image

EMPTY = 0
TIMEOUT_MS = 10_000


def coordinator_of(world: World, image: Image, transactional_id: str) -> Machine | None:
    """Return the machine whose node coordinates a transactional id; ``None`` while there is none."""
    topic = image.topics.get(TRANSACTIONS_TOPIC)
    if topic is None:
        return None
    number = partition_for(transactional_id, len(topic.partitions))
    return leader_of(world, image, TopicPartition(TRANSACTIONS_TOPIC, number))


def leader_of(world: World, image: Image, partition: TopicPartition) -> Machine | None:
    """Return the machine whose node leads a partition; ``None`` while there is none.

    The image of a node that has just started may lack the topic, and for a moment no other node may run.
    """
    topic = image.topics.get(partition.topic)
    leader = -1 if topic is None else topic.partitions[partition.partition].leader
    return world.machines[leader - 1] if leader > 0 else None


async def age(machine: Machine, transactional_id: str, producer_id: int, epoch: int) -> None:
    """Write a record that says that the transactional id has come to this epoch. To be called while nobody uses it.

    An old cluster would have it in its log; here the coordinator itself is told to write it.
    """
    broker: Any = machine.node.broker if machine.node is not None else None
    host = broker.transactions.host_of(transactional_id)
    value = TransactionLogValue(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_timeout_ms=TIMEOUT_MS,
        transaction_status=EMPTY,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=broker.ports.runtime.now_ms(),
        transaction_start_timestamp_ms=-1,
    )
    key = (0).to_bytes(2) + encode(TransactionLogKey(transactional_id=transactional_id), 0)
    record = CoordinatorRecord(key, (0).to_bytes(2) + encode(value, 0))

    async def write() -> None:
        host._apply(Decision(records=[record]), None)

    await machine.run(write())
