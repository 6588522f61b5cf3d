"""The workload ``cluster``: one cluster of whole nodes, its quorum and its replicas, under clients that check it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib.metadata import EntryPoint
from itertools import pairwise
from math import inf
from typing import Any

from blumfeld.kernel.composing.plan import Plan
from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.storage import TopicPartition
from blumfeld.spi.tiering import local_log_start_offset
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import records
from blumfeld.wire.errors import ErrorCode
from blumfeld_kit.simulation.clients.oracle import Oracle, ViolationError
from blumfeld_kit.simulation.clients.producer import Producer
from blumfeld_kit.simulation.clients.reads import Values
from blumfeld_kit.simulation.clients.routes import RETRY_S, Routes
from blumfeld_kit.simulation.cluster.log_model import check_log_state
from blumfeld_kit.simulation.cluster.operator import Operator, create_topic
from blumfeld_kit.simulation.cluster.reader import ClusterReader
from blumfeld_kit.simulation.cluster.replica_checks import metadata_log
from blumfeld_kit.simulation.cluster.watch import Watch, hosted, metadata_of, replicas_of
from blumfeld_kit.simulation.machine.host import ADDRESS, DATA_DIR, Machine, address_of, plan_of
from blumfeld_kit.simulation.network.links import Weather
from blumfeld_kit.simulation.network.network import Vantage
from blumfeld_kit.simulation.swarm.faults import OF_ZOOKEEPER, FaultClass, chance_of
from blumfeld_kit.simulation.swarm.shape import ZOOKEEPER, Shape
from blumfeld_kit.simulation.swarm.world import World
from blumfeld_kit.simulation.zookeeper.coordination import NAME as ZK_PLUGIN
from blumfeld_kit.simulation.zookeeper.coordination import SESSION_TIMEOUT_MS, TICK_MS, Coordination

CONTROLLER_PORT = 9093
VOTERS = 3
REPLICAS = 3
TOPIC = "work"
PARTITIONS = 4
CLUSTER_ID = "c2ltdWxhdGVkY2x1c3Rlcg"
PRODUCER_PAUSE_S = 0.5
APART_CHANCE = 0.3
MORE_CHANCE = 0.3
"""Probability that a seed has one or two brokers more than ``--nodes``."""
LOOK_S = 0.1
SUCCESSION_S = 0.9
"""Longest time from the death of the controller's process to the next controller, where nothing else is wrong. It is
shorter than the election timeout: nobody waits for that one."""
SESSION_SUCCESSION_S = (SESSION_TIMEOUT_MS + 2 * TICK_MS) / 1_000 + SUCCESSION_S
"""The same with a ZooKeeper: the session of the controller's process must end first."""
TREE_SUCCESSION_CHANCE = 0.25
SMALL_FETCHES_CHANCE = 0.3
"""Probability that followers fetch one batch at a time, as from a leader with much to copy."""
SMALL_FETCHES = {"replica.fetch.max.bytes": 1}
CONFIG = {
    "auto.create.topics.enable": False,
    "broker.session.timeout.ms": 4_000,
    "broker.heartbeat.interval.ms": 800,
    "default.replication.factor": REPLICAS,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 2,
    "offsets.topic.replication.factor": REPLICAS,
    "replica.fetch.backoff.ms": 300,
    "replica.lag.time.max.ms": 2_500,
    "replica.socket.timeout.ms": 5_000,
}
"""Time-outs are shorter than Kafka's, so that a fault of some seconds changes leaders."""
SNAPSHOTS_CHANCE = 0.5
"""Probability that a seed takes snapshots of the metadata often, and deletes the log below them."""
SMALL_SNAPSHOTS = {
    "controller.quorum.fetch.snapshot.max.bytes": 1_500,
    "internal.metadata.log.segment.bytes": 4_096,
    "metadata.log.max.record.bytes.between.snapshots": 4_096,
    "metadata.max.retention.bytes": 4_096,
}


class Cluster:
    """Nodes 1 to 3 are voters, and brokers too; in some seeds the controllers are apart from the brokers."""

    survives = (
        frozenset(FaultClass)
        - OF_ZOOKEEPER
        - {
            FaultClass.BIT_ROT,
            FaultClass.WRITE_ERROR,
            FaultClass.SYNC_ERROR,
            FaultClass.READ_ERROR,
            FaultClass.DECISION,
            FaultClass.STORE,
        }
    )

    topics: Mapping[str, int] = {TOPIC: PARTITIONS}
    """Topics with records → number of partitions."""
    topic_config: Mapping[str, str] = {}
    """Configuration that each of ``topics`` is created with."""
    config: Mapping[str, Any] = CONFIG
    small_snapshots: Mapping[str, Any] = SMALL_SNAPSHOTS
    """Keys of the seeds that take snapshots of the metadata often."""

    def __init__(self) -> None:
        self.oracle = Oracle()
        self._watch: Watch
        self._voters = range(0)
        self._coordination: Coordination | None = None
        self._brokers: list[int] = []
        self._watching: asyncio.Task[None] | None = None
        self._until_s = inf

    def plans(self, shape: Shape) -> Sequence[Plan]:
        if shape.consensus == ZOOKEEPER:
            return self._plans_with_zookeeper(shape)
        chance = chance_of(shape.seed, "layout")
        apart = chance.random() < APART_CHANCE
        nodes = shape.nodes + (1 + chance.randrange(2) if chance.random() < MORE_CHANCE else 0)
        voters = range(1, min(VOTERS, shape.nodes) + 1)
        last = len(voters) + nodes if apart else nodes
        self._voters = voters
        keys = dict[str, Any]()
        if chance_of(shape.seed, "snapshots").random() < SNAPSHOTS_CHANCE:
            keys |= self.small_snapshots
        if chance_of(shape.seed, "fetches").random() < SMALL_FETCHES_CHANCE:
            keys |= SMALL_FETCHES
        plans = []
        for node_id in range(1, last + 1):
            roles = [] if apart and node_id in voters else ["broker"]
            roles += ["controller"] if node_id in voters else []
            if "broker" in roles:
                self._brokers.append(node_id)
            config = {**self.config, **keys}
            plans.append(plan(node_id, roles, voters, shape.storage, config, *self.storage_of(shape)))
        return plans

    def _plans_with_zookeeper(self, shape: Shape) -> Sequence[Plan]:
        """Return the plans of brokers that keep their metadata in one simulated ZooKeeper."""
        coordination = self._coordination = Coordination(shape.seed)
        more = chance_of(shape.seed, "layout")
        nodes = shape.nodes + (1 + more.randrange(2) if more.random() < MORE_CHANCE else 0)
        small = chance_of(shape.seed, "fetches").random() < SMALL_FETCHES_CHANCE
        config = {**self.config, **(SMALL_FETCHES if small else {})}
        self._brokers = list(range(1, nodes + 1))
        sections, plugins = self.storage_of(shape)
        return [
            plan_of(
                config,
                shape.storage,
                node_id=node_id,
                sections={
                    "node": {"id": node_id, "data_dir": DATA_DIR, "rack": f"r{node_id}"},
                    "consensus": {"plugin": ZK_PLUGIN, "options": {"connect": "zookeeper:2181"}},
                    **sections,
                },
                plugins=[coordination.plugin(), *plugins],
            )
            for node_id in self._brokers
        ]

    def storage_of(self, shape: Shape) -> tuple[Mapping[str, Any], Sequence[EntryPoint]]:
        """Return sections of each node's manifest, laid over the others, and plug-ins that aren't installed."""
        return {}, ()

    async def prepare(self, world: World) -> None:
        """Create the topics, and wait until every replica is in sync."""
        world.coordination = self._coordination
        self._watch = Watch(world, self.oracle)
        self._watch_begins(world)
        world.important = self._watch.important
        world.followers = self._watch.followers
        world.look = self._watch.look_now
        # A voter of a static quorum can't tell its new disk from the old one.
        world.replaceable = lambda: [
            machine for nth, machine in enumerate(world.machines, 1) if nth not in self._voters
        ]
        routes = self._routes(world, "first", world.client_address(0))
        await self._until(lambda: len(self._brokers_alive(world)) == len(self._brokers))
        if self._coordination is not None:
            await self._until(lambda: self._watch.controller() is not None and self._all_show_all(world))
        for topic, partitions in self.topics.items():
            for number in range(partitions):
                self.oracle.add(TopicPartition(topic, number))
            code = await create_topic(routes, topic, partitions, self._replicas, self.topic_config)
            assert code is ErrorCode.NONE, code
        await self._until(lambda: self.trouble(world) is None, lambda: self.trouble(world))
        self._watching = world.loop.create_task(self._watch.run())
        routes.close()

    def _watch_begins(self, world: World) -> None:
        """Called once there is a watch, before it looks."""

    @property
    def _replicas(self) -> int:
        return min(REPLICAS, len(self._brokers))

    def _all_show_all(self, world: World) -> bool:
        """Whether each node shows all brokers."""
        images = [metadata.image for metadata in map(metadata_of, world.machines) if metadata is not None]
        return all(len(image.brokers) == len(self._brokers) for image in images)

    def _brokers_alive(self, world: World) -> list[int]:
        image = self._watch.newest_image()
        return (
            []
            if image is None
            else [broker.broker_id for broker in image.brokers.values() if not broker.fenced]
        )

    def clients(self, world: World, until_s: float) -> Sequence[Coroutine[Any, Any, None]]:
        """Out of four clients two produce, one reads and commits, and one is an operator."""
        assert self._watching is not None
        runs: list[Coroutine[Any, Any, None]] = [self._watch_fails()]
        partitions = list(self.oracle.partitions)
        for number in range(world.shape.clients):
            name = ("producer", "reader", "producer", "admin")[number % 4] + f"-{number}"
            routes = self._routes(world, name, world.client_address(number))
            client: Producer | ClusterReader | Operator
            if number % 2 == 0:
                client = Producer(routes, self.oracle, partitions, PRODUCER_PAUSE_S)
            elif number % 4 == 1:
                client = ClusterReader(routes, self.oracle, partitions, f"group-{number}")
            else:
                client = Operator(
                    routes, self.oracle, partitions, self._replicas, self._brokers, self._busy(world)
                )
            runs.append(client.run(until_s))
        self._until_s = until_s
        self._loop = world.loop
        return runs

    def _busy(self, world: World) -> Callable[[], None]:
        """Return what an operator calls when the controller has much to decide."""

        def busy() -> None:
            controller = self._watch.controller()
            if controller is not None:
                world.moment(world.machines[controller[1] - 1])

        return busy

    async def _watch_fails(self) -> None:
        """Last until the clients end their work, or until the watch finds a violation."""
        assert self._watching is not None
        await asyncio.wait((self._watching,), timeout=self._until_s - self._loop.time())
        if self._watching.done():
            self._watching.result()

    def _routes(self, world: World, name: str, address: str) -> Routes:
        bootstrap = [(address_of(node_id), ADDRESS[1]) for node_id in self._brokers]
        routes = Routes(name, Vantage(world.network, address), world.chance(name), bootstrap)
        routes.brokers_forward = self._coordination is None
        return routes

    async def converge(self, world: World) -> None:
        """Wait until every partition is led and whole, and takes a record; also without the controller of then."""
        await self._until(lambda: self.trouble(world) is None, lambda: self.trouble(world))
        routes = self._routes(world, "last", world.client_address(0))
        producer = Producer(routes, self.oracle, list(self.oracle.partitions), 0.0)
        for partition in self.oracle.partitions:
            await producer.deliver(partition)
        routes.close()
        await self._until(lambda: self.trouble(world) is None, lambda: self.trouble(world))
        if self._checks_succession(world):
            await self._check_succession(world)
            await self._until(lambda: self.trouble(world) is None, lambda: self.trouble(world))

    def _checks_succession(self, world: World) -> bool:
        """Whether this seed ends the last controller: with a ZooKeeper some do, as it takes as long as all else."""
        if self._coordination is None:
            return len(self._voters) == VOTERS
        return world.shape.faults == () or world.chance("succession").random() < TREE_SUCCESSION_CHANCE

    async def _check_succession(self, world: World) -> None:
        """End the controller's process in good weather, and wait for the next controller.

        An attempt to connect from the time of the faults may wait some seconds for its repetition, as TCP does, and a
        vote waits with it.
        """
        await self._until(lambda: not world.network.unanswered, lambda: "somebody can't connect")
        world.network.links.set_weather(Weather(slow_chance=0.0))
        former = self._watch.controller()
        assert former is not None
        died_s = world.loop.time()
        succession_s = SUCCESSION_S if self._coordination is None else SESSION_SUCCESSION_S
        world.machines[former[1] - 1].crash(power_cut=False)
        while (known := self._watch.controller()) is None or known <= former:
            if world.loop.time() - died_s > succession_s:
                raise ViolationError(
                    f"no controller {succession_s:g} s after node {former[1]}'s process died"
                )
            await asyncio.sleep(LOOK_S / 10)
        self.oracle.counts["succession ms"] += round((world.loop.time() - died_s) * 1000)

    async def _until(
        self, condition: Callable[[], bool], trouble: Callable[[], str | None] = lambda: "no quorum"
    ) -> None:
        try:
            while not condition():
                await asyncio.sleep(LOOK_S)
        except asyncio.CancelledError:
            raise ViolationError(f"not well in time: {trouble()}") from None

    def trouble(self, world: World) -> str | None:
        """Say why the cluster isn't well; ``None`` if it is."""
        applied = set()
        for machine in world.machines:
            metadata = metadata_of(machine)
            if metadata is None or not machine.is_serving:
                return f"{machine.address} does not serve"
            topics = tuple(metadata.image.topics)  # in one order, where they come from one log
            applied.add(topics if self._coordination is None else tuple(sorted(topics)))
        if len(applied) != 1:
            return "nodes have different topics"
        image = self._watch.newest_image()
        assert image is not None
        if self._coordination is not None and (trouble := self._tree_trouble(world)) is not None:
            return trouble
        for topic in image.topics.values():
            for number, partition in topic.partitions.items():
                trouble = self._trouble_of(world, TopicPartition(topic.name, number), partition)
                if trouble is not None:
                    return f"{topic.name}-{number}: {trouble}"
        return None

    def _tree_trouble(self, world: World) -> str | None:
        """Say where the tree and a node's image differ, or what no controller has ended; ``None`` if all is well."""
        assert self._coordination is not None
        oracle = self._coordination.oracle
        if (unfinished := oracle.unfinished()) is not None:
            return unfinished
        for node_id, machine in enumerate(world.machines, 1):
            for replica in replicas_of(machine):
                at, topic = replica.partition, oracle.image.topics.get(replica.partition.topic)
                if topic is None or node_id not in topic.partitions[at.partition].replicas:
                    return f"{machine.address} hosts {at}, and is no replica of it"
            metadata = metadata_of(machine)
            assert metadata is not None
            if sorted(metadata.image.brokers) != sorted(oracle.czxids):
                return f"{machine.address} shows the brokers {sorted(metadata.image.brokers)}"
            for name, topic in oracle.image.topics.items():
                shown = metadata.image.topics.get(name)
                if (
                    shown is None
                    or shown.topic_id != topic.topic_id
                    or shown.partitions.keys() != topic.partitions.keys()
                ):
                    return f"{machine.address} shows another topic {name} than the tree has"
                for number, partition in topic.partitions.items():
                    if as_told(shown.partitions[number]) != as_told(partition):
                        return f"{name}-{number}: {machine.address} shows {shown.partitions[number]}, not {partition}"
        return None

    def _trouble_of(self, world: World, at: TopicPartition, image: PartitionImage) -> str | None:
        if image.leader < 0 or len(image.isr) < len(image.replicas):
            return f"leader {image.leader}, ISR {image.isr}, ELR {image.eligible_leader_replicas} of {image.replicas}"
        if image.adding_replicas or image.removing_replicas:
            return f"it is still reassigned: {image}"
        states = {}
        for node_id in image.replicas:
            replica = hosted(world.machines[node_id - 1], at)
            if replica is None or replica.closed is not None:
                return f"node {node_id} doesn't host it"
            states[node_id] = (replica.leader_epoch, replica.log.written_end_offset, replica.high_watermark)
        (_, end, high_watermark) = states[image.leader]
        if set(states.values()) != {(image.leader_epoch, end, high_watermark)} or end != high_watermark:
            return f"replicas differ: (leader epoch, end, high watermark) are {states} in epoch {image.leader_epoch}"
        return None

    async def check(self, world: World) -> None:
        """Compare all replicas and the metadata with what was promised."""
        self._watch.look()
        self._watch.check_images()
        self._watch.check_has_compared()
        self._count_logs(world)
        image = self._watch.newest_image()
        assert image is not None
        for name, known in self.oracle.topics.items():
            topic = image.topics.get(name)
            if known is not None and known is not (topic is not None):
                raise ViolationError(f"topic {name}: created or deleted for sure, and that is lost")
            if topic is not None and len(topic.partitions) != self.oracle.partition_counts.get(
                name, len(topic.partitions)
            ):
                raise ViolationError(f"topic {name} has {len(topic.partitions)} partitions")
        for at, it in self.oracle.partitions.items():
            start, batches = check_replicas(world, at, image.topics[at.topic].partitions[at.partition])
            local = values_of(start, [data for _, data in batches])
            it.check_whole(*await self.contents(world, at, start, local))
        reader = ClusterReader(
            self._routes(world, "auditor", world.client_address(0)),
            self.oracle,
            list(self.oracle.partitions),
            "",
        )
        for number in range(1, world.shape.clients, 4):
            reader.group = f"group-{number}"
            while not await self._looked(reader):
                await asyncio.sleep(RETRY_S)
        if self._watching is not None:
            self._watching.cancel()

    async def contents(
        self, world: World, at: TopicPartition, start_offset: int, local: Values
    ) -> tuple[Values, int]:
        """Return all records of a partition, and where it begins.

        :param local: the records on its leader's disk, from ``start_offset`` on
        """
        return local, start_offset

    def _count_logs(self, world: World) -> None:
        """Count what a run must meet to say much: leader epochs without a record, and snapshots of the metadata."""
        counts = self.oracle.counts
        for machine in world.machines:
            for at in self.oracle.partitions:
                replica = hosted(machine, at)
                epochs = [] if replica is None else [entry.epoch for entry in replica.state.epochs.entries]
                counts["gaps of leader epochs"] += sum(b - a > 1 for a, b in pairwise(epochs))
            metadata = metadata_log(metadata_of(machine))
            counts["metadata logs behind a snapshot"] += (
                metadata is not None and metadata[0].log_start_offset > 0
            )

    async def _looked(self, reader: ClusterReader) -> bool:
        try:
            return await reader.look_at_offsets()
        except OSError:
            return False

    def progress(self) -> int:
        """Return the records that were acknowledged."""
        return self.oracle.counts["acked"]

    def counts(self) -> Mapping[str, int]:
        """Return the oracle's numbers."""
        return dict(self.oracle.counts)


def as_told(partition: PartitionImage) -> tuple[Any, ...]:
    """Return as much of a partition as brokers are told with a ZooKeeper."""
    known = partition.leader, partition.leader_epoch, partition.partition_epoch
    return *known, partition.replicas, partition.isr


def plan(
    node_id: int,
    roles: Sequence[str],
    voters: Sequence[int],
    storage: str,
    config: Mapping[str, Any] = CONFIG,
    sections: Mapping[str, Any] | None = None,
    plugins: Sequence[EntryPoint] = (),
) -> Plan:
    """Return the plan of one node."""
    listeners: list[dict[str, Any]] = []
    host = address_of(node_id)
    if "broker" in roles:
        listeners.append({"name": "PLAINTEXT", "bind": f"{host}:{ADDRESS[1]}", "inter_broker": True})
    if "controller" in roles:
        bind = f"{host}:{CONTROLLER_PORT}"
        listeners.append({"name": "CONTROLLER", "kind": "controller", "bind": bind})
    quorum = ",".join(f"{voter_id}@{address_of(voter_id)}:{CONTROLLER_PORT}" for voter_id in voters)
    node = {
        "id": node_id,
        "roles": roles,
        "data_dir": "/data",
        "cluster_id": CLUSTER_ID,
        "rack": f"r{node_id}",
    }
    return plan_of(
        {"controller.quorum.voters": quorum, **config},
        storage,
        node_id=node_id,
        sections={
            "node": node,
            "network": {"plugin": "net_simulated", "listeners": listeners},
            **(sections or {}),
        },
        plugins=plugins,
    )


def check_replicas(
    world: World, at: TopicPartition, image: PartitionImage
) -> tuple[int, list[tuple[int, bytes]]]:
    """Check that the replicas of a partition are equal, and each as its log says. Return the leader's log as
    :func:`batches_of`."""
    logs = {}
    for node_id in image.replicas:
        machine = world.machines[node_id - 1]
        logs[node_id] = batches_of(machine, at)
        if (replica := hosted(machine, at)) is not None:
            check_log_state(machine, replica)
    first, *others = logs.values()
    for other in others:
        start = max(first[0], other[0])
        if [entry for entry in first[1] if entry[0] > start] != [
            entry for entry in other[1] if entry[0] > start
        ]:
            raise ViolationError(f"{at}: the replicas differ below the high watermark")
    return logs[image.leader]


def batches_of(machine: Machine, partition: TopicPartition) -> tuple[int, list[tuple[int, bytes]]]:
    """Return the start of the log on the machine's disk, and (next offset, bytes) of each batch below the replica's
    high watermark."""
    replica = hosted(machine, partition)
    assert replica is not None
    start, end = local_log_start_offset(replica.log), replica.high_watermark
    if start >= end:
        return start, []
    batches = replica.log.batches(start)
    return start, [(batch.next_offset, bytes(batch.data)) for batch in batches if batch.next_offset <= end]


def values_of(start_offset: int, batches: Sequence[bytes]) -> Values:
    """Return (offset, value) of each record from an offset on."""
    values = Values()
    for data in batches:
        batch = RecordBatch(memoryview(bytearray(data)))
        values += [
            (record.offset, bytes(record.value or b""))
            for record in records(batch)
            if record.offset >= start_offset
        ]
    return values
