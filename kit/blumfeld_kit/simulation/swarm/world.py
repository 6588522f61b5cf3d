"""A workload asks these things of the simulation, and the simulation asks these things of a workload."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from blumfeld.kernel.composing.plan import Plan
from blumfeld_kit.fakes.loop import SimulatedLoop
from blumfeld_kit.fakes.object_store import SimulatedBucket
from blumfeld_kit.simulation.machine.host import Machine
from blumfeld_kit.simulation.network.network import Network
from blumfeld_kit.simulation.swarm.faults import FaultClass, chance_of
from blumfeld_kit.simulation.swarm.shape import Shape
from blumfeld_kit.simulation.zookeeper.coordination import Coordination


class Membership(Enum):
    """The place of a follower beside an ISR."""

    IN = auto()
    OUT = auto()
    ASKED = auto()
    """It is out, and the leader has asked the controller to take it in, and has no answer yet."""


class Struck(Enum):
    """The effect of a fault on a coordinator that decides."""

    LOST = auto()
    """It dies before the decision is committed."""
    OUTLIVED = auto()
    """It dies when the decision is committed. What it sent to other nodes arrives seconds later."""


class Following(NamedTuple):
    """A follower of a partition. Its leader needs a link to the controller for a change of the ISR."""

    leader: Machine
    follower: Machine
    controller: Machine
    membership: Membership


class World:
    """The machines of a run, and the network between them."""

    def __init__(self, shape: Shape, loop: SimulatedLoop, network: Network) -> None:
        self.shape = shape
        self.loop = loop
        self.network = network
        self.machines: list[Machine] = []
        self.important: Callable[[], Sequence[Machine]] = lambda: ()
        """Returns the machines whose failure matters most now. A workload may set it, for the faults that are aimed."""
        self.replaceable: Callable[[], Sequence[Machine]] = lambda: ()
        """Returns the machines that may lose their disk. A workload may set it."""
        self.followers: Callable[[], Sequence[Following]] | None = None
        """Returns the followers of partitions. A workload with replicas sets it."""
        self.look: Callable[[], None] = lambda: None
        """Looks at every node. A workload may set it, for the moment before a fault takes the traces away. It must not
        raise: it may be called inside a disk operation."""
        self.cuts_starts = False
        """Whether starts and stops are cut short inside a disk operation. A workload whose excuses cost little sets it:
        in a cluster they would excuse so many partitions that its oracle sees less."""
        self.flip: Callable[[Machine, random.Random], bool] = lambda machine, chance: False
        """Flips a bit on the machine's disk. Returns whether one was flipped. A workload may set it: only it knows
        which bytes a checksum covers, and what may be lost with them."""
        self.bucket: SimulatedBucket | None = None
        """The object store of all nodes. A workload with tiered topics sets it."""
        self.coordination: Coordination | None = None
        """The ZooKeeper of the nodes. A workload sets it where the shape asks for one."""
        self._moments: list[asyncio.Future[Machine]] = []
        self._decisions: list[tuple[asyncio.Future[Machine], Struck]] = []

    def moment(self, machine: Machine) -> None:
        """Take note that something begins at this machine that a fault would disturb: it leads now, say."""
        waiting, self._moments = self._moments, []
        for future in waiting:
            if not future.done():
                future.set_result(machine)

    async def next_moment(self) -> Machine:
        """Return the machine of the next moment."""
        future: asyncio.Future[Machine] = self.loop.create_future()
        self._moments.append(future)
        return await future

    def decision(self, machine: Machine) -> Struck | None:
        """Take note that this machine is about to decide. Return what a fault does to it now; ``None`` for nothing."""
        while self._decisions:
            future, struck = self._decisions.pop(0)
            if not future.done():
                future.set_result(machine)
                return struck
        return None

    async def next_decision(self, struck: Struck) -> Machine:
        """Return the machine of the next decision, which is to be struck so."""
        future: asyncio.Future[Machine] = self.loop.create_future()
        self._decisions.append((future, struck))
        return await future

    def chance(self, name: str) -> random.Random:
        """Return a source of chance for one part, so that its draws don't change those of another."""
        return chance_of(self.shape.seed, name)

    def client_address(self, number: int) -> str:
        """Return the address of a client's machine. It never fails, but its links may."""
        return f"10.9.0.{1 + number}"

    @property
    def client_addresses(self) -> list[str]:
        """The addresses of all clients of the shape."""
        return [self.client_address(number) for number in range(self.shape.clients)]


class Workload(Protocol):
    """The work of the clients, and the promises that it checks. One is made for each run.

    A promise that was not kept is raised as ``ViolationError``, by any method and any client.
    """

    survives: frozenset[FaultClass]
    """Classes of faults under which the promises hold."""

    def plans(self, shape: Shape) -> Sequence[Plan]:
        """Return the plan of each node, whose addresses differ."""
        ...

    async def prepare(self, world: World) -> None:
        """Make what the clients need, before the first fault. Every node serves."""
        ...

    def clients(self, world: World, until_s: float) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the clients. They begin no work after ``until_s``, and end once their last work is settled."""
        ...

    async def converge(self, world: World) -> None:
        """Return once everything is well again. Called after every fault was healed and every client has ended."""
        ...

    async def check(self, world: World) -> None:
        """Check every promise at the end."""
        ...

    def progress(self) -> int:
        """Return the number of pieces of work that were done for sure. A run with none proves nothing, and fails."""
        ...

    def counts(self) -> Mapping[str, int]:
        """Return numbers for the report."""
        ...
