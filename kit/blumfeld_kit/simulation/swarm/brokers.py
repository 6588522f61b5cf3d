"""The workload ``brokers``: single-node brokers that share a network, each with its own producers and consumers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from blumfeld.kernel.composing.plan import Plan
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld_kit.simulation.clients.client import connect
from blumfeld_kit.simulation.clients.consumer import Consumer
from blumfeld_kit.simulation.clients.group_member import GroupMember
from blumfeld_kit.simulation.clients.offsets import fetch_offsets
from blumfeld_kit.simulation.clients.oracle import NEVER_S, Oracle
from blumfeld_kit.simulation.clients.producer import Producer
from blumfeld_kit.simulation.clients.reads import read_all
from blumfeld_kit.simulation.clients.routes import Routes
from blumfeld_kit.simulation.machine.host import ADDRESS, Machine, plan_of
from blumfeld_kit.simulation.network.network import CLIENTS, Vantage
from blumfeld_kit.simulation.swarm.faults import OF_CLUSTERS, OF_ZOOKEEPER, FaultClass
from blumfeld_kit.simulation.swarm.shape import Shape
from blumfeld_kit.simulation.swarm.world import World

FLUSHED, CACHED = "flushed", "cached"
PARTITIONS = {FLUSHED: 3, CACHED: 2}
TOPIC_CONFIGS = {
    FLUSHED: {"flush.messages": "1", "segment.ms": "240000", "index.interval.bytes": "512"},
    CACHED: {"flush.messages": str(2**63 - 1), "segment.ms": "400000", "index.interval.bytes": "512"},
}
CONFIG = {
    "auto.create.topics.enable": False,
    "group.initial.rebalance.delay.ms": 500,
    "log.flush.interval.messages": 1,
    "metadata.max.idle.interval.ms": 0,
    "offsets.topic.num.partitions": 2,
    "offsets.topic.replication.factor": 1,
}
"""Broker configuration. The group's offsets are flushed before they are acknowledged. A node alone writes no empty
metadata records here: each simulated hour would have 7,200 flushes more, a third of the run's time, that nobody reads.
Simulations of several nodes keep Kafka's default."""
GROUP = "group"
RETRY_S = 1.0


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses of the clients."""

    producer_s: float = 2.0
    member_s: float = 1.0
    consumer_wait_ms: int = 1_000


class Brokers:
    """One oracle for each broker. Client ``n`` works with broker ``n`` modulo the number of brokers.

    With one replica a bit that rots takes what was acknowledged, so the class is left to the workload ``rot``.
    """

    survives = frozenset(FaultClass) - OF_CLUSTERS - OF_ZOOKEEPER - {FaultClass.BIT_ROT, FaultClass.STORE}
    pace = Pace()

    def __init__(self) -> None:
        self.oracles: dict[str, Oracle] = {}
        """Oracle of each broker, by the machine's address."""

    def plans(self, shape: Shape) -> Sequence[Plan]:
        return [plan_of(CONFIG, shape.storage, node_id=nth) for nth in range(1, shape.nodes + 1)]

    async def prepare(self, world: World) -> None:
        """Create the topics on every broker."""
        world.cuts_starts = True
        for machine in world.machines:
            oracle = self.oracles[machine.address] = Oracle()
            oracle.restarted_s = NEVER_S
            machine.on_start = partial(_restarted, oracle, world)
            machine.on_power_cut = partial(_power_lost, oracle, world)
            for name, partitions in PARTITIONS.items():
                connection = await connect(world.network, (machine.address, ADDRESS[1]), "admin")
                answer = await connection.ask(_topic_request(name), 5, CreateTopicsResponse)
                connection.close()
                assert answer.topics[0].error_code == 0
                for partition in range(partitions):
                    oracle.add(TopicPartition(name, partition), flushed=name == FLUSHED)

    def clients(self, world: World, until_s: float) -> Sequence[Coroutine[Any, Any, None]]:
        """Out of four clients two produce, one reads, and one is a member of a group."""
        runs: list[Coroutine[Any, Any, None]] = []
        for number in range(world.shape.clients):
            machine = world.machines[number % len(world.machines)]
            runs.append(self._client(world, number, machine).run(until_s))
        return runs

    def _client(self, world: World, number: int, machine: Machine) -> Producer | Consumer | GroupMember:
        oracle = self.oracles[machine.address]
        routes = self._routes(world, machine, f"client-{number}", world.client_address(number))
        kind = number // len(world.machines) % 4
        if kind == 2:
            return Consumer(routes, oracle, list(oracle.partitions), self.pace.consumer_wait_ms)
        if kind == 3:
            return GroupMember(routes, oracle, _flushed(oracle), GROUP, self.pace.member_s)
        return Producer(routes, oracle, list(oracle.partitions), self.pace.producer_s, spread=True)

    def _routes(self, world: World, machine: Machine, name: str, source: str) -> Routes:
        """Return the way of a client to one broker."""
        reach = Vantage(world.network, source)
        return Routes(name, reach, world.chance(name), [(machine.address, ADDRESS[1])])

    async def converge(self, world: World) -> None:
        """Wait until every broker serves a record that is produced now."""
        for machine in world.machines:
            oracle = self.oracles[machine.address]
            routes = self._routes(world, machine, f"last/{machine.address}", CLIENTS)
            await Producer(routes, oracle, list(oracle.partitions), 0.1).run(world.loop.time() + RETRY_S)

    async def check(self, world: World) -> None:
        """Cut the power of every machine once more, read everything, and compare the group's offsets."""
        for machine in world.machines:
            oracle, routes = self.oracles[machine.address], self._auditor(world, machine)
            for partition, it in oracle.partitions.items():
                if it.claimed:
                    it.check_claims(await read_all(routes, oracle, partition))
        for machine in world.machines:
            machine.crash(power_cut=True)
        await asyncio.gather(*(self._audit(world, machine) for machine in world.machines))

    async def _audit(self, world: World, machine: Machine) -> None:
        while not machine.is_serving:
            await asyncio.sleep(RETRY_S)
        oracle, routes = self.oracles[machine.address], self._auditor(world, machine)
        for partition, it in oracle.partitions.items():
            it.check_whole(await read_all(routes, oracle, partition))
            oracle.counts["unsynced"] += it.taken
        offsets = None
        while offsets is None:
            try:
                connection = await routes.coordinator(GROUP)
                offsets = await fetch_offsets(connection, GROUP, _flushed(oracle))
            except OSError:
                await asyncio.sleep(RETRY_S)
        for partition, offset in offsets.items():
            oracle.offsets_fetched(GROUP, partition, offset)

    def _auditor(self, world: World, machine: Machine) -> Routes:
        return self._routes(world, machine, f"auditor/{machine.address}", CLIENTS)

    def progress(self) -> int:
        """Return the records that were acknowledged."""
        return sum(oracle.counts["acked"] for oracle in self.oracles.values())

    def counts(self) -> Mapping[str, int]:
        """Return the sums over all brokers."""
        sums = Counter[str]()
        for oracle in self.oracles.values():
            sums.update(oracle.counts)
        return sums


class Hours(Brokers):
    """As ``Brokers``, with clients that pause for longer: for runs of hours, in which segments roll by their age."""

    pace = Pace(producer_s=8.0, member_s=4.0, consumer_wait_ms=5_000)


def _restarted(oracle: Oracle, world: World) -> None:
    oracle.restarted_s = world.loop.time()


def _power_lost(oracle: Oracle, world: World) -> None:
    for it in oracle.partitions.values():
        it.excuse(world.loop.time())


def _flushed(oracle: Oracle) -> list[TopicPartition]:
    return [at for at, it in oracle.partitions.items() if it.flushed]


def _topic_request(name: str) -> CreateTopicsRequest:
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in TOPIC_CONFIGS[name].items()]
    topic = CreatableTopic(name=name, num_partitions=PARTITIONS[name], replication_factor=1, configs=configs)
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
