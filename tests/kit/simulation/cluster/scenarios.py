"""Workloads of a cluster with a script of their own, for what chance alone meets too seldom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from blumfeld.broker.replicas.hosting.partition_manager import PartitionManager
from blumfeld.kernel.composing.plan import Plan
from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.broker_registration import BrokerRegistrationRequest
from blumfeld.wire.schema import Message
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.cluster.operator import create_topic
from blumfeld_kit.simulation.cluster.replica_checks import metadata_log
from blumfeld_kit.simulation.cluster.watch import metadata_of
from blumfeld_kit.simulation.cluster.workload import TOPIC, Cluster, plan
from blumfeld_kit.simulation.machine.host import Machine
from blumfeld_kit.simulation.swarm.shape import Shape
from blumfeld_kit.simulation.swarm.world import World
from blumfeld_kit.simulation.zookeeper.tree_oracle import Image

LARGE = "large"
LARGE_PARTITIONS = 1_000
RETRY_S = 0.5


class Scripted(Cluster):
    """A cluster whose clients have a script beside them."""

    def clients(self, world: World, until_s: float) -> Sequence[Coroutine[Any, Any, None]]:
        """See ``Workload``."""
        return [*super().clients(world, until_s), self.script(world)]

    async def script(self, world: World) -> None:
        """Do what the scenario is about."""
        raise NotImplementedError

    def controller_machine(self, world: World) -> Machine | None:
        known = self._watch.controller()
        return None if known is None else world.machines[known[1] - 1]


class LargeTopic(Scripted):
    """The controller dies while a topic with a thousand partitions is created. The topic is there wholly or not at all,
    on each node and at any time, and is created in the end."""

    async def script(self, world: World) -> None:
        chance = world.chance("large topic")
        routes = self._routes(world, "large", world.client_address(0))
        await asyncio.sleep(2.0)
        self.oracle.topics[LARGE] = None
        killing = world.loop.create_task(self._kill(world, 20 + chance.randrange(LARGE_PARTITIONS - 100)))
        code = ErrorCode.REQUEST_TIMED_OUT
        while code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            try:
                code = await create_topic(routes, LARGE, LARGE_PARTITIONS, self._replicas)
            except OSError:
                await asyncio.sleep(RETRY_S)
        await killing
        self.oracle.topics[LARGE] = True
        self.oracle.partition_counts[LARGE] = LARGE_PARTITIONS
        routes.close()

    async def _kill(self, world: World, records: int) -> None:
        """Kill the controller when it has written so many records of the topic."""
        machine = self.controller_machine(world)
        assert machine is not None
        log_pair = metadata_log(metadata_of(machine))
        assert log_pair is not None
        began = log_pair[0].written_end_offset
        while log_pair[0].written_end_offset < began + records:
            await asyncio.sleep(0.001)
            self.check_whole(world)
        there = any(
            LARGE in metadata.image.topics
            for metadata in map(metadata_of, world.machines)
            if metadata is not None
        )
        self.oracle.counts["controllers killed"] += not there
        machine.crash(power_cut=False)
        until_s = world.loop.time() + 20.0
        while world.loop.time() < until_s:
            await asyncio.sleep(0.05)
            self.check_whole(world)

    def check_whole(self, world: World) -> None:
        """Check that each node shows all of the topic, or nothing."""
        for machine in world.machines:
            metadata = metadata_of(machine)
            topic = None if metadata is None else metadata.image.topics.get(LARGE)
            if topic is not None and len(topic.partitions) != LARGE_PARTITIONS:
                raise ViolationError(f"{machine.address} shows {len(topic.partitions)} partitions of {LARGE}")


class OneController(Scripted):
    """Node 1 is the controller, and the nodes 2 to 4 are brokers."""

    def plans(self, shape: Shape) -> Sequence[Plan]:
        """See ``Workload``."""
        self._voters = range(1, 2)
        self._brokers = [2, 3, 4]
        plans = [plan(1, ["controller"], self._voters, shape.storage)]
        return [
            *plans,
            *(plan(node_id, ["broker"], self._voters, shape.storage) for node_id in self._brokers),
        ]


class SmallIsr(OneController):
    """The followers are cut off until the leader is the last member of the ISR. Then it loses its power, and the others
    come back. They have everything, because nothing was committed without them (KIP-966)."""

    async def script(self, world: World) -> None:
        await asyncio.sleep(3.0)
        image = self._watch.newest_image()
        assert image is not None
        leader = image.topics["work"].partitions[0].leader
        apart = [world.machines[node_id - 1].address for node_id in self._brokers if node_id != leader]
        there = [world.machines[0].address, world.machines[leader - 1].address]
        ways = [(a, b) for a in apart for b in there]
        ways += [(b, a) for a, b in ways]
        for a, b in ways:
            world.network.cut(a, b)
        await self._until(lambda: self._isr() == (leader,))
        world.machines[leader - 1].crash(power_cut=True)
        for a, b in ways:
            world.network.heal(a, b)
        self.oracle.counts["last members lost"] += 1

    def _isr(self) -> tuple[int, ...]:
        image = self._watch.newest_image()
        return () if image is None else image.topics["work"].partitions[0].isr


class PausedController(OneController):
    """A single controller is stopped for longer than a session. The brokers' heartbeats lie unread meanwhile, and none
    of the brokers may be fenced for it."""

    PAUSES_S = (5.0, 9.0)
    """``broker.session.timeout.ms`` is 4 s in this workload."""

    async def script(self, world: World) -> None:
        await asyncio.sleep(2.0)
        controller = world.machines[0]
        for pause_s in self.PAUSES_S:
            controller.pause()
            await asyncio.sleep(pause_s)
            controller.resume()
            for _ in range(300):
                await asyncio.sleep(0.01)
                self.check_unfenced()
            self.oracle.counts["pauses"] += 1

    def check_unfenced(self) -> None:
        """Check that no broker is fenced."""
        image = self._watch.newest_image()
        fenced = (
            [] if image is None else [broker.broker_id for broker in image.brokers.values() if broker.fenced]
        )
        if fenced:
            raise ViolationError(f"the brokers {fenced} are fenced, and only the controller was stopped")


class LateRegistration(OneController):
    """A broker's process dies when it has asked to be registered. The request reaches the controller when the next
    process is registered and opens its replicas (ADR 0019, seed 9416). That process serves all the same."""

    async def script(self, world: World) -> None:
        await asyncio.sleep(2.0)
        machine = world.machines[self._brokers[-1] - 1]
        late = await self._next_registration(world, machine, arrives=False)
        seen = await self._next_registration(world, machine, arrives=True)
        controller = metadata_of(world.machines[0])
        assert controller is not None

        def registered() -> bytes | None:
            broker = controller.image.brokers.get(late.broker_id)
            return None if broker is None else broker.incarnation_id

        await self._at_once(lambda: registered() == seen.incarnation_id)
        controller.submit(late, 10_000.0)
        await self._at_once(lambda: registered() == late.incarnation_id)
        self.oracle.counts["late registrations"] += 1
        await self._until(lambda: machine.is_serving)
        assert registered() == seen.incarnation_id
        self.oracle.counts["starts after a late registration"] += 1

    async def _next_registration(
        self, world: World, machine: Machine, *, arrives: bool
    ) -> BrokerRegistrationRequest:
        """Kill the machine's process and start the next one. Return the registration that it asks for, which gets lost
        unless it ``arrives``."""
        registration: asyncio.Future[BrokerRegistrationRequest] = world.loop.create_future()
        machine.crash(power_cut=False)
        await asyncio.sleep(0.05)
        world.loop.create_task(machine.start())
        await self._at_once(lambda: metadata_of(machine) is not None)
        metadata: Any = metadata_of(machine)
        submit = metadata.submit

        def note(command: Message, *args: Any, **how: Any) -> Completion[Message]:
            if isinstance(command, BrokerRegistrationRequest) and not registration.done():
                registration.set_result(command)
                if not arrives:
                    return Completion()
            answer: Completion[Message] = submit(command, *args, **how)
            return answer

        metadata.submit = note
        return await registration

    async def _at_once(self, condition: Callable[[], bool]) -> None:
        """Return within a millisecond from the moment when the condition holds."""
        while not condition():
            await asyncio.sleep(0.0005)


class FullDisk(Scripted):
    """A disk is full for a while. A replica that can't be written leads and is in sync no longer, producers go on, and
    once there is room all replicas are in sync again without a restart."""

    FULL_S = 14.0
    MOVED_S = 0.5
    """Time from a replica's first write that fails until others lead, and no ISR waits for it."""
    BACK_S = 10.0

    async def script(self, world: World) -> None:
        await asyncio.sleep(3.0)
        image = self._watch.newest_image()
        assert image is not None
        full = self.full(image)
        machine = world.machines[full - 1]
        began_s, acked = world.loop.time(), self.oracle.counts["acked"]
        machine.disk.room = world.chance("full disk").randrange(200)
        refused: dict[int, float] = {}
        while (now_s := world.loop.time()) < began_s + self.FULL_S:
            self.look(machine, full, refused, now_s)
            await asyncio.sleep(0.02)
        self.oracle.counts["refused"] = len(refused)
        self.oracle.counts["acked while full"] = self.oracle.counts["acked"] - acked
        machine.disk.room = None
        while any(full in set(partition.replicas) - set(partition.isr) for partition in self._partitions()):
            if world.loop.time() > now_s + self.BACK_S:
                raise ViolationError(f"node {full} is not back in time: {self._partitions()}")
            await asyncio.sleep(0.02)
        self.oracle.counts["back after ms"] = round(1000 * (world.loop.time() - now_s))
        assert machine.kills == 0

    def full(self, image: Image) -> int:
        """The node whose disk is full: it leads, and isn't the controller."""
        controller = self._watch.controller()
        leaders = [partition.leader for partition in image.topics[TOPIC].partitions.values()]
        return next(candidate for candidate in leaders if controller is None or candidate != controller[1])

    def look(self, machine: Machine, node_id: int, refused: dict[int, float], now_s: float) -> None:
        """Note since when each replica refuses writes, and check that it gives way."""
        node: Any = machine.node
        hosted = cast("PartitionManager", node.broker.partitions)
        for partition in self._partitions():
            if hosted.refused_writes.refuses(TopicPartition(TOPIC, partition.partition)):
                since_s = refused.setdefault(partition.partition, now_s)
                if now_s - since_s > self.MOVED_S and node_id in (partition.leader, *partition.isr):
                    raise ViolationError(f"node {node_id} can't write since {since_s:.2f} s: {partition}")

    def _partitions(self) -> list[PartitionImage]:
        image = self._watch.newest_image()
        assert image is not None
        return list(image.topics[TOPIC].partitions.values())


class FullController(FullDisk):
    """The same, where the full node is the active controller, too. It can't write the cluster's metadata."""

    MOVED_S = 2.0
    """Another controller must be elected before, by both of the other voters: a vote that they split takes one more."""

    def full(self, image: Image) -> int:
        """The controller, where it is a broker."""
        controller = self._watch.controller()
        assert controller is not None
        return controller[1] if controller[1] in self._brokers else super().full(image)
