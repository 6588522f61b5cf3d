"""Brokers with a simulated ZooKeeper, and a quorum of controllers that they migrate to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import EntryPoint
from typing import Any, cast

from blumfeld.kernel.composing.plan import Plan
from blumfeld.metadata.brokers.migration import MigrationState, migration_state
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.plugging.registry import GROUP
from blumfeld.spi.cluster import TOPIC_RESOURCE, PartitionImage
from blumfeld.spi.hooks import Composition
from blumfeld.spi.scheduler import Lane
from blumfeld.spi.zookeeper import ZooKeeper
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from blumfeld.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat import Plugin
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import MigrationNode, encode_migration
from blumfeld_consensus_zk_compat.tree.loading import Loaded, loaded
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.fakes.zookeeper_session import SimulatedSession
from blumfeld_kit.simulation.machine.host import ADDRESS, Machine, address_of, plan_of
from tests.plugins.consensus_zk_compat.zk_nodes import SESSION_TIMEOUT_MS, ZkNodes

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
CONTROLLER_PORT = 9093
QUORUM = (4, 5, 6)


class Migrating(ZkNodes):
    """Brokers 1 to 3 with the ZooKeeper, and controllers 4 to 6, which aren't started by :meth:`run`."""

    def __init__(self, *, seed: int = 1, quorum: int = 3, config: dict[str, Any] | None = None) -> None:
        self.ready = True
        self.quorum = QUORUM[:quorum]
        self._plans: dict[int, Callable[[], Plan]] = {}
        super().__init__(3, seed=seed, config=config)
        self.all = dict(enumerate(self.machines, start=1))
        for node_id in self.quorum:
            self.all[node_id] = self._made(seed, node_id, self._plan(node_id, "controller"))
        self._observers = 0

    # Machines

    def _machine(self, seed: int, node_id: int) -> Machine:
        return self._made(seed, node_id, self._plan(node_id, "zookeeper"))

    def _made(self, seed: int, node_id: int, plan: Plan) -> Machine:
        machine = Machine(
            seed * 10 + node_id,
            self.loop,
            self.network,
            plan,
            lambda where, error: self.defects.append((where, error)),
        )
        machine.on_event = lambda event, values: self.events.append((node_id, event, dict(values)))
        return machine

    def _plan(self, node_id: int, kind: str) -> Plan:
        """The plan of a node: ``zookeeper``, ``unready`` (a broker that takes part in no migration), ``kraft``,
        ``controller``, or ``ended`` (a controller without a migration)."""
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

        of_quorum = kind in ("controller", "ended")
        options = {"connect": f"zookeeper:2181{self.chroot}", "connection_timeout_ms": 10_000}
        part = {"plugin": "consensus_zk_simulated", "options": options}
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
            sections["consensus"] = part
            part["options"] = options | {"metadata_migration_enable": kind == "zookeeper"}
        elif kind == "controller":
            sections["migration"] = part
        voters = ",".join(f"{voter}@{address_of(voter)}:{CONTROLLER_PORT}" for voter in self.quorum)
        keys = {} if kind in ("zookeeper", "unready") else {"controller.quorum.voters": voters}
        return plan_of(
            self.config | keys,
            "storage_local",
            node_id=node_id,
            sections=sections,
            plugins=[Point("consensus_zk_simulated", "tests:Plugin", GROUP)],
        )

    async def as_kind(self, node_id: int, kind: str, *, kill: bool = False) -> None:
        """Start a node again as another kind."""
        machine = self.all[node_id]
        if machine.is_running:
            if kill:
                machine.crash(power_cut=False)
            else:
                await machine.stop()
        machine._plan = self._plan(node_id, kind)
        assert await machine.start(), self.events[-10:]

    async def start_quorum(self) -> None:
        """Start the controllers."""
        starts = [asyncio.ensure_future(self.all[node_id].start()) for node_id in self.quorum]
        for start in starts:
            assert await start, self.events[-10:]

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
        """What the operator does once the controllers are stopped."""
        async with self.tree_session() as session:
            await session.delete(paths.CONTROLLER)
            await session.set(paths.MIGRATION, encode_migration(MigrationNode()))


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
