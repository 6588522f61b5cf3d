"""Brokers with a simulated ZooKeeper, and a quorum of controllers that they migrate to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from blumfeld.kernel.composing.plan import Plan
from blumfeld.metadata.brokers.migration import MigrationState, migration_state
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.cluster import TOPIC_RESOURCE, Endpoint, PartitionImage
from blumfeld.spi.scheduler import Lane
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from blumfeld.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.commands.tree_work import roll_back
from blumfeld_consensus_zk_compat.tree.loading import Loaded, loaded
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.fakes.zookeeper_session import SimulatedSession
from blumfeld_kit.simulation.machine.host import ADDRESS, address_of
from tests.plugins.consensus_zk_compat.zk_nodes import SESSION_TIMEOUT_MS, ZkNodes

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
CONTROLLER_PORT = 9093
QUORUM = (4, 5, 6)


class Migrating(ZkNodes):
    """Brokers 1 to 3 with the ZooKeeper, and controllers 4 to 6, which aren't started by :meth:`run`."""

    def __init__(self, *, seed: int = 1, quorum: int = 3, config: dict[str, Any] | None = None) -> None:
        self.ready = True
        self.quorum = QUORUM[:quorum]
        super().__init__(3, seed=seed, config=config)
        self.all = dict(enumerate(self.machines, start=1))
        for node_id in self.quorum:
            self.all[node_id] = self._machine(node_id, self._plan_of(node_id, "controller"))
        self._observers = 0

    # Machines

    def _first_plan(self, node_id: int) -> Plan:
        return self._plan_of(node_id, "zookeeper")

    def _plan_of(self, node_id: int, kind: str) -> Plan:
        """The plan of a node: ``zookeeper``, ``unready`` (a broker that takes part in no migration), ``kraft``,
        ``controller``, or ``ended`` (a controller without a migration)."""
        of_quorum = kind in ("controller", "ended")
        listener: dict[str, Any] = {"name": "PLAINTEXT", "bind": f"{address_of(node_id)}:{ADDRESS[1]}"}
        if of_quorum:
            bind = f"{address_of(node_id)}:{CONTROLLER_PORT}"
            listener = {"name": "CONTROLLER", "kind": "controller", "bind": bind}
        sections: dict[str, Any] = {
            "node": {
                "id": node_id,
                "roles": ("controller",)
                if of_quorum
                else ("broker",)
                if kind == "kraft"
                else ("broker", "controller"),
                "data_dir": "/data",
                "cluster_id": CLUSTER_ID,
            },
            "network": {"plugin": "net_simulated", "listeners": [listener]},
        }
        if kind in ("zookeeper", "unready"):
            sections["consensus"] = self._part(metadata_migration_enable=kind == "zookeeper")
            return self._plan(node_id, sections)
        if kind == "controller":
            sections["migration"] = self._part()
        voters = ",".join(f"{voter}@{address_of(voter)}:{CONTROLLER_PORT}" for voter in self.quorum)
        return self._plan(node_id, sections, **{"controller.quorum.voters": voters})

    async def as_kind(self, node_id: int, kind: str, *, kill: bool = False) -> None:
        """Start a node again as another kind."""
        machine = self.all[node_id]
        if machine.is_running:
            if kill:
                machine.crash(power_cut=False)
            else:
                await machine.stop()
        machine._plan = self._plan_of(node_id, kind)
        assert await machine.start(), self.events[-10:]

    async def start_quorum(self) -> None:
        """Start the controllers."""
        starts = [asyncio.ensure_future(self.all[node_id].start()) for node_id in self.quorum]
        for start in starts:
            assert await start, self.events[-10:]

    async def begin(self, partitions: int = 1) -> None:
        """Create the topic ``orders``, and migrate until the tree follows the log."""
        await self.create("orders", partitions, 3)
        await self.start_quorum()
        await self.migrated()

    async def migrated(self) -> None:
        """Wait until the tree follows the log."""
        await self.until(lambda: self.said("the ZooKeeper follows the log"), 90)

    def said(self, event: str) -> int:
        """How often an event was logged."""
        return sum(1 for _, said, _ in self.events if said == event)

    # What the quorum has

    @property
    def leader_of_quorum(self) -> int:
        """The controller that leads; 0 if none does."""
        for node_id in self.quorum:
            machine = self.all[node_id]
            if machine.is_running and machine.node is not None:
                metadata = machine.node.composition.metadata
                if metadata.controller is not None and metadata.controller.node_id == node_id:
                    return node_id
        return 0

    @property
    def log_image(self) -> MetadataImage:
        node = self.all[self.leader_of_quorum or self.quorum[0]].node
        assert node is not None
        return cast("MetadataImage", node.composition.metadata.image)

    @property
    def state(self) -> MigrationState:
        return migration_state(self.log_image)

    def image(self, node_id: int) -> MetadataImage:
        return cast("MetadataImage", self.metadata(node_id).image)

    async def create_at(self, node_id: int, topic: str, partitions: int = 1, replicas: int = 3) -> int:
        """Create a topic at any broker. Returns the error code."""
        wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=replicas)
        answer = await self.ask(
            node_id, CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 5, CreateTopicsResponse
        )
        return cast("int", answer.topics[0].error_code)

    async def alter(self, node_id: int, topic: str, name: str, value: str) -> int:
        """Set a configuration of a topic at any broker. Returns the error code."""
        request = altering(topic, name, value)
        answer = await self.ask(node_id, request, 1, IncrementalAlterConfigsResponse)
        return cast("int", answer.responses[0].error_code)

    async def write(self, topic: str, value: bytes) -> None:
        """Send a record with acks=all until it is acknowledged, as a producer does."""
        end = self.loop.time() + 90
        while True:
            leader = self.leader(topic, self.alive)
            code = (
                await self.produce(topic, [value]) if leader > 0 and self.machine(leader).is_serving else -1
            )
            if code == 0:
                return
            assert self.loop.time() < end, self.events[-20:]
            await self.pause(100)

    async def values(self, topic: str) -> list[bytes]:
        """The values of a topic, each once: one that was sent again may be there twice."""
        await self.until(lambda: self.leader(topic, self.alive) > 0)
        return list(dict.fromkeys(await self.fetch(topic)))

    async def ask(self, node_id: int, request: Message, version: int, response: type[Any]) -> Any:
        client = await self.connect(node_id)
        answer = await client.ask(request, version, response)
        client.close()
        return answer

    # What the tree has

    @asynccontextmanager
    async def tree_session(self) -> AsyncIterator[SimulatedSession]:
        """A session of the operator's."""
        self._observers += 1
        runtime = FakeRuntime(9_000 + self._observers, loop=self.loop)
        session = self.zookeeper.session(runtime, chroot=self.chroot, timeout_ms=SESSION_TIMEOUT_MS)
        await session.connect(10_000)
        try:
            yield session
        finally:
            await session.close()

    async def tree(self) -> Loaded:
        """The tree as it is now."""
        async with self.tree_session() as session:
            runtime = FakeRuntime(1, loop=self.loop)
            return await runtime.scheduler.completed(Lane.METADATA, loaded(session, in_migration=True))

    async def check_equal(self) -> None:
        """Check that the tree is the log's image, as far as a tree has a place for it."""
        last: tuple[Any, Any] = (None, None)
        for _ in range(600):
            last = described(self.log_image), described((await self.tree()).image)
            if last[0] == last[1]:
                return
            await self.pause(50)
        assert last[0] == last[1]

    async def roll_back(self) -> None:
        """Stop the controllers, and give the tree back as the operator does."""
        for node_id in self.quorum:
            await self.all[node_id].stop()
        async with self.tree_session() as session:
            await roll_back(session, self._listens)

    async def _listens(self, endpoint: Endpoint) -> bool:
        return any(
            self.all[node_id].is_running for node_id in self.quorum if address_of(node_id) == endpoint.host
        )


def altering(topic: str, name: str, value: str) -> IncrementalAlterConfigsRequest:
    """A request that sets a configuration of a topic."""
    resource = AlterConfigsResource(
        resource_type=TOPIC_RESOURCE,
        resource_name=topic,
        configs=[AlterableConfig(name=name, config_operation=0, value=value)],
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


def described(image: MetadataImage) -> dict[str, Any]:
    """What both have of an image."""

    def partition(at: PartitionImage) -> tuple[Any, ...]:
        return (
            at.replicas,
            at.isr,
            at.leader,
            at.leader_epoch,
            at.partition_epoch,
            at.adding_replicas,
            at.removing_replicas,
        )

    return {
        "topics": {
            name: (topic.topic_id, {number: partition(at) for number, at in topic.partitions.items()})
            for name, topic in sorted(image.topics.items())
        },
        "configs": {key: dict(values) for key, values in sorted(image.configs.items())},
        "producer ids": None if image.producer_ids is None else image.producer_ids.next_producer_id,
    }
