"""Migrations with faults at any moment: the tree is the log's image in the end, and no acknowledged record is lost."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from blumfeld.metadata.brokers.migration import MigrationState
from blumfeld.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tests.plugins.consensus_zk_compat.migration.migrating import Migrating

TOPICS = ("orders", "trades")


class Life:
    """One seed: writers, faults between and in the phases, and what must hold behind each."""

    def __init__(self, seed: int) -> None:
        self.nodes = Migrating(seed=seed)
        self.random = Random(f"migration {seed}")
        self.acked: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
        self.ends = False
        self.kinds = dict.fromkeys((1, 2, 3), "zookeeper")
        self.made = 0

    async def write(self, topic: str) -> None:
        """Write record after record, each until it is acknowledged."""
        nodes, number = self.nodes, 0
        while not self.ends:
            value = b"%d" % number
            try:
                leader = nodes.leader(topic, nodes.alive)
                code = (
                    await asyncio.wait_for(nodes.produce(topic, [value], node_id=leader), 30)
                    if leader > 0
                    else -1
                )
            except (TimeoutError, OSError, StopIteration, AssertionError):
                code = -1
            if code == 0:
                self.acked[topic].append(value)
                number += 1
            await nodes.pause(self.random.randrange(20, 200))

    # Faults, each of which ends by itself

    async def kill_leader_of_quorum(self) -> None:
        nodes = self.nodes
        leader = nodes.leader_of_quorum
        if leader and not self.ended(leader):
            nodes.all[leader].crash(power_cut=self.random.random() < 0.5)
            await nodes.pause(self.random.randrange(0, 4_000))
            assert await nodes.all[leader].start()

    def ended(self, node_id: int) -> bool:
        return not self.nodes.all[node_id].is_serving

    async def kill_broker(self) -> None:
        nodes, broker = self.nodes, self.random.choice((1, 2, 3))
        if all(nodes.machine(node_id).is_serving for node_id in (1, 2, 3)):
            nodes.machine(broker).crash(power_cut=False)
            await nodes.pause(self.random.randrange(0, 9_000))
            assert await nodes.machine(broker).start()

    async def cut_session(self) -> None:
        nodes = self.nodes
        session = nodes.sessions.get(nodes.leader_of_quorum)
        if session is not None:
            session.cut()
            await nodes.pause(self.random.randrange(100, 12_000))
            session.heal()

    async def lose_an_answer(self) -> None:
        session = self.nodes.sessions.get(self.nodes.leader_of_quorum)
        if session is not None:
            session.lose_answers(self.random.randrange(1, 4))

    async def change(self) -> None:
        """Create, configure or delete a topic, at any broker."""
        nodes = self.nodes
        at = self.random.choice(
            [node_id for node_id in (1, 2, 3) if nodes.machine(node_id).is_serving] or [1]
        )
        name = f"other-{self.random.randrange(4)}"
        try:
            match self.random.randrange(3):
                case 0:
                    await asyncio.wait_for(nodes.create_at(at, name, self.random.randrange(1, 4)), 30)
                case 1:
                    await asyncio.wait_for(
                        nodes.alter(at, TOPICS[0], "retention.ms", f"{self.made + 10**9}"), 30
                    )
                    self.made += 1
                case _:
                    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=5_000)
                    await asyncio.wait_for(nodes.ask(at, request, 5, DeleteTopicsResponse), 30)
        except (TimeoutError, OSError, AssertionError):
            return  # the broker died meanwhile

    async def trouble(self) -> None:
        """Some faults and changes, some of them at once."""
        faults = (self.kill_leader_of_quorum, self.kill_broker, self.cut_session, self.lose_an_answer)
        works = [fault() for fault in self.random.sample(faults, self.random.randrange(0, 3))]
        works += [self.change() for _ in range(self.random.randrange(1, 5))]
        await asyncio.gather(*works)

    async def whole(self) -> None:
        """Wait until nothing is under way any more, and check what must hold."""
        nodes = self.nodes
        await nodes.until(lambda: all(nodes.machine(node_id).is_serving for node_id in (1, 2, 3)), 120)

        def in_sync() -> bool:
            if not nodes.leader_of_quorum:
                return False
            return all(
                partition.leader > 0 and len(partition.isr) == 3
                for topic in nodes.log_image.topics.values()
                for partition in topic.partitions.values()
            )

        await nodes.until(in_sync, 240)
        await nodes.check_equal()
        counts = {topic: len(acked) for topic, acked in self.acked.items()}
        await nodes.until(lambda: all(len(self.acked[topic]) > counts[topic] for topic in TOPICS), 240)

    async def as_kind(self, node_id: int, kind: str) -> None:
        await self.nodes.as_kind(node_id, kind, kill=self.random.random() < 0.3)
        self.kinds[node_id] = kind

    async def live(self) -> None:
        nodes = self.nodes
        for topic in TOPICS:
            await nodes.create(topic, 1, 3)
        writers = [asyncio.ensure_future(self.write(topic)) for topic in TOPICS]
        await nodes.start_quorum()
        await nodes.until(lambda: nodes.said("the ZooKeeper follows the log"), 120)
        await self.trouble()
        await self.whole()
        for _ in range(self.random.randrange(2, 7)):
            node_id = self.random.choice((1, 2, 3))
            other = "kraft" if self.kinds[node_id] == "zookeeper" else "zookeeper"
            await asyncio.gather(self.as_kind(node_id, other), self.change())
            await self.trouble()
            await self.whole()
        goes_back = self.random.random() < 0.5
        for node_id in (1, 2, 3):
            if self.kinds[node_id] != (kind := "zookeeper" if goes_back else "kraft"):
                await self.as_kind(node_id, kind)
                await self.whole()
        if goes_back:
            await nodes.roll_back()
            await nodes.until(lambda: nodes.controller > 0)
        else:
            for node_id in nodes.quorum:
                await nodes.as_kind(node_id, "ended")
            await nodes.until(lambda: nodes.state is MigrationState.POST_MIGRATION)
        counts = {topic: len(acked) for topic, acked in self.acked.items()}
        await nodes.until(lambda: all(len(self.acked[topic]) > counts[topic] for topic in TOPICS), 240)
        self.ends = True
        await asyncio.gather(*writers)
        for topic in TOPICS:
            lost = set(self.acked[topic]) - set(await nodes.values(topic))
            assert not lost, f"{topic}: {sorted(lost)[:5]}"


def lived(seed: int) -> None:
    life = Life(seed)
    life.nodes.run(life.live())


@pytest.mark.parametrize("seed", range(2))
def test_a_migration_with_faults_loses_nothing(seed: int) -> None:
    lived(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 60))
def test_many_migrations_with_faults_lose_nothing(seed: int) -> None:
    lived(seed)
