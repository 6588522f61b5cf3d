"""One run: a broker, its clients and their faults, for a number of virtual hours, all from one seed."""

from __future__ import annotations

import asyncio
import errno
import random
import traceback
from collections.abc import Coroutine
from typing import Any

import msgspec

from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld_kit.fakes.files import Fault
from blumfeld_kit.fakes.loop import SimulatedLoop
from blumfeld_kit.simulation.clients.client import connect
from blumfeld_kit.simulation.clients.consumer import Consumer, check_claims
from blumfeld_kit.simulation.clients.group_member import GroupMember
from blumfeld_kit.simulation.clients.oracle import Counts, Oracle, ViolationError
from blumfeld_kit.simulation.clients.producer import Producer
from blumfeld_kit.simulation.machine.host import ADDRESS, Machine, plan_of
from blumfeld_kit.simulation.network.network import Network
from blumfeld_kit.simulation.trace import Trace

FLUSHED = "flushed"
CACHED = "cached"
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

CRASH_WAIT_S = 60.0
"""Time to wait for a disk operation to crash in. A storage without a disk has few."""
FAILING_LOGS = (
    "flushed-0/00000",
    "flushed-1/00000",
    "cached-0/00000",
    "__consumer_offsets-0/00000",
    "_offsets-1/00000",
)
"""Parts of paths: log and index files of partitions."""
SETTLE_S = 900.0
"""Time after the last crash in which every client must finish. Otherwise something hangs."""


def topic_request(name: str) -> CreateTopicsRequest:
    """Return the request that creates one of the topics."""
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in TOPIC_CONFIGS[name].items()]
    topic = CreatableTopic(name=name, num_partitions=PARTITIONS[name], replication_factor=1, configs=configs)
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How often things happen: mean times in virtual seconds."""

    producer_pause_s: float = 8.0
    consumer_wait_ms: int = 5_000
    member_pause_s: float = 4.0
    life_s: float = 150.0
    """Between two ends of a node."""
    down_s: float = 3.0
    break_s: float = 60.0
    """Between two broken connections."""
    full_s: float = 60.0
    """Between two writes that find the disk full."""


class Report(msgspec.Struct, kw_only=True):
    """The result of a run that kept every promise. Any other run raises."""

    seed: int
    hours: float
    kills: int
    power_cuts: int
    clean_stops: int
    broken_connections: int
    failed_writes: int
    counts: Counts
    events: int
    digest: str
    """Digest of the trace: the same seed gives the same digest."""


class SimulationFailure(AssertionError):  # noqa: N818 - a failure of what is simulated, not an error of ours
    """A promise was not kept, a task hangs, or an error escaped. The message has the seed and the newest events."""


class Simulation:
    """A simulation. It is made from a seed and runs once."""

    def __init__(
        self, seed: int, hours: float = 1.0, *, pace: Pace | None = None, storage: str = "storage_local"
    ) -> None:
        self.seed = seed
        self.hours = hours
        self.storage = storage
        self.pace = pace if pace is not None else Pace()
        self.loop = SimulatedLoop()
        self.trace = Trace(self.loop.time)
        self.network = Network(self.loop, self._chance("network"), self.trace)
        self.oracle = Oracle()
        self.clean_stops = 0
        self.failed_writes = 0
        self._fate = self._chance("fate")
        self._failed: asyncio.Future[None] = self.loop.create_future()
        self.machine = Machine(
            seed, self.loop, self.network, plan_of(CONFIG, storage), self._defect, self.oracle.power_cut
        )
        self.machine.on_start = self.oracle.restarted

    def _chance(self, name: str) -> random.Random:
        """Return a source of chance for one part, so that its draws don't change those of another."""
        return random.Random(f"{self.seed}/{name}")

    def run(self) -> Report:
        """Run to the end. :raises SimulationFailure: a promise was not kept"""
        try:
            self.loop.run(self._main())
        except Exception as error:
            newest = "\n".join(list(self.trace.newest)[-40:])
            raised = "".join(traceback.format_exception(error))
            raise SimulationFailure(
                f"seed {self.seed}, {self.loop.time():.3f} s: {error!r}\n{newest}\n{raised}"
                f"again: python -m blumfeld_kit.simulation --seeds {self.seed} --hours {self.hours:g} "
                f"--storage {self.storage}"
            ) from error
        finally:
            self._end_tasks()
        machine = self.machine
        return Report(
            seed=self.seed,
            hours=self.hours,
            kills=machine.kills,
            power_cuts=machine.power_cuts,
            clean_stops=self.clean_stops,
            broken_connections=self.network.broken_off,
            failed_writes=self.failed_writes,
            counts=self.oracle.counts,
            events=self.trace.events,
            digest=self.trace.digest(),
        )

    def _end_tasks(self) -> None:
        """Cancel every task, so that none wakes up in another run."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        if not self._failed.done():
            self._failed.cancel()
        self.machine.end()

    def _defect(self, where: str, error: BaseException) -> None:
        self._fail(ViolationError(f"defect in {where}: {error!r}"), error)

    def _fail(self, failure: BaseException, cause: BaseException | None = None) -> None:
        if not self._failed.done():
            failure.__cause__ = cause
            self._failed.set_exception(failure)

    async def _unless_failed(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine, or fail as soon as any task has failed."""
        task = asyncio.ensure_future(coroutine)
        await asyncio.wait((task, self._failed), return_when=asyncio.FIRST_COMPLETED)
        if self._failed.done():
            task.cancel()
            self._failed.result()
        task.result()

    async def _main(self) -> None:
        end_s = self.hours * 3600.0
        hangs = ViolationError("the run does not come to its end: something waits for ever")
        self.loop.call_at(end_s + 2 * SETTLE_S, self._fail, hangs)
        await self._unless_failed(self._begin())
        clients = [self.loop.create_task(run) for run in self._clients(end_s)]
        for client in clients:
            client.add_done_callback(self._client_ended)
        troubles = [self.loop.create_task(t) for t in (self._break_connections(), self._fill_disk())]
        await self._unless_failed(self._suffer(end_s))
        for trouble in troubles:
            trouble.cancel()
        self.machine.disk.heal()
        await self._unless_failed(asyncio.wait_for(asyncio.gather(*clients), SETTLE_S))
        await self._unless_failed(self._last_check())

    def _client_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    async def _begin(self) -> None:
        await self._start()
        for name, partitions in PARTITIONS.items():
            while not await self._created(name):
                if self.machine.down.is_set():
                    await self._start()
            for partition in range(partitions):
                self.oracle.add(TopicPartition(name, partition), flushed=name == FLUSHED)

    async def _created(self, name: str) -> bool:
        """Create a topic. Return whether it exists now."""
        request = topic_request(name)
        try:
            connection = await connect(self.network, ADDRESS, "admin")
            answer = await connection.ask(request, 5, CreateTopicsResponse)
        except OSError:
            return False
        connection.close()
        code = ErrorCode(answer.topics[0].error_code)
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return True
        if not is_retriable(code):
            raise ViolationError(f"CreateTopics {name}: {code.name}")
        return False

    def _clients(self, end_s: float) -> list[Coroutine[Any, Any, None]]:
        flushed = [at for at in self.oracle.partitions if at.topic == FLUSHED]
        every = list(self.oracle.partitions)
        pace, network, oracle = self.pace, self.network, self.oracle
        producers = [
            Producer(name, network, ADDRESS, oracle, self._chance(name), every, pause_s=pace.producer_pause_s)
            for name in ("producer-1", "producer-2")
        ]
        consumer = Consumer("reader", network, ADDRESS, oracle, every, max_wait_ms=pace.consumer_wait_ms)
        members = [
            GroupMember(
                name,
                "group",
                network,
                ADDRESS,
                oracle,
                self._chance(name),
                flushed,
                pause_s=pace.member_pause_s,
            )
            for name in ("member-1", "member-2")
        ]
        runs = [producer.run(end_s) for producer in producers]
        return [*runs, consumer.run(end_s), *(member.run(end_s) for member in members)]

    async def _break_connections(self) -> None:
        while True:
            await asyncio.sleep(self._fate.random() * 2 * self.pace.break_s)
            self.network.break_one()

    async def _fill_disk(self) -> None:
        """Let one write to a log fail or be short, as on a full disk. Metadata are spared: a node can't go on without
        them.
        """
        chance = self._chance("disk")
        while True:
            await asyncio.sleep(chance.random() * 2 * self.pace.full_s)
            self.machine.disk.heal()
            self.machine.disk.inject(
                Fault(
                    operation="pwritev",
                    error_number=errno.ENOSPC,
                    path_part=FAILING_LOGS[chance.randrange(len(FAILING_LOGS))],
                    short_bytes=chance.randrange(300) if chance.random() < 0.5 else None,
                )
            )
            self.failed_writes += 1

    async def _suffer(self, end_s: float) -> None:
        """Let the node live and die until the end, then let it live."""
        while True:
            lives_s = self._fate.random() * 2 * self.pace.life_s
            if self.loop.time() + lives_s >= end_s:
                await self._down_within(end_s - self.loop.time())
                await self._live()
                return
            if not await self._down_within(lives_s):
                await self._die_once()
            await asyncio.sleep(self._fate.random() * 2 * self.pace.down_s)
            await self._start()

    async def _live(self) -> None:
        """Stop every fault."""
        self.machine.spare()
        while self.machine.down.is_set() and not await self.machine.start():
            await asyncio.sleep(1.0)

    async def _down_within(self, seconds: float) -> bool:
        """Return whether the node crashed by then, from a crash that was planned at its start."""
        try:
            await asyncio.wait_for(self.machine.down.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _die_once(self) -> None:
        chance = self._fate.random()
        power_cut = self._fate.random() < 0.5
        if chance < 0.2:
            if self._fate.random() < 0.3:  # the power fails during the stop
                self.machine.crash_in_operation(1 + self._fate.randrange(30), power_cut=power_cut)
            self.clean_stops += 1
            await self.machine.stop()
        elif chance < 0.5:
            self.machine.crash(power_cut=power_cut)
        else:
            self.machine.crash_in_operation(1 + self._fate.randrange(40), power_cut=power_cut)
            if not await self._down_within(CRASH_WAIT_S):
                self.machine.crash(power_cut=power_cut)

    async def _start(self) -> None:
        """Start the node. A crash may interrupt the recovery too."""
        while True:
            if self._fate.random() < 0.25:
                power_cut = self._fate.random() < 0.5
                self.machine.crash_in_operation(1 + self._fate.randrange(120), power_cut=power_cut)
            if await self.machine.start():
                return
            await asyncio.sleep(self._fate.random() * self.pace.down_s)

    async def _last_check(self) -> None:
        """Cut the power once more, and read everything."""
        await check_claims(self.network, ADDRESS, self.oracle)
        self.machine.crash(power_cut=True)
        await self._live()
        reader = Consumer(
            "auditor", self.network, ADDRESS, self.oracle, list(self.oracle.partitions), max_wait_ms=0
        )
        for partition, found in (await reader.read_all()).items():
            ledger = self.oracle.partitions[partition]
            ledger.check_whole(found)
            self.oracle.counts.unsynced += ledger.taken
        member = GroupMember(
            "auditor",
            "group",
            self.network,
            ADDRESS,
            self.oracle,
            self._chance("auditor"),
            [at for at in self.oracle.partitions if at.topic == FLUSHED],
            pause_s=0.1,
        )
        await member.run(self.loop.time() + 10.0)
