"""The base of the consensus contract: whole nodes on simulated machines, and what a plug-in declares that it lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import StrEnum
from importlib.metadata import EntryPoint
from random import Random
from typing import Any, ClassVar, TypeVar

import pytest

from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.consensus import ClusterMetadata, OnBehalf
from blumfeld.spi.context import Principal
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from blumfeld.wire.schema import Message
from blumfeld_kit.fakes.loop import SimulatedLoop
from blumfeld_kit.not_tried import not_tried
from blumfeld_kit.simulation.machine.host import ADDRESS, DATA_DIR, Machine, address_of, plan_of
from blumfeld_kit.simulation.network.network import Network
from blumfeld_kit.simulation.trace import Trace

M = TypeVar("M", bound=Message)
SEEDS_A_RUN = 1_000
CLIENT = OnBehalf(Principal("User", "ANONYMOUS"), "10.9.0.1", "contract")
LOOK_S = 0.02
WAIT_S = 60.0
TIMEOUT_MS = 10_000.0
CONFIG = {
    "auto.create.topics.enable": False,
    "broker.session.timeout.ms": 4_000,
    "broker.heartbeat.interval.ms": 800,
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 1,
    "replica.lag.time.max.ms": 2_500,
    "replica.socket.timeout.ms": 3_000,
}


class Ability(StrEnum):
    """A promise that a consensus may lack. It says so, and why, in :attr:`ConsensusKit.lacks`."""

    FORWARDING = "forwarding"
    """Each node passes a client's command on to the controller."""
    QUORUM = "quorum"
    """``quorum()`` describes a quorum of its own, and its leader is the controller."""
    APPLIED_OFFSET = "applied_offset"
    """``applied_offset`` grows with what the image contains."""
    FENCED_BROKERS = "fenced_brokers"
    """A broker that is dead stays registered, and is shown as fenced."""
    FEATURES = "features"
    """Feature levels are finalized."""
    DIRECTORIES = "directories"
    """The directory of each replica is kept (AssignReplicasToDirs)."""
    BROKER_EPOCHS = "broker_epochs"
    """Each node's image has the epochs of all brokers."""


class Nodes:
    """Whole nodes of one test."""

    def __init__(self, kit: ConsensusKit, count: int, seed: int) -> None:
        self.loop = SimulatedLoop()
        self.network = Network(self.loop, Random(f"{seed}/network"), Trace(self.loop.time))
        self.defects: list[tuple[str, BaseException]] = []
        ids = range(1, count + 1)
        sections, plugins = kit.node_sections(ids), kit.plugins()
        self.machines = [self._machine(kit, node_id, sections(node_id), plugins, seed) for node_id in ids]

    def _machine(
        self,
        kit: ConsensusKit,
        node_id: int,
        sections: Mapping[str, Any],
        plugins: Sequence[EntryPoint],
        seed: int,
    ) -> Machine:
        bind = f"{address_of(node_id)}:{ADDRESS[1]}"
        base = {
            "node": {"id": node_id, "data_dir": DATA_DIR},
            "network": {
                "plugin": "net_simulated",
                "listeners": [{"name": "PLAINTEXT", "bind": bind, "inter_broker": True}],
            },
        }
        laid = {**base, **{key: value for key, value in sections.items() if key != "config"}}
        config = {**CONFIG, **kit.config, **sections.get("config", {})}
        plan = plan_of(config, "storage_local", node_id=node_id, sections=laid, plugins=plugins)
        return Machine(
            seed * SEEDS_A_RUN + node_id, self.loop, self.network, plan, lambda *at: self.defects.append(at)
        )

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        """Start all nodes, and run a story to its end. A defect that a node has logged fails the test."""

        async def told() -> None:
            starts = [asyncio.ensure_future(machine.start()) for machine in self.machines]
            assert all(await asyncio.gather(*starts))
            try:
                await story
            finally:
                for machine in self.machines:
                    machine.end()

        self.loop.run(told())
        assert not self.defects, self.defects

    @property
    def ids(self) -> list[int]:
        """The nodes whose process is there and started."""
        return [node_id for node_id, machine in enumerate(self.machines, 1) if machine.is_serving]

    def machine(self, node_id: int) -> Machine:
        """Return the machine of a node."""
        return self.machines[node_id - 1]

    def metadata(self, node_id: int) -> ClusterMetadata:
        """Return the consensus of a node's process."""
        composition: Any = self.machine(node_id).node
        metadata: ClusterMetadata = composition.composition.metadata
        return metadata

    def image(self, node_id: int) -> ClusterImage:
        """Return the image of a node."""
        return self.metadata(node_id).image

    def broker_epoch(self, node_id: int) -> int:
        """Return the epoch that a node's broker was given."""
        node: Any = self.machine(node_id).node
        epoch: int = node.broker.membership.broker_epoch
        return epoch

    @property
    def controller(self) -> int:
        """The node that says that it is the controller, of the newest epoch; 0 if none does."""
        known = [(self.metadata(one).controller, one) for one in self.ids]
        own = [(at.epoch, one) for at, one in known if at is not None and at.node_id == one]
        return max(own, default=(0, 0))[1]

    async def begun(self) -> int:
        """Wait until every node knows one controller and all brokers. Return the controller's node."""

        def agreed() -> bool:
            known = {self.metadata(one).controller for one in self.ids}
            alive = {
                tuple(sorted(b.broker_id for b in self.image(one).brokers.values() if not b.fenced))
                for one in self.ids
            }
            return len(known) == 1 and None not in known and alive == {tuple(self.ids)}

        await self.until(agreed, "all nodes to know one controller and all brokers")
        return self.controller

    async def successor(self, former: int) -> int:
        """Wait until another node than this one is the controller. Return it."""
        await self.until(lambda: self.controller not in (0, former), "another controller")
        return self.controller

    async def submit(
        self,
        node_id: int,
        command: Message,
        expected: type[M],
        *,
        timeout_ms: float = TIMEOUT_MS,
        on_behalf: OnBehalf | None = None,
    ) -> M:
        """Submit a command at a node, and return the response. :raises BrokerError: it failed"""
        machine = self.machine(node_id)
        completion = self.metadata(node_id).submit(command, timeout_ms, on_behalf=on_behalf)
        response = await machine.run(completion)
        assert isinstance(response, expected), response
        return response

    async def create(self, node_id: int, name: str, partitions: int = 1, replicas: int = 3) -> ErrorCode:
        """Create a topic on a client's behalf. Return the code of the topic's result."""
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(TIMEOUT_MS))
        answer = await self.submit(node_id, request, CreateTopicsResponse, on_behalf=CLIENT)
        return ErrorCode(answer.topics[0].error_code)

    async def code_of(self, completion: Coroutine[Any, Any, Any]) -> ErrorCode:
        """Return the code that a command fails with; NONE if it doesn't."""
        try:
            await completion
        except BrokerError as error:
            return ErrorCode(error.code)
        return ErrorCode.NONE

    async def until(self, condition: Callable[[], object], what: str, seconds: float = WAIT_S) -> None:
        """Wait on virtual time."""
        end_s = self.loop.time() + seconds
        while not condition():
            assert self.loop.time() < end_s, f"waited {seconds:g} s for {what}"
            await asyncio.sleep(LOOK_S)


class ConsensusKit:
    """What a subclass says of its consensus, and what it must override."""

    lacks: ClassVar[Mapping[str, str]] = {}
    """Ability → why the consensus hasn't it. Its test is shown as not applicable, with the reason. It is tried all the
    same, and fails if the consensus has the ability: a declaration that isn't needed hides what is tested nowhere."""
    config: ClassVar[Mapping[str, Any]] = {}
    """Broker configuration of each node, laid over the kit's."""
    nodes = 3
    seed = 1

    def node_sections(self, node_ids: Sequence[int]) -> Callable[[int], Mapping[str, Any]]:
        """Return what gives the sections of a node's manifest: ``consensus``, and others where yours needs them.

        Called once a test, for a cluster that is empty. The nodes run on simulated machines: their hosts are
        ``address_of(node_id)`` of ``blumfeld_kit.simulation.machine.host``.
        """
        raise NotImplementedError("override node_sections")

    def plugins(self) -> Sequence[EntryPoint]:
        """Return plug-ins that aren't installed. Called after :meth:`node_sections`."""
        return ()

    def take_away(self, nodes: Nodes, node_id: int) -> None:
        """Take from this node all that a decision needs beside itself. By default the other nodes' processes end."""
        for other in nodes.ids:
            if other != node_id:
                nodes.machine(other).crash(power_cut=False)

    @pytest.fixture
    def opened(self) -> Nodes:
        """Your nodes, not started."""
        self.check_declarations()
        return Nodes(self, self.nodes, self.seed)

    def check_declarations(self) -> None:
        """Refuse a declaration of something that isn't an ability."""
        unknown = sorted(set(self.lacks) - {ability.value for ability in Ability})
        allowed = ", ".join(ability.value for ability in Ability)
        assert not unknown, f"lacks: there is no ability {unknown[0]!r}; allowed are {allowed}"

    def try_ability(self, ability: Ability, run: Callable[[], None]) -> None:
        """Run a test of an ability that a consensus may lack."""
        reason = self.lacks.get(ability.value)
        if reason is None:
            run()
            return
        try:
            run()
        except Exception:  # also a wait that was too long, or a command that is refused
            not_tried(
                f"the consensus contract of {type(self).__name__}",
                f"not applicable: {ability.value}: {reason}",
            )
        pytest.fail(
            f"{type(self).__name__}.lacks declares {ability.value!r} ({reason}), and the consensus has it: take the "
            "declaration away, so that the promise is tested"
        )
