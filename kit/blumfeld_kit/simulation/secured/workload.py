"""The workload ``secured``: the workload ``cluster`` with SASL on all listeners, and ACLs that change all the time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any

from blumfeld.kernel.composing.plan import Plan
from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.simulation.clients.client import ClientConnection
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.clients.producer import Producer
from blumfeld_kit.simulation.clients.routes import RETRY_S, Routes
from blumfeld_kit.simulation.cluster.watch import LOOK_S, metadata_of
from blumfeld_kit.simulation.cluster.workload import CONFIG, PRODUCER_PAUSE_S, Cluster
from blumfeld_kit.simulation.machine.host import ADDRESS, Machine, address_of
from blumfeld_kit.simulation.network.network import Vantage
from blumfeld_kit.simulation.secured import nodes
from blumfeld_kit.simulation.secured.administrator import ANY_ACL, Administrator
from blumfeld_kit.simulation.secured.logins import AdminRoutes
from blumfeld_kit.simulation.secured.passwords import USERS, Passwords
from blumfeld_kit.simulation.secured.rights import (
    ALL,
    ALLOW,
    CLUSTER,
    CLUSTER_NAME,
    GROUP,
    LITERAL,
    TOPIC,
    Rule,
)
from blumfeld_kit.simulation.secured.tree_verdicts import TreeVerdicts
from blumfeld_kit.simulation.secured.user import Place, User
from blumfeld_kit.simulation.secured.verdicts import LogVerdicts, Moment, SecuredOracle, Verdicts, state_of
from blumfeld_kit.simulation.swarm.faults import chance_of
from blumfeld_kit.simulation.swarm.shape import KRAFT, Shape
from blumfeld_kit.simulation.swarm.world import World

TOPICS = {"work": 2, "wares": 2}
REAUTH_MS = (0, 2_500, 5_000)
"""``connections.max.reauth.ms``; 0: sessions don't end."""
SMALL_SNAPSHOTS = {
    "controller.quorum.fetch.snapshot.max.bytes": 1_500,
    "internal.metadata.log.segment.bytes": 512,
    "metadata.log.max.record.bytes.between.snapshots": 512,
    "metadata.max.retention.bytes": 512,
}
TAKEN_S_MAX = 10.0
"""Time in good weather within which each node acts on a right."""


class Secured(Cluster):
    """Nodes log in at one another by PLAIN, users by SCRAM. One client of four changes rights and passwords, two are
    users under changing names, and one produces under a name that may do everything."""

    topics: Mapping[str, int] = TOPICS
    small_snapshots: Mapping[str, Any] = SMALL_SNAPSHOTS
    oracle: SecuredOracle

    def __init__(self) -> None:
        super().__init__()
        self.oracle = SecuredOracle()
        self.verdicts: Verdicts
        self._passwords = Passwords()
        self._following: asyncio.Task[None] | None = None

    def plans(self, shape: Shape) -> Sequence[Plan]:
        reauth_ms = chance_of(shape.seed, "sessions").choice(REAUTH_MS)
        security = nodes.CONFIG if shape.consensus == KRAFT else nodes.ZOOKEEPER_CONFIG
        self.config = {**CONFIG, **security, "connections.max.reauth.ms": reauth_ms}
        return super().plans(shape)

    def storage_of(self, shape: Shape) -> tuple[Mapping[str, Any], Sequence[EntryPoint]]:
        """Return the security of each node beside what ``Cluster`` returns."""
        sections, plugins = super().storage_of(shape)
        return {**sections, "security": nodes.SECTION}, [*plugins, nodes.plugin()]

    def _watch_begins(self, world: World) -> None:
        counts = self.oracle.counts
        if world.coordination is None:
            self.verdicts = LogVerdicts(self._watch, counts)
        else:
            self.verdicts = TreeVerdicts(world.coordination.oracle, counts)
        self.oracle.now = lambda: {machine.address: self.verdicts.now(machine) for machine in world.machines}
        self._following = world.loop.create_task(self._follow(world))

    async def _follow(self, world: World) -> None:
        """Read the metadata log before the watch looks at all else: a snapshot may take its first records away."""
        while True:
            for machine in world.machines:
                self.verdicts.read(machine)
            await asyncio.sleep(LOOK_S)

    async def prepare(self, world: World) -> None:
        """As ``Cluster.prepare``, and give each user a password and some rights."""
        await super().prepare(world)
        assert self._following is not None
        self._following.cancel()
        administrator = self._administrator(world, "first administrator", 0)
        for user in USERS:
            await administrator.until_done(partial(administrator.set_password, user))
        rules = [Rule(TOPIC, "w", 4, f"User:{user}", "*", ALL, ALLOW) for user in USERS[:2]]
        await administrator.until_done(partial(administrator.create, rules))

    def clients(self, world: World, until_s: float) -> Sequence[Coroutine[Any, Any, None]]:
        """See the class."""
        assert self._watching is not None
        self._until_s, self._loop = until_s, world.loop
        runs: list[Coroutine[Any, Any, None]] = [self._watch_fails()]
        partitions = list(self.oracle.partitions)
        for number in range(world.shape.clients):
            if number % 4 == 0:
                routes = self._routes(world, f"producer-{number}", world.client_address(number))
                runs.append(Producer(routes, self.oracle, partitions, PRODUCER_PAUSE_S).run(until_s))
            elif number % 4 == 2:
                runs.append(self._administrator(world, f"administrator-{number}", number).run(until_s))
            else:
                runs.append(self._user(world, f"user-{number}", number).run(until_s))
        return runs

    def _administrator(self, world: World, name: str, number: int) -> Administrator:
        routes = self._routes(world, name, world.client_address(number))
        return Administrator(
            routes,
            self.verdicts,
            self._passwords,
            partial(self._moment_of, world),
            world.client_addresses,
            self._busy(world),
        )

    def _moment_of(self, world: World, connection: ClientConnection) -> Moment:
        [machine] = [each for each in world.machines if each.address == connection.peer_host]
        return self.verdicts.now(machine)

    def _user(self, world: World, name: str, number: int) -> User:
        address = world.client_address(number)
        brokers = [world.machines[node_id - 1] for node_id in self._brokers]
        return User(
            name,
            address,
            Vantage(world.network, address),
            world.chance(name),
            Place(brokers, list(self.oracle.partitions), partial(self._leader, world)),
            self.oracle,
            self.verdicts,
            self._passwords,
            self._runtime(world, name),
        )

    def _leader(self, world: World, partition: TopicPartition) -> Machine | None:
        image = self._watch.newest_image()
        topic = None if image is None else image.topics.get(partition.topic)
        leader = -1 if topic is None else topic.partitions[partition.partition].leader
        return world.machines[leader - 1] if leader > 0 else None

    def _routes(self, world: World, name: str, address: str) -> Routes:
        bootstrap = [(address_of(node_id), ADDRESS[1]) for node_id in self._brokers]
        reach = Vantage(world.network, address)
        routes = AdminRoutes(name, reach, world.chance(name), bootstrap, self._runtime(world, name))
        routes.brokers_forward = self._coordination is None
        return routes

    def _runtime(self, world: World, name: str) -> FakeRuntime:
        return FakeRuntime(world.chance(f"{name}/logins").getrandbits(64), loop=world.loop)

    async def converge(self, world: World) -> None:
        """As ``Cluster.converge``. Then each node must serve a user with all rights, and refuse one without any."""
        await super().converge(world)
        administrator = self._administrator(world, "last administrator", 0)
        await administrator.until_done(partial(administrator.delete, [ANY_ACL]))
        for user in USERS:
            await administrator.until_done(partial(administrator.set_password, user))
        await self._try_all(world, allowed=False)
        resources = ((TOPIC, "*"), (GROUP, "*"), (CLUSTER, CLUSTER_NAME))
        rules = [
            Rule(kind, name, LITERAL, f"User:{user}", "*", ALL, ALLOW)
            for kind, name in resources
            for user in USERS
        ]
        await administrator.until_done(partial(administrator.create, rules))
        await self._try_all(world, allowed=True)
        await self._until(lambda: self.trouble(world) is None, lambda: self.trouble(world))

    async def _try_all(self, world: World, *, allowed: bool) -> None:
        """Have a user try everything on each node, once the node has the rights of now."""
        user = self._user(world, f"last user/{allowed}", 0)
        deadline_s = world.loop.time() + TAKEN_S_MAX
        for node_id in self._brokers:
            machine = world.machines[node_id - 1]
            while not self.verdicts.has_newest(machine):
                self._check_time(world, deadline_s, f"{machine.address} doesn't apply the newest rights")
                await asyncio.sleep(RETRY_S)
            while True:
                self._check_time(world, deadline_s, f"nobody can log in at {machine.address}")
                try:
                    await self._try_one(world, user, machine, allowed=allowed)
                    break
                except OSError:
                    await asyncio.sleep(RETRY_S)

    async def _try_one(self, world: World, user: User, machine: Machine, *, allowed: bool) -> None:
        name = USERS[world.machines.index(machine) % len(USERS)]
        session = await user.enter(machine, name)
        for partition in (TopicPartition(topic, 0) for topic in self.topics):
            for request in (
                user.produce,
                partial(user.fetch, wait_ms=0),
                user.list_offsets,
                user.metadata,
                user.coordinator,
                user.delete_nothing,
            ):
                if await request(session, partition) is not allowed:
                    raise ViolationError(
                        f"{machine.address}: {name} may do {'nothing' if allowed else 'all'}"
                    )
        session.connection.close()

    @staticmethod
    def _check_time(world: World, deadline_s: float, trouble: str) -> None:
        if world.loop.time() > deadline_s:
            raise ViolationError(f"{trouble} within {TAKEN_S_MAX:g} s")

    async def check(self, world: World) -> None:
        """As ``Cluster.check``; and each node's ACLs and credentials are those of the log."""
        await super().check(world)
        newest = self.verdicts.newest
        self.oracle.counts["runs with a gap in the log"] += newest is None
        for machine in world.machines:
            metadata = metadata_of(machine)
            assert metadata is not None
            state = state_of(metadata.image)
            if newest is not None and not state.equals(newest):
                raise ViolationError(f"{machine.address} has the rights {state}, not {newest}")
