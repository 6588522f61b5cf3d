"""Replication between real nodes on simulated machines: what is acknowledged is on all replicas, whatever dies."""

from __future__ import annotations

import asyncio

import pytest

from tests.plugins.replication_isr.three_nodes import ThreeNodes


def test_followers_copy_what_the_leader_acknowledges() -> None:
    nodes = ThreeNodes()

    async def story() -> None:
        await nodes.create(2)
        for number in range(6):
            assert await nodes.produce([b"%d.%d" % (number, n) for n in range(3)], number % 2)
        await nodes.until(lambda: nodes.settled([0, 1]))
        assert [nodes.replica(node_id).high_watermark for node_id in (1, 2, 3)] == [9, 9, 9]
        nodes.check([0, 1])

    nodes.run(story())
    assert len(nodes.acked[0]) == len(nodes.acked[1]) == 9
    assert nodes.unknown == 0


def test_a_killed_leader_is_followed_by_one_that_has_everything() -> None:
    nodes = ThreeNodes()

    async def story() -> None:
        await nodes.create()
        assert await nodes.produce([b"before"])
        before = nodes.image().leader
        nodes.machine(before).crash(power_cut=False)
        assert not await nodes.produce([b"refused"])
        await nodes.until(lambda: nodes.image().leader not in (-1, before))
        assert await nodes.produce([b"after"])
        assert await nodes.machine(before).start(), "its session has ended"
        await nodes.until(lambda: nodes.settled([0]))
        nodes.check([0])

    nodes.run(story())
    assert list(nodes.acked[0].values()) == [b"before", b"after"]


def test_what_a_cut_off_leader_wrote_alone_is_truncated() -> None:
    """It goes on to take acks=1 until it hears of the next epoch. Then its log is the next leader's."""
    nodes = ThreeNodes()

    async def story() -> None:
        await nodes.create()
        assert await nodes.produce([b"common"])
        before = nodes.image().leader
        nodes.isolate(before)
        for number in range(3):
            await nodes.produce([b"alone %d" % number], acks=1)
        await nodes.until(lambda: nodes.image().leader not in (-1, before))
        assert nodes.replica(before).log.written_end_offset == 4
        assert await nodes.produce([b"new leader"])
        nodes.heal()
        await nodes.until(lambda: nodes.settled([0]))
        nodes.check([0])
        assert nodes.replica(before).log.written_end_offset == 2

    nodes.run(story())
    assert nodes.said("truncated to the leader's log")


@pytest.mark.parametrize("seed", range(4))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    """Kills, cuts and restarts, with producers beside them."""
    nodes = ThreeNodes(seed)
    chance, over = nodes.chance, False
    partitions = [0, 1, 2]

    async def producer(number: int) -> None:
        sent = 0
        while not over:
            sent += 1
            values = [b"%d.%d.%d" % (number, sent, n) for n in range(1 + chance.randrange(3))]
            await nodes.produce(values, chance.choice(partitions), acks=chance.choice([-1, -1, -1, 1]))
            await asyncio.sleep(chance.random() * 0.2)

    async def story() -> None:
        nonlocal over
        await nodes.create(len(partitions))
        producers = [asyncio.ensure_future(producer(number)) for number in range(3)]
        for _ in range(8):
            await asyncio.sleep(1.0 + 3 * chance.random())
            victim = 1 + chance.randrange(3)
            match chance.randrange(3):
                case 0:
                    await nodes.restart(victim)
                case 1:
                    nodes.isolate(victim)
                    await asyncio.sleep(4 * chance.random())
                    nodes.heal()
                case _:
                    nodes.cut(victim, victim % 3 + 1)
                    await asyncio.sleep(4 * chance.random())
                    nodes.heal()
        over = True
        await asyncio.gather(*producers)
        await nodes.until(lambda: nodes.settled(partitions), 120)
        nodes.check(partitions)

    nodes.run(story())
    assert sum(len(acked) for acked in nodes.acked.values()) > 30
