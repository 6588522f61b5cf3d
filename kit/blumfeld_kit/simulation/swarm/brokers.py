"""The workload ``brokers``: single-node brokers that share a network, each with its own producers and consumers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from blumfeld.kernel.composing.plan import Plan
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.messages.create_topics import CreateTopicsResponse
from blumfeld_kit.simulation.clients.client import connect
from blumfeld_kit.simulation.clients.consumer import Consumer, check_claims
from blumfeld_kit.simulation.clients.group_member import GroupMember
from blumfeld_kit.simulation.clients.oracle import Oracle
from blumfeld_kit.simulation.clients.producer import Producer
from blumfeld_kit.simulation.machine.host import ADDRESS, Machine, plan_of
from blumfeld_kit.simulation.network.network import Vantage
from blumfeld_kit.simulation.run import CONFIG, FLUSHED, PARTITIONS, topic_request
from blumfeld_kit.simulation.swarm.faults import OF_CLUSTERS, FaultClass
from blumfeld_kit.simulation.swarm.shape import Shape
from blumfeld_kit.simulation.swarm.world import World

PRODUCER_PAUSE_S = 2.0
MEMBER_PAUSE_S = 1.0
CONSUMER_WAIT_MS = 1_000
RETRY_S = 1.0


class Brokers:
    """One oracle for each broker. Client ``n`` works with broker ``n`` modulo the number of brokers.

    With one replica a bit that rots takes what was acknowledged, so the class is left to the workload ``rot``.
    """

    survives = frozenset(FaultClass) - OF_CLUSTERS - {FaultClass.BIT_ROT}

    def __init__(self) -> None:
        self.oracles: dict[str, Oracle] = {}
        """Oracle of each broker, by the machine's address."""

    def plans(self, shape: Shape) -> Sequence[Plan]:
        """See ``Workload``."""
        return [plan_of(CONFIG, shape.storage, node_id=nth) for nth in range(1, shape.nodes + 1)]

    async def prepare(self, world: World) -> None:
        """Create the topics on every broker."""
        for machine in world.machines:
            oracle = self.oracles[machine.address] = Oracle()
            machine.on_start = oracle.restarted
            for name, partitions in PARTITIONS.items():
                connection = await connect(world.network, (machine.address, ADDRESS[1]), "admin")
                answer = await connection.ask(topic_request(name), 5, CreateTopicsResponse)
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
        reach = Vantage(world.network, world.client_address(number))
        address = (machine.address, ADDRESS[1])
        every = list(oracle.partitions)
        name = f"client-{number}"
        kind = number // len(world.machines) % 4
        if kind == 2:
            return Consumer(name, reach, address, oracle, every, max_wait_ms=CONSUMER_WAIT_MS)
        if kind == 3:
            flushed = [at for at in every if at.topic == FLUSHED]
            return GroupMember(
                name,
                "group",
                reach,
                address,
                oracle,
                world.chance(name),
                flushed,
                pause_s=MEMBER_PAUSE_S,
            )
        return Producer(name, reach, address, oracle, world.chance(name), every, pause_s=PRODUCER_PAUSE_S)

    def power_cut(self, machine: Machine) -> None:
        """See ``Workload``."""
        oracle = self.oracles.get(machine.address)
        if oracle is not None:
            oracle.power_cut()

    def rot(self, machine: Machine, chance: random.Random) -> bool:
        """Refuse."""
        return False

    async def converge(self, world: World) -> None:
        """Wait until every broker serves a record that is produced now."""
        for machine in world.machines:
            oracle = self.oracles[machine.address]
            producer = Producer(
                "last",
                world.network,
                (machine.address, ADDRESS[1]),
                oracle,
                world.chance(f"last/{machine.address}"),
                list(oracle.partitions),
                pause_s=0.1,
            )
            await producer.run(world.loop.time() + RETRY_S)

    async def check(self, world: World) -> None:
        """Cut the power of every machine once more, and read everything."""
        for machine in world.machines:
            await check_claims(world.network, (machine.address, ADDRESS[1]), self.oracles[machine.address])
        for machine in world.machines:
            machine.crash(power_cut=True)
        for machine in world.machines:
            while not machine.is_serving:
                await asyncio.sleep(RETRY_S)
            oracle = self.oracles[machine.address]
            reader = Consumer(
                "auditor",
                world.network,
                (machine.address, ADDRESS[1]),
                oracle,
                list(oracle.partitions),
                max_wait_ms=0,
            )
            for partition, found in (await reader.read_all()).items():
                oracle.partitions[partition].check_whole(found)

    def progress(self) -> int:
        """Return the records that were acknowledged."""
        return sum(oracle.counts.acked for oracle in self.oracles.values())

    def counts(self) -> Mapping[str, int]:
        """Return the sums over all brokers."""
        sums: dict[str, int] = {}
        for oracle in self.oracles.values():
            for name, value in msgspec.structs.asdict(oracle.counts).items():
                sums[name] = sums.get(name, 0) + value
        return sums
