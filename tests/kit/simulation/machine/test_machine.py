"""Real nodes on several machines of one network: what dies with a machine, and what survives it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from blumfeld.client.connection import ClientConnection
from blumfeld.spi.transport import DialedConnection, Limits
from blumfeld.wire.messages.api_versions import ApiVersionsRequest
from blumfeld_kit.fakes.loop import SimulatedLoop
from blumfeld_kit.simulation.machine.host import (
    ADDRESS,
    DATA_DIR,
    Machine,
    StartError,
    address_of,
    plan_of,
)
from blumfeld_kit.simulation.network.network import Network
from blumfeld_kit.simulation.network.transport import SimulatedTransport
from blumfeld_kit.simulation.swarm.brokers import CONFIG
from blumfeld_kit.simulation.trace import Trace
from blumfeld_kit.transport_contract.kit import Receiver

QUESTION = ClientConnection("peer").frame(ApiVersionsRequest(), 3)[4:]
"""A request without its size, which the transport writes."""
CLEAN_SHUTDOWN = f"{DATA_DIR}/.kafka_cleanshutdown"


class Several:
    """Machines that start together."""

    def __init__(self, count: int = 2) -> None:
        self.loop = SimulatedLoop()
        self.network = Network(self.loop, Random("network"), Trace(self.loop.time))
        self.defects: list[BaseException] = []
        self.machines = [
            Machine(
                nth,
                self.loop,
                self.network,
                plan_of(CONFIG, "storage_local", node_id=nth),
                lambda _, error: self.defects.append(error),
            )
            for nth in range(1, count + 1)
        ]

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        async def told() -> None:
            for machine in self.machines:
                assert await machine.start()
            await story

        self.loop.run(told())
        assert not self.defects

    def transport(self, nth: int) -> SimulatedTransport:
        runtime = self.machines[nth]._runtime
        assert runtime is not None
        return runtime.transports[0]

    async def dial(self, source: int, destination: int, receiver: Receiver) -> DialedConnection:
        dialling = self.transport(source).dial(address_of(destination + 1), ADDRESS[1], receiver, Limits())
        return await self.machines[source].run(dialling)

    async def ask(self, connection: DialedConnection) -> None:
        connection.send([QUESTION])
        await asyncio.sleep(2.0)


def test_nodes_talk_across_the_network() -> None:
    several, receiver = Several(), Receiver()

    async def story() -> None:
        connection = await several.dial(0, 1, receiver)
        (accepted,) = several.transport(1).accepted.values()
        assert accepted.peer_host == address_of(1)
        await several.ask(connection)
        connection.close()
        await asyncio.sleep(1.0)

    several.run(story())
    assert len(receiver.frames) == 1
    assert len(receiver.lost_reasons) == 1
    assert not several.transport(1).accepted


@pytest.mark.parametrize("power_cut", [True, False])
def test_what_a_machine_dialled_dies_with_it(power_cut: bool) -> None:
    """It receives nothing afterwards, not even the end; the other machine is told by a reset, or not at all."""
    several, receiver = Several(), Receiver()

    async def story() -> None:
        connection = await several.dial(0, 1, receiver)
        connection.send([QUESTION])
        several.machines[0].crash(power_cut=power_cut)
        await asyncio.sleep(100.0)
        assert len(several.transport(1).accepted) == power_cut

    several.run(story())
    assert receiver.frames == []
    assert receiver.lost_reasons == []


@pytest.mark.parametrize("power_cut", [True, False])
def test_a_dialler_hears_of_a_killed_process_and_not_of_a_power_cut(power_cut: bool) -> None:
    several, receiver = Several(), Receiver()

    async def story() -> None:
        connection = await several.dial(0, 1, receiver)
        several.machines[1].crash(power_cut=power_cut)
        await asyncio.sleep(100.0)
        assert len(receiver.lost_reasons) == (not power_cut)
        assert await several.machines[1].start()
        await several.ask(connection)

    several.run(story())
    assert receiver.frames == []
    assert len(receiver.lost_reasons) == 1


def test_a_paused_node_answers_when_it_goes_on() -> None:
    several, receiver = Several(), Receiver()

    async def story() -> None:
        connection = await several.dial(0, 1, receiver)
        several.machines[1].pause()
        await several.ask(connection)
        assert receiver.frames == []
        several.machines[1].resume()
        await asyncio.sleep(2.0)

    several.run(story())
    assert len(receiver.frames) == 1
    assert receiver.lost_reasons == []


def test_each_machine_has_its_own_disk_and_clock() -> None:
    several = Several()
    first, second = several.machines
    second.clock.set_rate(1.25, 0.0)
    second.clock.jump(-3_600_000)

    async def story() -> None:
        await asyncio.sleep(100.0)
        assert first._runtime is not None
        assert second._runtime is not None
        drift_ms = second._runtime.now_ms() - first._runtime.now_ms() + 3_600_000
        assert drift_ms == pytest.approx(0.25 * several.loop.time() * 1000, abs=2)
        first.crash(power_cut=True)
        assert await first.start()

    several.run(story())
    assert first.disk is not second.disk
    assert first.disk.tree.find(DATA_DIR) is not None
    assert (first.incarnations, second.incarnations) == (2, 1)


def test_a_power_cut_is_told_before_the_next_process_starts_however_fast_it_is() -> None:
    """What the old process acknowledged may still arrive until then; what the new one acknowledges comes after."""
    several = Several(1)
    [machine] = several.machines
    events: list[str] = []
    machine.on_power_cut = lambda: events.append("power cut")
    machine.on_start = lambda: events.append("start")

    async def story() -> None:
        machine.crash(power_cut=True)
        assert await machine.start()
        machine.crash(power_cut=False)
        await asyncio.sleep(60)
        assert await machine.start()

    several.run(story())
    assert events == ["start", "power cut", "start", "start"]


def test_a_process_that_is_told_to_stop_twice_ends_when_its_stop_is_done() -> None:
    """A second SIGTERM is no SIGKILL: cut short, the stop would leave no mark, and nobody would call it unclean."""
    several = Several(1)
    (machine,) = several.machines

    async def story() -> None:
        first = asyncio.ensure_future(machine.stop())
        await asyncio.sleep(0)
        await machine.stop()
        await first
        assert not machine.is_running

    several.run(story())
    assert machine.disk.tree.find(CLEAN_SHUTDOWN) is not None


def test_a_start_that_fails_tells_those_who_wait_for_the_process_to_end() -> None:
    several = Several(1)
    (machine,) = several.machines

    async def story() -> None:
        await machine.stop()
        machine.disk.room = 0
        waiting = asyncio.ensure_future(machine.down.wait())
        machine.down.clear()
        with pytest.raises(StartError):
            await machine.start()
        assert machine.down.is_set()
        await waiting

    several.run(story())


@pytest.mark.parametrize("power_cut", [True, False])
def test_a_crash_fences_the_dead_node(power_cut: bool) -> None:
    """Every handle of it raises; its ``finally`` blocks and its stop write no clean-shutdown file."""
    several = Several(1)
    (machine,) = several.machines

    async def story() -> None:
        dead = machine.node
        assert dead is not None
        machine.crash(power_cut=power_cut)
        with pytest.raises(OSError, match="dead"):
            dead.composition.runtime.files.list_dir(DATA_DIR)
        with suppress(OSError, TimeoutError):
            await asyncio.wait_for(machine.run(dead.stop()), 5.0)

    several.run(story())
    assert machine.disk.tree.find(CLEAN_SHUTDOWN) is None


def test_a_machine_starts_again_wherever_its_start_was_cut_short() -> None:
    """The power goes inside of the nth disk operation of a start, for every n that it has."""
    several = Several(1)
    (machine,) = several.machines
    starts = 0

    async def story() -> None:
        nonlocal starts
        machine.crash(power_cut=True)
        while True:
            starts += 1
            machine.crash_in_operation(starts, power_cut=starts % 2 == 0)
            if await machine.start():
                return
            assert machine.down.is_set()

    several.run(story())
    assert starts > 20
