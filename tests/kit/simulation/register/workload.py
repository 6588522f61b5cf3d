"""The register as a workload: clients write and read, and the history must be one of a single register."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from importlib.metadata import EntryPoint
from random import Random
from typing import Any

import msgspec

from blumfeld.kernel.composing.plan import Plan
from blumfeld.plugging.registry import GROUP
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.machine.host import Machine, address_of, plan_of
from blumfeld_kit.simulation.network.network import Network, Wire
from blumfeld_kit.simulation.swarm import FaultClass, Operation, Shape, World, violation_of
from blumfeld_kit.simulation.swarm.faults import OF_CLUSTERS
from tests.kit.simulation.register.node import ACK_BEFORE_SYNC, NO_EPOCH, PORT, STALE_READ

PLUGIN = EntryPoint("register", "tests.kit.simulation.register.plugin:Plugin", GROUP)
ANSWER_S_MAX = 5.0
PAUSE_S = 0.5


class Caller:
    """One connection of a client. Implements the network's ``End``."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._data = b""
        self._answer: asyncio.Future[dict[str, Any]] | None = None
        self.is_open = True

    async def ask(self, **question: object) -> dict[str, Any]:
        """Return the answer. :raises ConnectionError: there is none"""
        body = msgspec.json.encode({**question, "number": 1})
        self._answer = asyncio.get_running_loop().create_future()
        self._wire.send(len(body).to_bytes(4, "big") + body)
        try:
            return await asyncio.wait_for(self._answer, ANSWER_S_MAX)
        except TimeoutError:
            self._wire.reset("no answer in time")
            raise ConnectionError("no answer in time") from None

    def data(self, data: bytes) -> None:
        """Take bytes of an answer."""
        self._data += data
        if len(self._data) >= 4 and len(self._data) >= 4 + (size := int.from_bytes(self._data[:4], "big")):
            body, self._data = self._data[4 : 4 + size], self._data[4 + size :]
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(msgspec.json.decode(body))

    def lost(self, reason: str) -> None:
        """Fail what waits."""
        self.is_open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(reason))


class RegisterWorkload:
    """A workload without a bug; each subclass plants one."""

    survives = frozenset(FaultClass) - OF_CLUSTERS - {FaultClass.BIT_ROT}
    bug = ""

    def __init__(self) -> None:
        self.history: list[Operation] = []
        self._done = 0

    def plans(self, shape: Shape) -> Sequence[Plan]:
        """A broker with the plug-in on each machine."""
        nodes = [address_of(nth) for nth in range(1, shape.nodes + 1)]
        options = {"register": {"nodes": nodes, "bug": self.bug}}
        sections = {"plugins": {"observers": ["register"], "options": options}}
        config = {"metadata.max.idle.interval.ms": 0}
        return [
            plan_of(config, shape.storage, node_id=nth, sections=sections, plugins=[PLUGIN])
            for nth in range(1, shape.nodes + 1)
        ]

    async def prepare(self, world: World) -> None:
        """Nothing is needed."""

    def clients(self, world: World, until_s: float) -> Sequence[Coroutine[Any, Any, None]]:
        """Each writes and reads in turn, at the node that led last, as far as it knows."""
        return [self._client(world, number, until_s) for number in range(world.shape.clients)]

    async def _client(self, world: World, number: int, until_s: float) -> None:
        name, chance = f"client-{number}", world.chance(f"client-{number}")
        source, loop = world.client_address(number), world.loop
        written, at, caller = 0, number, None
        while loop.time() < until_s:
            is_write = chance.random() < 0.5
            written += is_write
            one = Operation(
                client=name,
                is_write=is_write,
                value=f"{name}.{written}" if is_write else None,
                start_s=loop.time(),
            )
            try:
                caller = caller or await self._call(
                    world.network, world.machines[at % len(world.machines)], source
                )
            except OSError:
                at += 1
                await self._pause(chance)
                continue
            try:
                known = await self._operate(caller, one, loop.time)
            except ConnectionError:
                self.history.append(one)  # a write may have happened
                caller, known = None, False
            if not known:
                at, caller = at + 1, None
            await self._pause(chance)

    async def _operate(self, caller: Caller, one: Operation, now_s: Any) -> bool:
        """Do one operation. Return whether the node led."""
        kind = "write" if one.is_write else "read"
        one.start_s = now_s()
        answer = await caller.ask(kind=kind, value=one.value)
        if answer["ok"]:
            if not one.is_write:
                one.value = answer["value"]
            one.end_s = now_s()
            self.history.append(one)
            self._done += 1
        return bool(answer["ok"])

    async def _pause(self, chance: Random) -> None:
        await asyncio.sleep(chance.random() * 2 * PAUSE_S)

    async def _call(self, network: Network, machine: Machine, source: str) -> Caller:
        made: list[Caller] = []

        def end(wire: Wire) -> Caller:
            made.append(Caller(wire))
            return made[0]

        async with asyncio.timeout(ANSWER_S_MAX):
            await network.connect(machine.address, PORT, end, source)
        return made[0]

    def power_cut(self, machine: Machine) -> None:
        """A power cut excuses nothing here."""

    def rot(self, machine: Machine, chance: Random) -> bool:
        """See ``Workload``: no bit flips here."""
        return False

    async def converge(self, world: World) -> None:
        """Wait until some node writes and reads."""
        chance = world.chance("last")
        for is_write in (True, False):
            while True:
                machine = world.machines[chance.randrange(len(world.machines))]
                one = Operation(client="last", is_write=is_write, value=None, start_s=world.loop.time())
                if is_write:
                    one.value = f"last.{world.loop.time()}"
                try:
                    caller = await self._call(world.network, machine, world.client_address(0))
                    if await self._operate(caller, one, world.loop.time):
                        break
                except OSError:
                    self.history.append(one)
                await self._pause(chance)

    async def check(self, world: World) -> None:
        """The history is that of one register."""
        if (why := violation_of(self.history)) is not None:
            raise ViolationError(f"not one register: {why}")

    def progress(self) -> int:
        """Operations that were answered."""
        return self._done

    def counts(self) -> Mapping[str, int]:
        """See ``Workload``."""
        return {"operations": len(self.history), "answered": self._done}


class AckBeforeSync(RegisterWorkload):
    """A node answers before its disk has the value."""

    bug = ACK_BEFORE_SYNC


class NoEpoch(RegisterWorkload):
    """A node obeys a leader whose time is over."""

    bug = NO_EPOCH


class StaleRead(RegisterWorkload):
    """A leader answers reads without asking whether it still leads."""

    bug = STALE_READ
