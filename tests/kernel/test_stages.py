"""The stages of a start, with the real parts on a simulated machine that is killed between them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from blumfeld.broker.broker import Broker
from blumfeld.broker.replicas.partition import Partition
from blumfeld.kernel.node import Node
from blumfeld.spi.internal_topics import OFFSETS_TOPIC
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from blumfeld_kit.fakes.loop import SimulatedLoop
from blumfeld_kit.simulation.machine.host import Machine, plan_of
from blumfeld_kit.simulation.network.network import Network
from blumfeld_kit.simulation.trace import Trace

CONFIG = {"offsets.topic.num.partitions": 2, "group.initial.rebalance.delay.ms": 0}
STAGES = (
    ("storage", "start", "before"),
    ("metadata", "start", "before"),
    ("metadata", "caught_up", "before"),
    ("replication", "start", "before"),
    ("lifecycle", "register", "before"),
    ("lifecycle", "register", "after"),
    ("lifecycle", "unfence", "before"),
    ("lifecycle", "unfence", "after"),
)
"""(part, method, before or after its call) at which the process is killed while it starts."""
STOPS = (
    ("lifecycle", "shut_down", "after"),
    ("broker", "stop", "after"),
    ("metadata", "resign", "after"),
    ("transport", "stop", "after"),
    ("replication", "stop", "after"),
    ("metadata", "stop", "after"),
    ("storage", "stop", "before"),
)
"""The same while it stops."""


class Story:
    """A machine, and every leadership that its nodes began."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = SimulatedLoop()
        trace = Trace(self.loop.time)
        network = Network(self.loop, Random("network"), trace)
        self.defects: list[BaseException] = []
        plan = plan_of(CONFIG, "storage_local")
        self.machine = Machine(1, self.loop, network, plan, lambda _, error: self.defects.append(error))
        self.led: list[tuple[str, int, int]] = []
        """(partition, leader epoch, broker epoch at that time)."""
        self._kill: tuple[str, str, str] | None = None
        self._power_cut = False
        made = Node._make_parts

        def make_parts(node: Node, make: Any) -> Any:
            broker = made(node, make)
            self._watch(node, broker)
            return broker

        monkeypatch.setattr(Node, "_make_parts", make_parts)

    def _watch(self, node: Node, broker: Broker) -> None:
        def opened(partition: Partition) -> None:
            if partition.leader is not None:
                epoch = broker.membership.broker_epoch
                image = broker.cluster.image.brokers[1]
                assert image.epoch == epoch
                assert image.incarnation_id == node.composition.incarnation_id
                self.led.append((str(partition.partition), partition.leader_epoch, epoch))

        broker.partitions.opened.append(opened)
        parts = {
            "storage": node.composition.storage,
            "metadata": node.composition.metadata,
            "replication": node.composition.replication,
            "lifecycle": broker.lifecycle,
            "broker": broker,
            "transport": node.composition.transport,
        }
        for name, method in dict.fromkeys((at, method) for at, method, _ in (*STAGES, *STOPS)):
            self._wrap(parts[name], name, method)

    def _wrap(self, part: Any, name: str, method: str) -> None:
        inner = getattr(part, method)

        async def call(*arguments: Any) -> None:
            self._maybe_kill(name, method, "before")
            await inner(*arguments)
            self._maybe_kill(name, method, "after")

        setattr(part, method, call)

    def _maybe_kill(self, *stage: str) -> None:
        if stage == self._kill:
            self._kill = None
            self.machine.crash(power_cut=self._power_cut)

    def kill_at(self, stage: tuple[str, str, str], *, power_cut: bool) -> None:
        self._kill, self._power_cut = stage, power_cut

    @property
    def broker(self) -> Broker:
        assert self.machine.node is not None
        return self.machine.node.broker

    async def create_topics(self) -> None:
        topics = [
            CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in ("t", OFFSETS_TOPIC)
        ]

        async def create() -> None:
            await self.broker.composition.metadata.submit(CreateTopicsRequest(topics=topics), 10_000)
            await self.broker.partitions.settled()

        await self.machine.run(create())

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        self.loop.run(asyncio.wait_for(story, 600.0))
        assert not self.defects


def check_epochs(story: Story) -> None:
    """Each process leads in leader epochs of its own, later than those of the processes before it."""
    for partition in {name for name, _, _ in story.led}:
        begun = [(broker_epoch, epoch) for name, epoch, broker_epoch in story.led if name == partition]
        assert begun == sorted(begun)
        last: dict[int, int] = {}
        for broker_epoch, leader_epoch in begun:
            assert last.setdefault(leader_epoch, broker_epoch) == broker_epoch


@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power_cut"])
@pytest.mark.parametrize("stage", STAGES, ids="-".join)
def test_a_node_killed_between_two_stages_leads_in_new_epochs(
    monkeypatch: pytest.MonkeyPatch, stage: tuple[str, str, str], power_cut: bool
) -> None:
    """It comes back within its session: without a registration first it would go on in its old leader epoch."""

    async def tell(story: Story) -> None:
        assert await story.machine.start()
        await story.create_topics()
        before = len(story.led)
        assert before >= 4
        story.machine.crash(power_cut=power_cut)
        story.kill_at(stage, power_cut=power_cut)
        assert not await story.machine.start()
        assert await story.machine.start()
        await story.machine.run(story.broker.partitions.settled())
        assert {name for name, _, _ in story.led[before:]} == {name for name, _, _ in story.led[:before]}
        await story.machine.stop()
        assert await story.machine.start()

    story = Story(monkeypatch)
    story.run(tell(story))
    check_epochs(story)


@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power_cut"])
@pytest.mark.parametrize("stage", STOPS, ids="-".join)
def test_a_node_killed_between_two_stages_of_its_stop_starts_again(
    monkeypatch: pytest.MonkeyPatch, stage: tuple[str, str, str], power_cut: bool
) -> None:
    """A stop that is cut short is a crash: the next start recovers, and leads what the node led."""

    async def tell(story: Story) -> None:
        assert await story.machine.start()
        await story.create_topics()
        led = {name for name, _, _ in story.led}
        story.kill_at(stage, power_cut=power_cut)
        await story.machine.stop()
        assert story.machine.down.is_set()
        before = len(story.led)
        assert await story.machine.start()
        await story.broker.partitions.settled()
        assert {name for name, _, _ in story.led[before:]} == led
        await story.machine.stop()
        assert not story.machine.down.is_set()

    story = Story(monkeypatch)
    story.run(tell(story))
    check_epochs(story)


def test_a_stop_in_the_middle_of_a_start_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start may wait for other nodes without a limit: what has started is stopped, and nothing hangs."""

    async def tell(story: Story) -> None:
        machine = story.machine
        assert await machine.start()
        await machine.stop()
        waiting = asyncio.Event()

        async def never(node: Node) -> None:
            waiting.set()
            await asyncio.Event().wait()

        assert machine.node is not None
        kind = type(machine.node.composition.metadata)
        monkeypatch.setattr(kind, "caught_up", never)
        starting = story.loop.create_task(machine.start())
        await waiting.wait()
        assert machine._starting is not None
        machine._starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert machine.node.state == "stopped"

    story = Story(monkeypatch)
    story.run(tell(story))
