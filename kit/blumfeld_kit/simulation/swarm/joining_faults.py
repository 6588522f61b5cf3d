"""Faults around a change of an ISR, and around a process whose last requests outlive it: chance seldom meets both."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from blumfeld_kit.simulation.machine.host import Machine
from blumfeld_kit.simulation.swarm.faults import FaultClass
from blumfeld_kit.simulation.swarm.network_faults import NetworkFaults
from blumfeld_kit.simulation.swarm.world import Following, Membership, World

LOOK_S = 0.002
"""Pause between two looks at a follower: a change of an ISR takes some milliseconds."""
SEEN_S_MAX = 6.0
"""Longest wait for a follower that leaves an ISR, or comes back."""
ANSWER_S_MIN, ANSWER_S_MAX = 4.0, 10.0
"""Time for which the controller's answer doesn't come: longer than ``replica.lag.time.max.ms``."""
REQUEST_S = 3.2
"""Time for which the leader's request is under way: shorter than ``broker.session.timeout.ms``."""
FENCED_S = 0.3
"""Time within which a killed process is fenced, by its refusing port (ADR 0033)."""
LATE_S_MAX = 6.0


class JoiningFaults:
    """Brings these faults about.

    :param start: starts a machine's next process
    :param stop: stops a process in order
    :param counts: faults that happened, by class
    """

    def __init__(
        self,
        world: World,
        network: NetworkFaults,
        start: Callable[[Machine], Awaitable[None]],
        stop: Callable[[Machine], Awaitable[None]],
        counts: Counter[str],
    ) -> None:
        self._world = world
        self._network = network
        self._start = start
        self._stop = stop
        self._counts = counts

    def by_class(self) -> Mapping[FaultClass, Callable[[random.Random], Awaitable[None]]]:
        """Return what brings each class about."""
        return {FaultClass.JOINING: self._joining, FaultClass.LATE: self._late}

    async def _joining(self, chance: random.Random) -> None:
        """Cut a follower off until it leaves an ISR, let it come back, and disturb its return."""
        work = (self._hold_answer, self._hold_records, self._hold_request)[chance.randrange(3)]
        followers = self._world.followers
        known = (
            [] if followers is None else [pair for pair in followers() if pair.membership is Membership.IN]
        )
        if work == self._hold_request:
            known = [pair for pair in known if pair.follower is not pair.controller]
        if not known:
            return
        following = known[chance.randrange(len(known))]
        leader, follower = following.leader.address, following.follower.address
        ways = [(leader, follower), (follower, leader)]
        if not await self._seen_while_cut(following, Membership.OUT, ways):
            return
        if work == self._hold_request:
            self._world.network.stall(leader, following.controller.address, REQUEST_S)
        if await self._seen(following, Membership.ASKED):
            self._counts[FaultClass.JOINING.value] += 1
            await work(following, chance)

    async def _seen_while_cut(
        self, following: Following, wanted: Membership, ways: Sequence[tuple[str, str]]
    ) -> bool:
        for a, b in ways:
            self._world.network.cut(a, b)
        try:
            return await self._seen(following, wanted)
        finally:
            for a, b in ways:
                self._world.network.heal(a, b)

    async def _seen(self, following: Following, wanted: Membership) -> bool:
        """Wait until a follower is in, out, or asked for. Return whether it came to that."""
        assert self._world.followers is not None
        loop = self._world.loop
        until_s = loop.time() + SEEN_S_MAX
        while loop.time() < until_s:
            if following._replace(membership=wanted) in self._world.followers():
                return True
            await asyncio.sleep(LOOK_S)
        return False

    async def _hold_answer(self, following: Following, chance: random.Random) -> None:
        """The controller may have decided, and the leader doesn't hear of it. Meanwhile the follower falls behind."""
        seconds = ANSWER_S_MIN + chance.random() * (ANSWER_S_MAX - ANSWER_S_MIN)
        leader, ways = following.leader.address, [(following.controller.address, following.leader.address)]
        if following.follower is not following.controller:
            ways.append((following.follower.address, leader))
        await self._network.cut_ways(ways, seconds)

    async def _hold_records(self, following: Following, chance: random.Random) -> None:
        """The follower joins with what it has at that moment."""
        await self._network.cut_ways([(following.leader.address, following.follower.address)], ANSWER_S_MIN)

    async def _hold_request(self, following: Following, chance: random.Random) -> None:
        """The follower's process ends, and its machine loses its page cache, before the leader's request arrives."""
        leader, follower = following.leader.address, following.follower.address
        following.follower.crash(power_cut=False)
        await self._succeeded(following.follower, power_cut=True)
        await self._network.cut_ways([(leader, follower), (follower, leader)], REQUEST_S)

    async def _late(self, chance: random.Random) -> None:
        """The last message of a process arrives when its successor is there. Some processes are told to stop before."""
        machine = self._world.machines[chance.randrange(len(self._world.machines))]
        seconds = 1.0 + chance.random() * (LATE_S_MAX - 1.0)
        stops_first, power_cut = chance.random() < 0.5, chance.random() < 0.5
        if not machine.is_serving or machine.is_paused:
            return
        self._counts[FaultClass.LATE.value] += 1
        self._world.network.hold_streams_of(machine.address, seconds)
        if stops_first:
            await asyncio.wait((asyncio.ensure_future(self._stop(machine)),), timeout=chance.random())
        else:
            await asyncio.sleep(chance.random())
        if machine.is_running:
            machine.crash(power_cut=False)
        await self._succeeded(machine, power_cut=power_cut)

    async def _succeeded(self, machine: Machine, *, power_cut: bool) -> None:
        """Start the next process of a machine whose process has ended.

        :param power_cut: the machine loses its power before. Its peers were told of the end
        """
        await asyncio.sleep(FENCED_S)
        if machine.is_running:
            return
        if power_cut:
            machine.lose_cache()
        await self._start(machine)
