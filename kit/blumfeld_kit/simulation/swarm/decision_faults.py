"""Faults that strike a coordinator in the milliseconds in which it decides on a transaction."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from blumfeld_kit.simulation.machine.host import Machine
from blumfeld_kit.simulation.swarm.faults import FaultClass
from blumfeld_kit.simulation.swarm.network_faults import NetworkFaults
from blumfeld_kit.simulation.swarm.world import Struck, World

LOST_S = 0.3
"""Longest life of a coordinator whose followers are cut off. It is shorter than ``replica.lag.time.max.ms``, so that
the followers stay in the ISR, and one of them is elected without the decision."""
ANSWERED_S_MIN, ANSWERED_S_MAX = 0.02, 0.2
"""Life of a coordinator from the request on, if its decision is to be committed and answered."""
LATE_S_MIN, LATE_S_MAX = 1.0, 4.0
"""Time for which its markers are on their way. A successor is elected and has written its own meanwhile."""


class DecisionFaults:
    """Brings these faults about.

    :param counts: faults that happened, by class
    """

    def __init__(self, world: World, network: NetworkFaults, counts: Counter[str]) -> None:
        self._world = world
        self._network = network
        self._counts = counts

    def by_class(self) -> Mapping[FaultClass, Callable[[random.Random], Awaitable[None]]]:
        """Return what brings the class about."""
        return {FaultClass.DECISION: self._decision}

    async def _decision(self, chance: random.Random) -> None:
        struck = Struck.LOST if chance.random() < 0.5 else Struck.OUTLIVED
        machine = await self._world.next_decision(struck)
        if not machine.is_running or machine.is_paused:
            return
        self._counts[FaultClass.DECISION.value] += 1
        if struck is Struck.LOST:
            await self._lose(machine, chance)
        else:
            await self._outlive(machine, chance)

    async def _lose(self, machine: Machine, chance: random.Random) -> None:
        """No follower can fetch the decision, and what the coordinator sends arrives. Then its process is killed."""
        network, address = self._world.network, machine.address
        others = [other.address for other in self._world.machines if other is not machine]
        network.break_between(others, address)  # also ends fetches that wait for the next record
        await self._network.cut_ways([(other, address) for other in others], chance.random() * LOST_S)
        machine.crash(power_cut=False)

    async def _outlive(self, machine: Machine, chance: random.Random) -> None:
        """Followers fetch the decision, and the client has its answer. The coordinator's own requests are held up."""
        seconds = LATE_S_MIN + chance.random() * (LATE_S_MAX - LATE_S_MIN)
        self._world.network.hold_streams_of(machine.address, seconds, opened=True)
        await asyncio.sleep(ANSWERED_S_MIN + chance.random() * (ANSWERED_S_MAX - ANSWERED_S_MIN))
        machine.crash(power_cut=False)
