"""Real nodes on simulated machines, with a simulated ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from importlib.metadata import EntryPoint
from random import Random
from typing import Any, cast

from blumfeld.kernel.composing.plan import Plan
from blumfeld.plugging.registry import GROUP
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition
from blumfeld.spi.zookeeper import ZooKeeper
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import split_batches
from blumfeld.wire.batches.records import Record, records
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from blumfeld.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataResponse
from blumfeld.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from blumfeld_consensus_zk_compat import Plugin
from blumfeld_consensus_zk_compat.zk_metadata import ZkMetadata
from blumfeld_kit.fakes.loop import SimulatedLoop
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.fakes.zookeeper import SimulatedZooKeeper
from blumfeld_kit.fakes.zookeeper_session import SimulatedSession
from blumfeld_kit.simulation.clients.client import ClientConnection, connect
from blumfeld_kit.simulation.machine.host import ADDRESS, Machine, address_of, plan_of
from blumfeld_kit.simulation.network.network import Network
from blumfeld_kit.simulation.trace import Trace

CONFIG = {
    "auto.create.topics.enable": False,
    "replica.lag.time.max.ms": 2_000,
    "replica.socket.timeout.ms": 3_000,
    "replica.fetch.backoff.ms": 200,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}
SESSION_TIMEOUT_MS = 6_000


class ZkNodes:
    """The machines, the ZooKeeper and the network of one seed."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        seed: int = 1,
        chroot: str = "/blumfeld",
        config: dict[str, Any] | None = None,
        prepared: Callable[[SimulatedZooKeeper], None] = lambda _: None,
    ) -> None:
        self.loop = SimulatedLoop()
        self.network = Network(self.loop, Random(f"{seed}/network"), Trace(self.loop.time))
        self.zookeeper = SimulatedZooKeeper(FakeRuntime(seed, loop=self.loop))
        prepared(self.zookeeper)
        self.sessions: dict[int, SimulatedSession] = {}
        """The latest of each node."""
        self.defects: list[tuple[str, BaseException]] = []
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        self.chroot = chroot
        self.config = CONFIG | (config or {})
        self._seed = seed
        self.machines = [self._machine(node_id, self._first_plan(node_id)) for node_id in range(1, nodes + 1)]

    def _first_plan(self, node_id: int) -> Plan:
        return self._plan(node_id, {"consensus": self._part()})

    def _part(self, **options: Any) -> dict[str, Any]:
        """The section of a role that the plug-in has."""
        options = {"connect": f"zookeeper:2181{self.chroot}", "connection_timeout_ms": 10_000, **options}
        return {"plugin": "consensus_zk_simulated", "options": options}

    def _plan(self, node_id: int, sections: dict[str, Any], **keys: str) -> Plan:
        """The plan of a node whose sessions are simulated."""
        nodes = self

        class Simulated(Plugin):
            def zookeeper(self, composition: Composition, *, create_chroot: bool) -> ZooKeeper:
                session = nodes.zookeeper.session(
                    composition.runtime,
                    chroot=nodes.chroot,
                    create_chroot=create_chroot,
                    timeout_ms=SESSION_TIMEOUT_MS,
                )
                nodes.sessions[node_id] = session
                return session

        class Point(EntryPoint):
            def load(self) -> Any:
                return Simulated

        return plan_of(
            self.config | keys,
            "storage_local",
            node_id=node_id,
            sections=sections,
            plugins=[Point("consensus_zk_simulated", "tests:Plugin", GROUP)],
        )

    def _machine(self, node_id: int, plan: Plan) -> Machine:
        machine = Machine(
            self._seed * 10 + node_id,
            self.loop,
            self.network,
            plan,
            lambda where, error: self.defects.append((where, error)),
        )
        machine.on_event = lambda event, values: self.events.append((node_id, event, dict(values)))
        return machine

    def run(self, story: Coroutine[Any, Any, None], *, started: bool = True) -> None:
        """Start all nodes, unless the story does, and run the story to its end."""

        async def told() -> None:
            for start in [asyncio.ensure_future(m.start()) for m in self.machines if started]:
                assert await start, self.events[-10:]
            await story
            for machine in self.machines:
                machine.end()

        self.loop.run(told())
        assert not self.defects, self.defects

    def machine(self, node_id: int) -> Machine:
        return self.machines[node_id - 1]

    def metadata(self, node_id: int) -> ZkMetadata:
        node = self.machine(node_id).node
        assert node is not None
        metadata: Any = node.composition.metadata
        return cast("ZkMetadata", metadata)

    @property
    def controller(self) -> int:
        """The node that is the controller; 0 if none is."""
        for node_id, machine in enumerate(self.machines, start=1):
            if machine.is_running and machine.node is not None:
                controller = self.metadata(node_id).controller
                if controller is not None and controller.node_id == node_id:
                    return node_id
        return 0

    def leader(self, topic: str, node_id: int, index: int = 0) -> int:
        """The leader that a node shows; -1 if it shows none."""
        known = self.metadata(node_id).image.topics.get(topic)
        return -1 if known is None or index not in known.partitions else known.partitions[index].leader

    def hosts(self, topic: str, node_id: int, index: int = 0) -> bool:
        """Whether a node has a replica."""
        node = self.machine(node_id).node
        assert node is not None
        broker: Any = node.broker
        return broker.partitions.find(topic, index) is not None

    def broker_epoch(self, node_id: int) -> int:
        """The epoch that a node's broker has by its own knowledge."""
        node = self.machine(node_id).node
        assert node is not None
        return node.broker.membership.broker_epoch

    def leads(self, topic: str, node_id: int, index: int = 0) -> bool:
        """Whether a node's replica leads."""
        node = self.machine(node_id).node
        if node is None or not self.machine(node_id).is_running:
            return False
        broker: Any = node.broker
        replica = broker.partitions.find(topic, index)
        return replica is not None and replica.leader is not None

    async def connect(self, node_id: int) -> ClientConnection:
        return await connect(self.network, (address_of(node_id), ADDRESS[1]), "test")

    async def create(self, topic: str, partitions: int = 1, replicas: int = 1) -> None:
        """Create a topic at the controller, and wait until every node shows it."""
        await self.until(lambda: self.controller > 0)
        client = await self.connect(self.controller)
        wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=replicas)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
        answer = await client.ask(request, 5, CreateTopicsResponse)
        assert answer.topics[0].error_code == 0, answer
        client.close()
        running = [node_id for node_id, machine in enumerate(self.machines, start=1) if machine.is_running]
        for node_id in running:
            await self.until(lambda at=node_id: self.leader(topic, at, partitions - 1) > 0)  # type: ignore[misc]

    async def produce(self, topic: str, values: Sequence[bytes], *, node_id: int = 0, index: int = 0) -> int:
        """Send one batch with acks=all to a node, or to the leader that node 1 shows. Returns the error code."""
        client = await self.connect(node_id or self.leader(topic, self.alive, index))
        batch = build_batch([Record(value=value, timestamp=1_700_000_000_000) for value in values])
        data = [PartitionProduceData(index=index, records=bytes(batch))]
        request = ProduceRequest(
            acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
        )
        answer = await client.ask(request, 9, ProduceResponse)
        client.close()
        return answer.responses[0].partition_responses[0].error_code

    async def fetch(self, topic: str, *, index: int = 0) -> list[bytes]:
        """The values that a consumer reads from the leader."""
        client = await self.connect(self.leader(topic, self.alive, index))
        partition = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        wanted = [FetchTopic(topic=topic, partitions=[partition])]
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=wanted)
        answer = await client.ask(request, 12, FetchResponse)
        client.close()
        (data,) = answer.responses[0].partitions
        assert data.error_code == 0
        return [
            bytes(record.value or b"")
            for batch in split_batches(memoryview(bytearray(cast("memoryview", data.records))))
            for record in records(batch)
        ]

    @property
    def alive(self) -> int:
        """The first node that runs."""
        return next(node_id for node_id, m in enumerate(self.machines, start=1) if m.is_running)

    async def shown(self, node_id: int) -> MetadataResponse:
        """What a node answers to Metadata."""
        client = await self.connect(node_id)
        answer = await client.ask(MetadataRequest(topics=None), 12, MetadataResponse)
        client.close()
        return answer

    async def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait on virtual time."""
        end = self.loop.time() + seconds
        while not condition():
            assert self.loop.time() < end, self.events[-20:]
            await self.pause(10)

    async def pause(self, ms: float) -> None:
        over: Completion[None] = Completion()
        self.loop.call_later(ms / 1_000, over.complete, None)
        await over
