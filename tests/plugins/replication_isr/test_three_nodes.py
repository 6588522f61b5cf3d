"""Replication between real nodes on simulated machines: what is acknowledged is on all replicas, whatever dies."""

from __future__ import annotations

import asyncio

import pytest

from blumfeld.config.replica_selectors import RACK_AWARE
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.alter_partition import AlterPartitionRequest
from tests.everyday import first
from tests.plugins.replication_isr.three_nodes import ThreeNodes, bytes_of, values_of


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


def test_delete_records_waits_for_followers() -> None:
    nodes = ThreeNodes()

    async def story() -> None:
        await nodes.create()
        for number in range(3):
            assert await nodes.produce([b"%d" % number])
        await nodes.until(lambda: nodes.settled([0]))
        leader = nodes.image().leader
        far = leader % 3 + 1
        nodes.cut(leader, far)
        waiting = asyncio.ensure_future(nodes.delete_records(2))
        await asyncio.sleep(1.0)
        assert not waiting.done(), "a replica on a live broker has the records"
        nodes.heal()
        assert await waiting == 2
        assert [nodes.replica(node_id).log.log_start_offset for node_id in (1, 2, 3)] == [2, 2, 2]

    nodes.run(story())


def test_one_request_takes_a_dead_broker_out_of_all_isrs() -> None:
    nodes = ThreeNodes(config={"broker.session.timeout.ms": 60_000})

    async def story() -> None:
        await nodes.create(6)
        await nodes.until(lambda: all(nodes.image(n).isr == nodes.image(n).replicas for n in range(6)))
        before = len(nodes.shared.commands)
        nodes.machine(3).crash(power_cut=True)
        for number in range(6):
            await nodes.produce([b"x"], number, acks=1)
        await nodes.until(
            lambda: all(3 not in nodes.image(n).isr for n in range(6) if nodes.image(n).leader != 3)
        )
        alterations = [c for c in nodes.shared.commands[before:] if isinstance(c, AlterPartitionRequest)]
        led = [nodes.image(n).leader for n in range(6)]
        assert sorted(len(c.topics[0].partitions) for c in alterations) == sorted(
            [led.count(1), led.count(2)]
        )

    nodes.run(story())


def test_a_consumer_is_sent_to_the_replica_in_its_rack() -> None:
    """KIP-392. It reads there what that replica knows to be committed."""
    nodes = ThreeNodes(config={"replica.selector.class": RACK_AWARE})

    async def story() -> None:
        await nodes.create()
        assert await nodes.produce([b"one", b"two"])
        await nodes.until(lambda: nodes.settled([0]))
        leader = nodes.image().leader
        near = leader % 3 + 1
        sent_on = await nodes.fetch(leader, 0, rack=f"r{near}")
        assert (sent_on.preferred_read_replica, sent_on.error_code, len(bytes_of(sent_on))) == (
            near,
            0,
            0,
        )
        assert sent_on.high_watermark == 2
        stays = await nodes.fetch(leader, 0, rack=f"r{leader}")
        assert (stays.preferred_read_replica, len(bytes_of(stays)) > 0) == (-1, True)
        assert (await nodes.fetch(leader, 0, rack="elsewhere")).preferred_read_replica == -1
        assert (await nodes.fetch(leader, 3, rack=f"r{near}")).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        wrong = await nodes.fetch(leader, 0, rack=f"r{near}", leader_epoch=9)
        assert (wrong.error_code, wrong.preferred_read_replica) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)
        here = await nodes.fetch(near, 0, rack=f"r{near}")
        assert [value for _, value in values_of([bytes_of(here)])] == [b"one", b"two"]
        assert here.preferred_read_replica == -1
        assert (await nodes.fetch(near, 0, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await nodes.fetch(near, 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await nodes.fetch(near, 0, replica_id=7)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    nodes.run(story())


def test_a_follower_shows_consumers_only_what_it_knows_to_be_committed() -> None:
    nodes = ThreeNodes()

    async def story() -> None:
        await nodes.create()
        assert await nodes.produce([b"committed"])
        await nodes.until(lambda: nodes.settled([0]))
        leader = nodes.image().leader
        near, far = leader % 3 + 1, (leader + 1) % 3 + 1
        nodes.cut(leader, far)
        assert await nodes.produce([b"not yet"], acks=1)
        await nodes.until(lambda: nodes.replica(near).log.written_end_offset == 2)
        assert nodes.replica(near).high_watermark == 1
        empty = await nodes.fetch(near, 1)
        assert (empty.error_code, len(bytes_of(empty)), empty.high_watermark) == (0, 0, 1)
        waiting = asyncio.ensure_future(nodes.fetch(near, 1, max_wait_ms=30_000))
        await nodes.until(lambda: len(nodes.image().isr) == 2)
        woken = await waiting
        assert [value for _, value in values_of([bytes_of(woken)])] == [b"not yet"]

    nodes.run(story())


@pytest.mark.parametrize("seed", first(2, range(4)))
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
