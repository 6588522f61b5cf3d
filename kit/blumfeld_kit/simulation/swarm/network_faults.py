"""Faults of the network: links that are cut, held up or refused, and ports that answer otherwise than their process."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from blumfeld_kit.simulation.swarm.faults import FaultClass, lasts_s
from blumfeld_kit.simulation.swarm.world import World

LISTENER_S_MAX = 2.0
"""Longest time for which a listener is closed. ADR 0033 speaks of a second."""


class NetworkFaults:
    """Brings the faults of the network about.

    :param counts: faults that happened, by class
    """

    def __init__(self, world: World, counts: Counter[str]) -> None:
        self._world = world
        self._network = world.network
        self._counts = counts

    def by_class(self) -> Mapping[FaultClass, Callable[[random.Random], Awaitable[None]]]:
        """Return what brings each class about."""
        return {
            FaultClass.CUT: self._cut,
            FaultClass.PARTITION: self._partition,
            FaultClass.STALL: self._stall,
            FaultClass.BREAK: self._break,
            FaultClass.REFUSE: self._refuse,
            FaultClass.BACKLOG: self._backlog,
            FaultClass.LISTENER: self._listener,
            FaultClass.PROXY: self._proxy,
        }

    def _hosts(self) -> list[str]:
        return [*(machine.address for machine in self._world.machines), *self._world.client_addresses]

    def _machine(self, chance: random.Random) -> str:
        machines = self._world.machines
        return machines[chance.randrange(len(machines))].address

    async def _cut(self, chance: random.Random) -> None:
        source, destination = chance.sample(self._hosts(), 2)
        self._counts[FaultClass.CUT.value] += 1
        self._network.cut(source, destination)
        await asyncio.sleep(lasts_s(chance))
        self._network.heal(source, destination)

    async def _partition(self, chance: random.Random) -> None:
        hosts = self._hosts()
        chance.shuffle(hosts)
        size = 1 + chance.randrange(max(len(hosts) // 2, 1))
        ways = [(a, b) for a in hosts[:size] for b in hosts[size:]]
        ways += [(b, a) for a, b in ways]
        self._counts[FaultClass.PARTITION.value] += 1
        await self.cut_ways(ways, lasts_s(chance))

    async def cut_ways(self, ways: Sequence[tuple[str, str]], seconds: float) -> None:
        """Let nothing arrive over these links for some time."""
        for a, b in ways:
            self._network.cut(a, b)
        await asyncio.sleep(seconds)
        for a, b in ways:
            self._network.heal(a, b)

    async def _stall(self, chance: random.Random) -> None:
        source, destination = chance.sample(self._hosts(), 2)
        self._counts[FaultClass.STALL.value] += 1
        self._network.stall(source, destination, chance.random() * 5.0)

    async def _break(self, chance: random.Random) -> None:
        network = self._network
        if network.connections:
            self._counts[FaultClass.BREAK.value] += 1
            numbers = sorted(network.connections)
            network.connections[numbers[chance.randrange(len(numbers))]].break_off("the network broke it")

    async def _refuse(self, chance: random.Random) -> None:
        destination = self._machine(chance)
        hosts = [host for host in self._hosts() if host != destination]
        sources = hosts if chance.random() < 0.5 else chance.sample(hosts, 1 + chance.randrange(len(hosts)))
        self._counts[FaultClass.REFUSE.value] += 1
        for source in sources:
            self._network.refuse(source, destination)
        await asyncio.sleep(lasts_s(chance))
        for source in sources:
            self._network.refuse_no_more(source, destination)

    async def _backlog(self, chance: random.Random) -> None:
        site = self._network.site(self._machine(chance))
        self._counts[FaultClass.BACKLOG.value] += 1
        site.backlog_full = True
        await asyncio.sleep(lasts_s(chance))
        site.backlog_full = False

    async def _listener(self, chance: random.Random) -> None:
        machine = self._machine(chance)
        seconds = chance.random() * LISTENER_S_MAX
        if self._network.close_ports(machine):
            self._counts[FaultClass.LISTENER.value] += 1
            await asyncio.sleep(seconds)
            self._network.open_ports(machine)

    async def _proxy(self, chance: random.Random) -> None:
        site = self._network.site(self._machine(chance))
        self._counts[FaultClass.PROXY.value] += 1
        site.behind_proxy = True
        await asyncio.sleep(5.0 * lasts_s(chance))
        site.behind_proxy = False
