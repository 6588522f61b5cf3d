"""The workload ``transactions``: the workload ``cluster`` with clients that append in transactions, and its checker."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from blumfeld.coordinator.runtime.coordinator import partition_for
from blumfeld.spi.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.clients.reads import read_all, readable
from blumfeld_kit.simulation.clients.routes import RETRY_S, Routes
from blumfeld_kit.simulation.cluster.watch import hosted
from blumfeld_kit.simulation.cluster.workload import CONFIG, REPLICAS, Cluster, check_replicas
from blumfeld_kit.simulation.machine.host import ADDRESS, address_of
from blumfeld_kit.simulation.swarm.faults import FaultClass, chance_of, drawn
from blumfeld_kit.simulation.swarm.world import Struck, World
from blumfeld_kit.simulation.transactions.checker import check
from blumfeld_kit.simulation.transactions.coordinators import age, coordinator_of, leader_of
from blumfeld_kit.simulation.transactions.histories import (
    NEVER_S,
    GroupView,
    History,
    Outcome,
    Transaction,
)
from blumfeld_kit.simulation.transactions.operator import (
    TransactionOperator,
    abort_hanging,
    finalize,
    open_transactions,
)
from blumfeld_kit.simulation.transactions.oracle import INTERNAL_PARTITIONS, Fate, TransactionOracle
from blumfeld_kit.simulation.transactions.producer import TransactionalProducer
from blumfeld_kit.simulation.transactions.reader import TransactionReader
from blumfeld_kit.simulation.transactions.relay import HOPS_MAX, Relay, hops_of, offsets_of
from blumfeld_kit.simulation.transactions.session import GROUP, TRANSACTION, EndedError, Session

WORK, MADE = "work", "made"
"""The topics: transactions append to the first, relays read one and append to the other."""
FIRST_GENERATION_CHANCE, UPGRADE_CHANCE = 0.2, 0.15
"""Probability that ``transaction.version`` is 0 in the whole run, or at its beginning."""
OLD_CHANCE = 0.4
"""Probability that the producer id of a client is nearly exhausted at the beginning."""
EPOCH_LAST = 32_766
PATIENCE_S = 20.0
"""Time after the heal in which transactions end by themselves, before the operator ends those that are excused."""
DEPOSED_S = 10.0
"""Time within which a deposed coordinator may still refuse a transaction."""
DEATH_CHANCE = 0.8
"""Probability that a client dies with the coordinator that was to decide. Otherwise it asks for the same end again."""
MOMENT_CHANCE = 0.5
"""Probability that the end of a transaction is a moment for the faults that wait for one."""


class Transactions(Cluster):
    """A cluster with transactional clients: a producer, a relay, two rivals with one transactional id, and a reader."""

    survives = Cluster.survives | {FaultClass.DECISION}
    topics: Mapping[str, int] = {WORK: 3, MADE: 2}
    config: Mapping[str, Any] = {
        **CONFIG,
        "offsets.topic.num.partitions": INTERNAL_PARTITIONS,
        "transaction.state.log.num.partitions": INTERNAL_PARTITIONS,
        "transaction.state.log.replication.factor": REPLICAS,
        "transaction.state.log.min.isr": 2,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    }

    def __init__(self) -> None:
        super().__init__()
        self.oracle: TransactionOracle = TransactionOracle()
        self._upgrades = False
        self._moments = chance_of(0, "moments")
        self._deaths = chance_of(0, "deaths")

    async def prepare(self, world: World) -> None:
        """Create the topics, the internal ones too, finalize ``transaction.version``, and make some producers old."""
        await super().prepare(world)
        self.oracle.ending = lambda transaction: self._tell_end(world, transaction)
        self.oracle.deciding = lambda transaction: self._tell_decision(world, transaction)
        self.oracle.coordinator_changed = lambda name: self._watch.leaders_changed(
            TopicPartition(TRANSACTIONS_TOPIC, partition_for(name, INTERNAL_PARTITIONS)), DEPOSED_S
        )
        allowed = self.survives if world.shape.faults is None else frozenset(world.shape.faults)
        on = drawn(world.shape.seed, allowed)
        self.oracle.clocks_lie = FaultClass.CLOCK_JUMP in on or FaultClass.CLOCK_RATE in on
        self._moments = world.chance("moments")
        self._deaths = world.chance("deaths")
        routes = self._routes(world, "second", world.client_address(0))
        await self._create_internal(world, routes)
        chance = world.chance("generation").random()
        if chance < FIRST_GENERATION_CHANCE + UPGRADE_CHANCE:
            self.oracle.generation_max = 1
            self._upgrades = chance >= FIRST_GENERATION_CHANCE and self._coordination is None
            while not await finalize(routes, 0):
                await asyncio.sleep(RETRY_S)
        old = world.chance("old")
        for number in range(world.shape.clients):
            if number % 4 < 3 and old.random() < OLD_CHANCE:
                await self._age(world, routes, _name(number), EPOCH_LAST - 1 - old.randrange(8))
        routes.close()

    async def _create_internal(self, world: World, routes: Routes) -> None:
        for kind in (GROUP, TRANSACTION):
            while True:
                try:
                    await routes.coordinator("first", kind)
                    break
                except OSError:
                    await asyncio.sleep(RETRY_S)
        for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            for number in range(INTERNAL_PARTITIONS):
                self.oracle.add(TopicPartition(topic, number))
        await self._until(lambda: self.trouble(world) is None, lambda: self.trouble(world))

    async def _age(self, world: World, routes: Routes, name: str, epoch: int) -> None:
        session = Session(routes, self.oracle, name, 1, 10_000)
        await session.begin()
        image = self._watch.newest_image()
        assert image is not None
        machine = coordinator_of(world, image, name)
        assert machine is not None
        await age(machine, name, session.producer_id, epoch)

    def clients(self, world: World, until_s: float) -> Sequence[Coroutine[Any, Any, None]]:
        """See the class. An operator moves partitions, the coordinators' too."""
        self._until_s, self._loop = until_s, world.loop
        runs: list[Coroutine[Any, Any, None]] = [self._watch_fails()]
        work = [partition for partition in self.oracle.data() if partition.topic == WORK]
        made = [partition for partition in self.oracle.data() if partition.topic == MADE]
        for number in range(world.shape.clients):
            kind = number % 4
            if kind == 0:
                runs.append(self._producer(world, number, work, "").run(until_s))
            elif kind == 1:
                back = number % 8 == 5
                sources, outputs = (made, work) if back else (work, made)
                rivals = ("a", "b") if world.chance(f"rivals-{number}").random() < 0.5 else ("",)
                runs += [self._relay(world, number, sources, outputs, rival).run(until_s) for rival in rivals]
            elif kind == 2:
                runs += [self._producer(world, number, work, rival).run(until_s) for rival in ("a", "b")]
            else:
                routes = self._routes(world, f"reader-{number}", world.client_address(number))
                runs.append(TransactionReader(routes, self.oracle, work + made).run(until_s))
        routes = self._routes(world, "operator", world.client_address(0))
        operator = TransactionOperator(
            routes, self.oracle, list(self.oracle.partitions), self._replicas, self._brokers
        )
        if self._upgrades:
            begin_s = world.loop.time()
            operator.upgrade_s = begin_s + routes.random.random() * (until_s - begin_s)
        return [*runs, operator.run(until_s)]

    def _producer(
        self, world: World, number: int, partitions: Sequence[TopicPartition], rival: str
    ) -> TransactionalProducer:
        routes = self._routes(world, f"{_name(number)}{rival}", world.client_address(number))
        name = self.oracle.name(_name(number))
        return TransactionalProducer(routes, self.oracle, name, partitions, rival=bool(rival))

    def _relay(
        self,
        world: World,
        number: int,
        sources: Sequence[TopicPartition],
        outputs: Sequence[TopicPartition],
        rival: str,
    ) -> Relay:
        routes = self._routes(world, f"{_name(number)}{rival}", world.client_address(number))
        name = self.oracle.name(_name(number), consumes=tuple(sources))
        return Relay(routes, self.oracle, name, outputs, rival=bool(rival))

    def _tell_end(self, world: World, transaction: Transaction) -> None:
        """Let a fault strike the coordinator, or a leader whose marker is due, when a transaction ends."""
        image = self._watch.newest_image()
        if image is None or self._moments.random() >= MOMENT_CHANCE:
            return
        machine = coordinator_of(world, image, transaction.incarnation.name)
        if transaction.appends and self._moments.random() < 0.4:
            at = transaction.appends[self._moments.randrange(len(transaction.appends))].partition
            machine = leader_of(world, image, at) or machine
        if machine is not None:
            world.moment(machine)

    def _tell_decision(self, world: World, transaction: Transaction) -> Fate:
        """Let a fault strike the coordinator of a transaction whose markers go to several nodes."""
        image = self._watch.newest_image()
        machine = None if image is None else coordinator_of(world, image, transaction.incarnation.name)
        if image is None or machine is None:
            return Fate.GOES_ON
        leaders = {leader_of(world, image, append.partition) for append in transaction.appends}
        if not leaders - {machine, None}:
            return Fate.GOES_ON
        struck = world.decision(machine)
        if struck is Struck.LOST and self._deaths.random() < DEATH_CHANCE:
            return Fate.DIES
        return Fate.LINGERS if struck is Struck.OUTLIVED else Fate.GOES_ON

    # After the heal

    async def converge(self, world: World) -> None:
        """Wait until every partition is led and whole, no transaction hangs, and each partition takes a transaction."""
        await self._until(lambda: self.trouble(world) is None, lambda: self.trouble(world))
        routes = self._routes(world, "last", world.client_address(0))
        await self._end_all(world, routes)
        producer = TransactionalProducer(routes, self.oracle, self.oracle.name("last"), self.oracle.data())
        while True:
            try:
                last = await producer.deliver(self.oracle.data())
                break
            except EndedError:
                # Refused for a reason that counts no longer: what was lost shortly before the heal, say.
                await asyncio.sleep(RETRY_S)
        if last.outcome is not Outcome.COMMITTED:
            raise ViolationError("the last transaction, with nobody beside it, was not committed")
        await self._end_all(world, routes)
        await self._until(lambda: self.trouble(world) is None, lambda: self.trouble(world))
        routes.close()

    async def _end_all(self, world: World, routes: Routes) -> None:
        """Wait until no transaction is open, neither at a coordinator nor in a partition."""
        begin_s = world.loop.time()
        trouble: str | None = None
        try:
            while (trouble := await self._hanging(world, routes)) is not None:
                if world.loop.time() - begin_s > PATIENCE_S:
                    await self._operate(routes)
                await asyncio.sleep(0.5)
        except asyncio.CancelledError:
            raise ViolationError(f"a transaction hangs: {trouble}") from None

    async def _hanging(self, world: World, routes: Routes) -> str | None:
        addresses = [(address_of(node_id), ADDRESS[1]) for node_id in self._brokers]
        descriptions = await open_transactions(routes, addresses)
        if descriptions is None:
            return "a broker doesn't say which transactions are open"
        # What a coordinator lost may come back as a transaction that no partition lets it end.
        descriptions = [
            description
            for description in descriptions
            if description.partition(" ")[0] not in self.oracle.excused_names
        ]
        if descriptions:
            return f"coordinators have {descriptions}"
        for partition in self.oracle.partitions:
            image = self._watch.newest_image()
            assert image is not None
            leader = image.topics[partition.topic].partitions[partition.partition].leader
            replica = hosted(world.machines[leader - 1], partition) if leader > 0 else None
            if replica is None:
                return f"{partition} has no leader"
            high_watermark, stable = replica.readable_ends()
            if stable < high_watermark:
                producers = replica.state.producers.producers()
                still = [producer for producer in producers if producer.txn_first_offset >= 0]
                return (
                    f"{partition}: the last stable offset is {stable} of {high_watermark}, open are {still}"
                )
        return None

    async def _operate(self, routes: Routes) -> None:
        """End what only an excuse, or a clock that was wrong, can have left open."""
        if self.oracle.clocks_lie:
            for name in list(self.oracle.names.values()):
                await Session(routes, self.oracle, name.id, 1, 10_000).begin()
        for partition in self.oracle.partitions:
            excused = self.oracle.excused_s(partition) > NEVER_S or self.oracle.excused_names
            if excused:
                try:
                    self.oracle.counts["hanging aborted"] += await abort_hanging(routes, partition)
                except OSError:
                    continue

    async def check(self, world: World) -> None:
        """Compare all replicas with each other and with their logs, and judge the history."""
        self._watch.look()
        image = self._watch.newest_image()
        assert image is not None
        for at in self.oracle.partitions:
            check_replicas(world, at, image.topics[at.topic].partitions[at.partition])
        check(await self._history(world))
        if self._watching is not None:
            self._watching.cancel()

    async def _history(self, world: World) -> History:
        routes = self._routes(world, "auditor", world.client_address(0))
        everything, committed = {}, {}
        for partition in self.oracle.data():
            everything[partition] = readable(await read_all(routes, self.oracle, partition))
            shown = await read_all(routes, self.oracle, partition, committed=True)
            committed[partition] = readable(shown)
        ignored = frozenset(
            value for values in everything.values() for _, value in values if hops_of(value) >= HOPS_MAX
        )
        groups = []
        for name in self.oracle.names.values():
            if name.has_group and name.group not in self.oracle.spoiled_groups:
                offsets = await offsets_of(routes, self.oracle, name.group, name.consumes, stable=True)
                groups.append(GroupView(name=name.group, offsets=offsets, ignored=ignored))
        routes.close()
        return History(
            transactions=self.oracle.transactions,
            incarnations=self.oracle.incarnations,
            everything=everything,
            committed=committed,
            views=self.oracle.views,
            groups=groups,
            excused_s={at: self.oracle.excused_s(at) for at in self.oracle.data()},
        )

    def progress(self) -> int:
        """Return the transactions that were committed for sure."""
        return self.oracle.counts[Outcome.COMMITTED.value]


def _name(number: int) -> str:
    return ("producer", "relay", "rival", "reader")[number % 4] + f"-{number}"
