"""Partitions move to other nodes (KIP-455) while producers write, and while nodes die."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from blumfeld.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.everyday import first
from tests.plugins.replication_isr.three_nodes import TOPIC, ThreeNodes

HERE, THERE = [1, 2, 3], [4, 5, 6]


async def create_on(nodes: ThreeNodes, replicas: Sequence[int], partitions: int) -> None:
    assignments = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
        for number in range(partitions)
    ]
    topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assignments)
    admin = await nodes.connect(1)
    answer = await admin.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5, CreateTopicsResponse)
    admin.close()
    assert answer.topics[0].error_code == 0, answer


async def reassign(nodes: ThreeNodes, replicas: Sequence[int] | None, partitions: int) -> list[int]:
    """Ask a broker; the error of each partition."""
    wanted = [
        ReassignablePartition(partition_index=number, replicas=None if replicas is None else list(replicas))
        for number in range(partitions)
    ]
    admin = await nodes.connect(1)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=10_000, topics=[ReassignableTopic(name=TOPIC, partitions=wanted)]
    )
    answer = await admin.ask(request, 1, AlterPartitionReassignmentsResponse)
    admin.close()
    return [result.error_code for result in answer.responses[0].partitions]


def moved(nodes: ThreeNodes, replicas: Sequence[int], partitions: int) -> bool:
    images = [nodes.image(number) for number in range(partitions)]
    return all(
        image.replicas == tuple(replicas) and not image.adding_replicas and not image.removing_replicas
        for image in images
    )


def test_a_partition_moves_to_three_other_nodes() -> None:
    """The logs of the removed replicas are deleted."""
    nodes = ThreeNodes(nodes=6)

    async def story() -> None:
        await create_on(nodes, HERE, 1)
        await nodes.until(lambda: nodes.settled([0]))
        for number in range(20):
            assert await nodes.produce([b"before %d" % number])
        assert await reassign(nodes, THERE, 1) == [0]
        await nodes.until(lambda: moved(nodes, THERE, 1))
        await nodes.until(lambda: nodes.settled([0]))
        assert await nodes.produce([b"after"])
        await nodes.until(lambda: nodes.settled([0]))
        nodes.check([0])
        assert len(nodes.acked[0]) == 21
        await nodes.until(lambda: not any(nodes.hosted(node_id) for node_id in HERE))

    nodes.run(story())


def test_a_cancel_takes_the_added_replicas_away() -> None:
    nodes = ThreeNodes(nodes=4)

    async def story() -> None:
        await create_on(nodes, HERE, 1)
        await nodes.until(lambda: nodes.settled([0]))
        assert await nodes.produce([b"before"])
        nodes.isolate(4)
        assert await reassign(nodes, [1, 2, 4], 1) == [0]
        await asyncio.sleep(1)
        assert nodes.image().adding_replicas == (4,)
        nodes.heal()
        assert await reassign(nodes, None, 1) == [0]
        await nodes.until(lambda: moved(nodes, HERE, 1))
        assert await nodes.produce([b"after"])
        await nodes.until(lambda: nodes.settled([0]) and nodes.hosted(4) is None)
        nodes.check([0])

    nodes.run(story())


@pytest.mark.parametrize("seed", first(2, range(4)))
def test_nothing_is_lost_while_partitions_move_and_nodes_die(seed: int) -> None:
    nodes = ThreeNodes(seed, nodes=6)
    chance, over = nodes.chance, False
    partitions = [0, 1]

    async def producer(number: int) -> None:
        sent = 0
        while not over:
            sent += 1
            await nodes.produce([b"%d.%d" % (number, sent)], chance.choice(partitions))
            await asyncio.sleep(chance.random() * 0.2)

    async def story() -> None:
        nonlocal over
        await create_on(nodes, HERE, len(partitions))
        await nodes.until(lambda: nodes.settled(partitions))
        producers = [asyncio.ensure_future(producer(number)) for number in range(2)]
        at = HERE
        for turn in range(4):
            target = chance.sample(range(1, 7), 3)
            if turn == 3:
                target = THERE if at != THERE else HERE
            codes = await reassign(nodes, target, len(partitions))
            assert set(codes) == {0}
            await asyncio.sleep(chance.random() * 0.1)
            victim = 2 + chance.randrange(5)  # node 1 takes the requests
            await nodes.restart(victim)
            if turn != 1:  # the next target comes while this one is still on its way
                await nodes.until(lambda target=target: moved(nodes, target, len(partitions)), 120)
            at = target
        over = True
        await asyncio.gather(*producers)
        await nodes.until(lambda: nodes.settled(partitions), 120)
        nodes.check(partitions)

    nodes.run(story())
    assert sum(len(acked) for acked in nodes.acked.values()) > 10
