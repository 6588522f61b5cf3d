"""Throttled replication between real nodes on simulated machines (KIP-73)."""

from __future__ import annotations

import asyncio

import pytest

from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE
from blumfeld.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.plugins.replication_isr.three_nodes import TOPIC, ThreeNodes

RATE = 20_000
BATCHES = 40
BATCH_BYTES = 5_000
CONFIG = {
    "replica.fetch.max.bytes": 5_100,  # one batch: the bytes of a batch that is cut off count, too
    "leader.replication.throttled.rate": RATE,
    "follower.replication.throttled.rate": RATE,
}
LATE = 3
SET, DELETE = 0, 1
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


@pytest.mark.parametrize(
    "throttle",
    [
        {LEADERS: "0:1,0:2"},
        {FOLLOWERS: f"0:{LATE}"},
        {LEADERS: "0:1,0:2", FOLLOWERS: f"0:{LATE}"},
    ],
    ids=["leader", "follower", "both"],
)
def test_a_throttled_follower_copies_at_its_rate_and_holds_up_nothing_else(throttle: dict[str, str]) -> None:
    nodes = ThreeNodes(config=CONFIG)
    caught_up_s: dict[int, float] = {}
    beside_s: list[float] = []

    async def story() -> None:
        await nodes.create(2, throttle)
        nodes.machine(LATE).crash(power_cut=False)
        await nodes.until(lambda: all(LATE not in nodes.image(n).isr for n in (0, 1)))
        for number in range(BATCHES):
            for partition in (0, 1):
                assert await nodes.produce([bytes([number]) * BATCH_BYTES], partition)
        await asyncio.sleep(12)  # the leader's quota forgets what the member of the ISR copied
        began_s = nodes.loop.time()
        assert await nodes.machine(LATE).start()
        while len(caught_up_s) < 2:
            now_s = nodes.loop.time()
            assert now_s < began_s + 60
            for partition in (0, 1):
                if LATE in nodes.image(partition).isr:
                    caught_up_s.setdefault(partition, now_s - began_s)
            assert await nodes.produce([b"beside"], 0)
            beside_s.append(nodes.loop.time() - now_s)
            await asyncio.sleep(0.2)
        await nodes.until(lambda: nodes.settled([0, 1]))
        nodes.check([0, 1])

    nodes.run(story())
    wanted_s = BATCHES * BATCH_BYTES / RATE
    assert 0.7 * wanted_s < caught_up_s[0] < 1.5 * wanted_s
    assert caught_up_s[1] < 0.2 * wanted_s
    assert sum(beside_s) / len(beside_s) < 0.15, "acks=all waits for members of the ISR only"


def test_members_of_the_isr_are_not_throttled() -> None:
    """All replicas are throttled to next to nothing, and producers with acks=all don't notice."""
    nodes = ThreeNodes(config=CONFIG | {key: 1 for key in CONFIG if key.endswith("rate")})

    async def story() -> None:
        await nodes.create(1, {LEADERS: "*", FOLLOWERS: "*"})
        await nodes.until(lambda: nodes.settled([0]))
        began_s = nodes.loop.time()
        for number in range(20):
            assert await nodes.produce([bytes([number]) * BATCH_BYTES])
        assert nodes.loop.time() - began_s < 2.0
        assert nodes.image().isr == nodes.image().replicas

    nodes.run(story())


def test_a_throttle_is_set_and_taken_away_at_run_time() -> None:
    """As kafka-reassign-partitions does it: rates of single brokers, lists of the topic, and their removal."""
    nodes = ThreeNodes(config={"replica.fetch.max.bytes": 5_100})

    async def alter(operation: int) -> None:
        lists = {LEADERS: "0:1,0:2", FOLLOWERS: f"0:{LATE}"}
        rates = dict.fromkeys(
            ("leader.replication.throttled.rate", "follower.replication.throttled.rate"), "100"
        )
        wanted = [(BROKER_RESOURCE, str(node), rates) for node in (1, 2, 3)] + [
            (TOPIC_RESOURCE, TOPIC, lists)
        ]
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        AlterableConfig(
                            name=key, config_operation=operation, value=None if operation == DELETE else value
                        )
                        for key, value in values.items()
                    ],
                )
                for kind, name, values in wanted
            ]
        )
        admin = await nodes.connect(1)
        answer = await admin.ask(request, 1, IncrementalAlterConfigsResponse)
        admin.close()
        assert [result.error_code for result in answer.responses] == [0, 0, 0, 0], answer

    async def story() -> None:
        await nodes.create(1)
        nodes.machine(LATE).crash(power_cut=False)
        await nodes.until(lambda: LATE not in nodes.image().isr)
        for number in range(BATCHES):
            assert await nodes.produce([bytes([number]) * BATCH_BYTES])
        await alter(SET)
        assert await nodes.machine(LATE).start()
        await asyncio.sleep(8.0)
        assert nodes.replica(LATE).log.written_end_offset < 5
        await alter(DELETE)
        began_s = nodes.loop.time()
        await nodes.until(lambda: nodes.settled([0]))
        assert nodes.loop.time() - began_s < 3.0
        nodes.check([0])

    nodes.run(story())
