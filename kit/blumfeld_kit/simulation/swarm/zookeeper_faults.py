"""Faults of a simulated ZooKeeper: its servers, the ways to it, sessions, and writes in whose middle something ends."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from blumfeld.spi.zookeeper import Check, Delete, Operation, SessionState
from blumfeld_kit.fakes.zookeeper import SimulatedZooKeeper
from blumfeld_kit.fakes.zookeeper_servers import nobody_looks
from blumfeld_kit.fakes.zookeeper_session import SimulatedSession
from blumfeld_kit.simulation.machine.host import Machine
from blumfeld_kit.simulation.swarm.faults import FaultClass, lasts_s
from blumfeld_kit.simulation.swarm.world import World
from blumfeld_kit.simulation.zookeeper.coordination import Coordination
from blumfeld_kit.simulation.zookeeper.tree_oracle import CONTROLLER, CONTROLLER_EPOCH

CONTROLLER_CHANCE = 0.5
"""Probability that a fault of one node's session is one of the controller's."""
SLOW_MS_MAX = 400.0
LAG_MS_MAX = 1_500.0
HELD_S = (0.1, 1.2)
"""Time for which a deposed controller's messages are held up: less than half a session, so that it isn't cut off."""
ORDERS_LATE_S = 0.5
"""Time for which its orders to brokers are held up longer."""
WRITES_MAX = 2
"""A fault strikes one of the controller's next writes, at random."""


class ZooKeeperFaults:
    """Brings these faults about.

    :param counts: faults that happened, by class
    """

    def __init__(self, world: World, counts: Counter[str]) -> None:
        self._world = world
        self._counts = counts

    def by_class(self) -> Mapping[FaultClass, Callable[[random.Random], Awaitable[None]]]:
        """Return what brings each class about."""
        return {
            FaultClass.ZK_CUT: self._cut,
            FaultClass.ZK_SERVER: self._server,
            FaultClass.ZK_PARTITION: self._partition,
            FaultClass.ZK_LEADER: self._leader,
            FaultClass.ZK_EXPIRY: self._expiry,
            FaultClass.ZK_WRITE: self._write,
            FaultClass.ZK_DEPOSE: self._depose,
            FaultClass.ZK_SLOW: self._slow,
        }

    def heal(self) -> None:
        """End what such a fault may have left."""
        coordination = self._world.coordination
        if coordination is None:
            return
        servers = coordination.servers
        servers.deciding = nobody_looks
        for server in servers.servers:
            server.lag_ms = 0.0
            servers.join(server.number)
        servers.start_all()
        for session in coordination.sessions.values():
            session.slow_ms, session.answers_to_lose = 0.0, 0
            session.heal()

    def was_away(self, since_s: float) -> bool:
        """Return whether ZooKeeper was in trouble since then, so that a start may have failed."""
        coordination = self._world.coordination
        return coordination is not None and (coordination.troubles > 0 or coordination.troubled_s >= since_s)

    @property
    def _coordination(self) -> Coordination:
        coordination = self._world.coordination
        assert coordination is not None
        return coordination

    @property
    def _servers(self) -> SimulatedZooKeeper:
        return self._coordination.servers

    def _session(self, chance: random.Random) -> SimulatedSession | None:
        """Return the session of a node, in half of the cases that of the controller."""
        coordination = self._coordination
        node_id = 1 + chance.randrange(len(self._world.machines))
        if chance.random() < CONTROLLER_CHANCE and coordination.oracle.controller is not None:
            node_id = coordination.oracle.controller[1]
        session = coordination.sessions.get(node_id)
        return session if session is not None and session.state is not SessionState.EXPIRED else None

    @contextmanager
    def _troubled(self) -> Iterator[None]:
        self._coordination.troubles += 1
        try:
            yield
        finally:
            self._coordination.troubles -= 1
            self._coordination.troubled_s = self._world.loop.time()

    async def _cut(self, chance: random.Random) -> None:
        """A node doesn't reach ZooKeeper for a while, mostly longer than its session lasts."""
        session = self._session(chance)
        if session is None:
            return
        self._counts[FaultClass.ZK_CUT.value] += 1
        with self._troubled():
            session.cut()
            await asyncio.sleep(lasts_s(chance))
        session.heal()

    async def _server(self, chance: random.Random) -> None:
        """A server is killed, and starts again later; now and then all of them."""
        servers = self._servers
        all_of_them = chance.random() < 0.2
        numbers = [server.number for server in servers.servers]
        if not all_of_them:
            numbers = [numbers[chance.randrange(len(numbers))]]
        self._counts[FaultClass.ZK_SERVER.value] += 1
        with self._troubled():
            for number in numbers:
                if servers.servers[number].up:
                    servers.stop_server(number)
            await asyncio.sleep(lasts_s(chance))
        for number in numbers:
            if not servers.servers[number].up:
                servers.start_server(number)

    async def _partition(self, chance: random.Random) -> None:
        """One server doesn't reach the others, in a third of the cases the leader. Its clients read old news first."""
        servers = self._servers
        number = chance.randrange(len(servers.servers))
        if len(servers.servers) == 1 or servers.servers[number].apart:
            return
        self._counts[FaultClass.ZK_PARTITION.value] += 1
        with self._troubled():
            servers.part(number)
            await asyncio.sleep(lasts_s(chance) / 2)
        servers.join(number)

    async def _leader(self, chance: random.Random) -> None:
        """The leader leads no more: writes on their way are lost."""
        if self._servers.leader is not None:
            self._counts[FaultClass.ZK_LEADER.value] += 1
            with self._troubled():
                self._servers.lose_leader()

    async def _expiry(self, chance: random.Random) -> None:
        """A session is over at once."""
        session, servers = self._session(chance), self._servers
        if session is not None and servers.leader is not None and servers.is_alive(session.session_id):
            self._counts[FaultClass.ZK_EXPIRY.value] += 1
            servers.expire(session.session_id)

    async def _write(self, chance: random.Random) -> None:
        """Something ends around a write of the controller: its session before or behind the write, the connection with
        the answer, or the process."""
        left = 1 + chance.randrange(WRITES_MAX)
        strike = (self._expire_before, self._expire_behind, self._lose_answer, self._kill)[
            chance.randrange(4)
        ]
        session_id = await self._next_write(left, lasts_s(chance), strike)
        self._counts[FaultClass.ZK_WRITE.value] += session_id is not None

    async def _depose(self, chance: random.Random) -> None:
        """Delete ``/controller`` at a write of the controller, whose messages are held up from then on: another node is
        elected before its next writes arrive, and before brokers have its orders."""
        left, held_s = 1 + chance.randrange(WRITES_MAX), HELD_S[0] + chance.random() * (HELD_S[1] - HELD_S[0])
        session_id = await self._next_write(left, lasts_s(chance), lambda *_: None)
        session = None if session_id is None else self._session_of(session_id)
        if session is None or self._servers.leader is None or self._servers.tree.exists(CONTROLLER) is None:
            return
        self._counts[FaultClass.ZK_DEPOSE.value] += 1
        if (machine := self._machine_of(session.session_id)) is not None:
            self._world.network.hold_streams_of(machine.address, held_s + ORDERS_LATE_S, opened=True)
        session.cut()
        self._servers.by_hand(Delete(CONTROLLER))
        await asyncio.sleep(held_s)
        session.heal()

    async def _next_write(
        self, left: int, seconds: float, strike: Callable[[int, Machine], None]
    ) -> int | None:
        """Wait for a write of the controller, and strike before it is decided. Return its session; ``None`` if the time
        was over.

        :param left: number of the write
        """
        servers = self._servers
        met: asyncio.Future[int] = self._world.loop.create_future()

        def deciding(session_id: int, operations: Sequence[Operation]) -> None:
            nonlocal left
            fenced = any(isinstance(each, Check) and each.path == CONTROLLER_EPOCH for each in operations)
            if not fenced or met.done():
                return
            left -= 1
            machine = self._machine_of(session_id)
            if left == 0 and machine is not None:
                met.set_result(session_id)
                self._world.network.trace.note(f"{machine.address} {strike.__name__}")
                strike(session_id, machine)

        servers.deciding = deciding
        try:
            await asyncio.wait((met,), timeout=seconds)
        finally:
            servers.deciding = nobody_looks
        return met.result() if met.done() else None

    def _session_of(self, session_id: int) -> SimulatedSession | None:
        sessions = self._coordination.sessions.values()
        return next((session for session in sessions if session.session_id == session_id), None)

    def _machine_of(self, session_id: int) -> Machine | None:
        for node_id, session in self._coordination.sessions.items():
            if session.session_id == session_id:
                return self._world.machines[node_id - 1]
        return None

    def _expire_before(self, session_id: int, _: Machine) -> None:
        self._servers.expire(session_id)

    def _expire_behind(self, session_id: int, _: Machine) -> None:
        def expire() -> None:
            if self._servers.leader is not None and self._servers.is_alive(session_id):
                self._servers.expire(session_id)

        self._world.loop.call_soon(expire)

    def _lose_answer(self, session_id: int, _: Machine) -> None:
        session = self._session_of(session_id)
        if session is not None:
            session.lose_answers()

    def _kill(self, _: int, machine: Machine) -> None:
        self._world.loop.call_soon(lambda: machine.crash(power_cut=False))

    async def _slow(self, chance: random.Random) -> None:
        """News comes late: to one node, to the clients of one server, or no write is decided for a while."""
        how, seconds, servers = chance.randrange(3), lasts_s(chance) / 2, self._servers
        session = self._session(chance)
        number = chance.randrange(len(servers.servers))
        delay_ms = chance.random()
        self._counts[FaultClass.ZK_SLOW.value] += 1
        with self._troubled():
            if how == 0 and session is not None:
                session.slow_ms = delay_ms * SLOW_MS_MAX
                await asyncio.sleep(seconds)
                session.slow_ms = 0.0
            elif how == 1:
                servers.lag(number, delay_ms * LAG_MS_MAX)
                await asyncio.sleep(seconds)
                servers.lag(number, 0.0)
            else:
                servers.hang(seconds * 500.0)
                await asyncio.sleep(seconds / 2)
