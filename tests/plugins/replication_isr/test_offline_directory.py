"""A log directory that fails on a leader: leadership moves, and no acknowledged record is lost (KIP-112, KIP-858)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from blumfeld.broker.replicas.partition import Partition
from blumfeld_kit.fakes.disk import Fault
from tests.everyday import first
from tests.plugins.replication_isr.three_nodes import ThreeNodes, batches_of, values_of

PARTITIONS = 4
FAILING = "/more"


def lies_in(partition: Partition, directory: str) -> bool:
    aux: Any = partition.log.aux
    path: str = aux.directory
    return path.startswith(f"{directory}/")


@pytest.mark.parametrize("seed", first(1, range(3)))
def test_an_offline_directory_moves_the_leadership_of_its_partitions_only(seed: int) -> None:
    # The next heartbeat by itself would come too late.
    beats = {"broker.heartbeat.interval.ms": 5_000, "broker.session.timeout.ms": 30_000}
    nodes = ThreeNodes(seed, config=beats, data_dirs=("/data", FAILING))
    over = False

    async def producer(partition: int) -> None:
        sent = 0
        while not over:
            sent += 1
            await nodes.produce([b"%d.%d" % (partition, sent)], partition)
            await asyncio.sleep(0.02)

    async def story() -> None:
        nonlocal over
        everything = range(PARTITIONS)
        await nodes.create(PARTITIONS)
        await nodes.until(lambda: nodes.settled(list(everything)))
        leaders = {index: nodes.image(index).leader for index in everything}
        lost = [n for n, leader in leaders.items() if lies_in(nodes.replica(leader, n), FAILING)]
        victim = leaders[lost[0]]
        lost = [n for n in lost if leaders[n] == victim]
        kept = [n for n, leader in leaders.items() if leader == victim and n not in lost]
        producers = [asyncio.ensure_future(producer(index)) for index in everything]
        await asyncio.sleep(1.0)
        nodes.machine(victim).disk.inject(Fault(operation="pwritev", times=-1, path_part=f"{FAILING}/"))
        began_s = nodes.loop.time()
        await nodes.until(lambda: all(nodes.image(n).leader not in (-1, victim) for n in lost))
        assert nodes.loop.time() - began_s < 1.0, "a heartbeat tells the controller at once"
        assert nodes.machine(victim).is_running
        assert not nodes.shared.image.brokers[victim].fenced
        assert [nodes.image(n).leader for n in kept] == [victim] * len(kept)
        before = {n: len(nodes.acked.get(n, {})) for n in everything}
        await asyncio.sleep(3.0)
        assert all(len(nodes.acked[n]) > before[n] for n in everything), "all partitions take records"
        assert all(victim not in nodes.image(n).isr for n in lost)
        over = True
        await asyncio.gather(*producers)
        for index in lost:
            others = [nodes.replica(node_id, index) for node_id in nodes.image(index).isr]
            await nodes.until(
                lambda replicas=others: len({replica.high_watermark for replica in replicas}) == 1
            )
            logs = [batches_of(replica, replica.high_watermark) for replica in others]
            assert logs.count(logs[0]) == len(logs) == 2
            values = dict(values_of(logs[0]))
            assert nodes.acked[index].items() <= values.items()

    nodes.run(story())
