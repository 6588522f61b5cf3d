"""A machine in the simulation: a disk and clocks that outlive its processes, and the node that runs on it now."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from random import Random
from typing import Any, TypeVar, cast

from blumfeld.kernel.composing.plan import Plan, make_plan
from blumfeld.kernel.manifest.sections import Manifest
from blumfeld.kernel.node import Node, StartError
from blumfeld.kernel.watching.event_log import EventLogs, Render
from blumfeld.plugging.registry import GROUP, Registry
from blumfeld.plugging.sections import decode_section
from blumfeld.spi.runtime import NodeFailure
from blumfeld_kit.fakes.files import FakeDisk
from blumfeld_kit.fakes.inodes import Tree
from blumfeld_kit.fakes.loop import SimulatedLoop
from blumfeld_kit.fakes.runtime import EPOCH_MS, FakeRuntime
from blumfeld_kit.simulation.machine.clocks import MachineClock
from blumfeld_kit.simulation.machine.machine_loop import MachineLoop
from blumfeld_kit.simulation.network.network import Network
from blumfeld_kit.simulation.network.transport import SimulatedTransport

T = TypeVar("T")

ADDRESS = ("10.0.0.1", 9092)
"""The first machine, and the port of every machine's broker listener."""
DATA_DIR = "/data"
STOP_GRACE_MS = 1_000
SEEDS_A_RUN = 1_000_003
"""Incarnation n of seed s draws from s × this + n."""
DEVICE_MS_MAX = 8.0
"""Longest time of one offloaded piece of work on a healthy disk."""


def address_of(number: int) -> str:
    """Return the address of the ``number``-th machine, counted from 1."""
    return f"10.0.{number // 250}.{number % 250}"


@cache
def installed() -> tuple[EntryPoint, ...]:
    """Return the entry points of all plug-ins that are installed. Looked up once: it takes as long as a small run."""
    return tuple(entry_points(group=GROUP))


def plan_of(
    config: Mapping[str, Any],
    storage: str,
    *,
    node_id: int = 1,
    sections: Mapping[str, Any] | None = None,
    plugins: Sequence[EntryPoint] = (),
) -> Plan:
    """Return the plan of a simulated node: as a manifest says it, except for the network.

    :param sections: further sections of the manifest, laid over these
    :param plugins: entry points of plug-ins that aren't installed, such as a test's own
    """
    raw: dict[str, Any] = {
        "node": {"id": node_id, "data_dir": DATA_DIR},
        "network": {
            "plugin": "net_simulated",
            "listeners": [{"name": "PLAINTEXT", "bind": f"{address_of(node_id)}:{ADDRESS[1]}"}],
        },
        "storage": {"plugin": storage},
        "config": dict(config),
        **(sections or {}),
    }
    network = EntryPoint("net_simulated", "blumfeld_kit.simulation.network.transport:Plugin", GROUP)
    registry = Registry([*installed(), network, *plugins])
    return make_plan(decode_section(raw, Manifest, "simulation"), "simulation", registry)


class SimulatedRuntime(FakeRuntime):
    """The runtime of one incarnation: the machine's loop, clocks and disk, and the shared network."""

    def __init__(self, seed: int, loop: MachineLoop, machine: Machine) -> None:
        self._machine = machine
        self.network = machine.network
        self.address = machine.address
        self.transports: list[SimulatedTransport] = []
        super().__init__(seed, loop=cast("SimulatedLoop", loop), disk=machine.disk)
        self.offload_delay_ms = self._device_time_ms

    def now_ms(self) -> int:
        """Return the machine's wall clock."""
        return self._machine.clock.wall_ms(self._machine.world.time())

    def jump_clock(self, ms: int) -> None:
        """Let the machine's wall clock jump. It stays so for later processes."""
        self._machine.clock.jump(ms)

    def _device_time_ms(self) -> float:
        return 0.2 + self.random.random() * (DEVICE_MS_MAX + self._machine.disk_slow_ms)

    def _note_defect(self, where: str, error: BaseException) -> None:
        if not self.dead:
            self._machine.process_failed(where, error)


class Machine:
    """A machine. ``crash`` may be called at any time, also inside a disk operation.

    :param plan: what its processes run; the host of its first listener is the machine's address
    :param on_defect: called with an error that escaped, and the place
    """

    def __init__(
        self,
        seed: int,
        loop: SimulatedLoop,
        network: Network,
        plan: Plan,
        on_defect: Callable[[str, BaseException], None],
    ) -> None:
        self.address = plan.listeners[0].host
        self.disk = FakeDisk()
        self.disk_slow_ms = 0.0
        """Added at most to the time of one offloaded piece of work."""
        self.clock = MachineClock(EPOCH_MS)
        self.turn_cost_s = 0.0
        """Virtual time that each turn of this and later processes takes."""
        self.incarnations = 0
        self.node: Node | None = None
        """The node that runs or starts."""
        self.down = asyncio.Event()
        """Set when the node crashed."""
        self.kills = self.power_cuts = 0
        self.said: Counter[str] = Counter()
        """Events that the newest process logged."""
        self.failures = 0
        """Processes that ended themselves: their disk failed."""
        self.world = loop
        self.network = network
        self._runtime: SimulatedRuntime | None = None
        self._loop: MachineLoop | None = None
        self._starting: asyncio.Task[None] | None = None
        self._seed = seed
        self._plan = plan
        self._on_defect = on_defect
        self.on_power_cut: Callable[[], None] = _nothing
        """Called between the loss of power and the start of the next process, as late as possible: acknowledgements of
        the process that is gone may still wait for their client's turn."""
        self.on_start: Callable[[], None] = _nothing
        """Called before each start of a process."""
        self.on_event: Callable[[str, Mapping[str, Any]], None] = _nothing
        """Called with the name and the values of each event that a process logs."""
        self._power_was_cut = False
        self.disk.watch = self._disk_used
        self.at_sync: Callable[[], None] | None = None
        """Called once, before the next ``fdatasync``. It may crash this machine and others."""
        self._crash_in: int | None = None
        self._crash_by_power_cut = False
        self._ended: list[asyncio.Task[None]] = []
        self._stopping: asyncio.Task[None] | None = None
        """The stop of the newest process, once it was told to."""

    @property
    def is_running(self) -> bool:
        """Whether a process is there: it starts, serves or is paused."""
        return self._runtime is not None and not self._runtime.dead

    @property
    def is_serving(self) -> bool:
        """Whether a process is there whose start is complete."""
        return self.is_running and self._starting is not None and self._starting.done()

    @property
    def is_paused(self) -> bool:
        """Whether the process is stopped (SIGSTOP)."""
        return self._loop is not None and self._loop.is_paused

    async def start(self) -> bool:
        """Start a new incarnation. Return whether it lived to serve. :raises StartError: it can't start on what it
        found
        """
        self.incarnations += 1
        if self._power_was_cut:
            self._power_was_cut = False
            self.on_power_cut()
        self.on_start()
        self.down.clear()
        self.said.clear()
        self._stopping = None
        self._note(f"start {self.incarnations}")
        loop = self._loop = MachineLoop(self.world, self.clock)
        loop.turn_cost_s = self.turn_cost_s
        site = self.network.site(self.address)
        if not site.up:
            self.network.trouble_over(self.address)
        site.boot(loop.deliver)
        runtime = SimulatedRuntime(self._seed * SEEDS_A_RUN + self.incarnations, loop, self)
        self._runtime = runtime
        logs = EventLogs(partial(self._noting, loop), now_ms=runtime.now_ms)
        logs.port_is_open(lambda prepare, use: use(prepare()))
        self.node = Node(self._plan, runtime, logs)
        self._starting = loop.create_task(self.node.start(), name="node start")
        if not await self._done_or_dead(self._starting):
            return False
        try:
            self._starting.result()
        except BaseException:
            self._process_ended()
            self.down.set()  # the injector may wait for this process to end
            raise
        return True

    async def stop(self) -> None:
        """Stop the node as SIGTERM does. A second stop waits for the first: a process that stops heeds no other."""
        assert self.node is not None
        assert self._loop is not None
        self._note("stop")
        self.resume()
        stopping = self._stopping
        if stopping is None:
            stopping = self._loop.create_task(self.node.stop(STOP_GRACE_MS), name="node stop")
            self._stopping = stopping
        if await self._done_or_dead(stopping):
            stopping.result()
            self._process_ended()
        else:
            self._give_up(stopping)

    async def run(self, work: Awaitable[T]) -> T:
        """Wait for something inside the machine's newest process, also a dead one, and return its result."""
        assert self._loop is not None

        async def waiting() -> T:
            return await work

        task = self._loop.create_task(waiting())
        await self._when_done(task)
        result: T = task.result()
        return result

    def crash(self, *, power_cut: bool) -> None:
        """Crash the node at once. A power cut is silent; a killed process' connections are reset."""
        runtime, loop = self._runtime, self._loop
        if runtime is None or loop is None or runtime.dead:
            return
        self._crash_in = None
        self._note("power cut" if power_cut else "kill -9")
        self.resume()
        site = self.network.site(self.address)
        if power_cut:
            self.network.trouble(self.address)
            site.power_lost()
        else:
            site.process_died("reset: the process was killed")
        for transport in runtime.transports:
            transport.die()
        runtime.crash(power_cut=power_cut)
        loop.die()
        if self._starting is not None:
            self._give_up(self._starting)
        self.kills += not power_cut
        self.power_cuts += power_cut
        if power_cut:
            self._power_was_cut = True
        self.down.set()

    def lose_cache(self) -> None:
        """Lose the power while no process runs: what was not synced is gone. The peers know that the process ended."""
        assert not self.is_running, "a power cut that ends a process is a crash"
        self._note("power cut, no process runs")
        self.disk.crash(Random(self._seed * SEEDS_A_RUN + self.incarnations))
        self.power_cuts += 1
        self._power_was_cut = True

    def lose_disk(self) -> None:
        """Cut the power, and put an empty disk into the machine."""
        self.crash(power_cut=True)
        self._note("the disk is lost")
        self.disk.tree = Tree()

    def crash_in_operation(self, nth: int, *, power_cut: bool) -> None:
        """Crash inside the ``nth`` disk operation from now on."""
        self._crash_in = nth
        self._crash_by_power_cut = power_cut

    def spare(self) -> None:
        """Cancel a planned crash."""
        self._crash_in = None

    def pause(self) -> None:
        """Stop the process (SIGSTOP): its timers and its arrivals wait."""
        if self.is_running and not self.is_paused:
            assert self._loop is not None
            self._note("pause")
            self.network.trouble(self.address)
            self._loop.pause()

    def resume(self) -> None:
        """Let the process go on (SIGCONT). What waited comes all at once."""
        if self.is_running and self.is_paused:
            assert self._loop is not None
            self._note("resume")
            self.network.trouble_over(self.address)
            self._loop.resume()

    def load(self, turn_cost_s: float) -> None:
        """Let each turn of this machine's processes take that much virtual time; 0 is an idle machine."""
        self._note(f"turns take {turn_cost_s:.6f} s")
        self.turn_cost_s = turn_cost_s
        if self._loop is not None and self.is_running:
            self._loop.turn_cost_s = turn_cost_s

    def process_failed(self, where: str, error: BaseException) -> None:
        """Take note of an error that escaped. A node that can't go on ends its process; anything else is a defect."""
        if isinstance(error, NodeFailure):
            self._note(f"node failure {error}")
            self.failures += 1
            self.crash(power_cut=False)
        else:
            self._on_defect(f"{where} on {self.address}", error)

    def end(self) -> None:
        """End the process without a word: the run is over."""
        self.disk.watch = None
        if self._runtime is not None and self._loop is not None:
            self._runtime.dead = True
            self.disk.kill()
            self._loop.die()
            self._loop.unwind()

    def _note(self, event: str) -> None:
        self.network.trace.note(f"{self.address} {event}")

    def _process_ended(self) -> None:
        """Free what the system frees for a process that ended by itself."""
        assert self._runtime is not None
        assert self._loop is not None
        self._runtime.dead = True
        self.disk.kill()
        self.network.site(self.address).process_died("closed: the process has ended")
        self._loop.die()

    async def _done_or_dead(self, task: asyncio.Task[None]) -> bool:
        """Wait for a task of the process. Return whether it ended before the process died."""
        done = self.world.create_task(self._when_done(task), name="done")
        crashed = self.world.create_task(self.down.wait(), name="crash")
        await asyncio.wait((done, crashed), return_when=asyncio.FIRST_COMPLETED)
        crashed.cancel()
        done.cancel()
        return self.is_running

    async def _when_done(self, task: asyncio.Task[Any]) -> None:
        """Wait, on the loop of the simulation, for a task of the process."""
        done: asyncio.Future[None] = self.world.create_future()

        def tell(_: asyncio.Task[Any]) -> None:
            if not done.done():
                done.set_result(None)

        task.add_done_callback(tell)
        await done

    def _disk_used(self, operation: str, path: str) -> None:
        self._note(f"{operation} {path}")
        if self.at_sync is not None and operation == "fdatasync":
            strike, self.at_sync = self.at_sync, None
            strike()
        if self._crash_in is not None:
            self._crash_in -= 1
            if self._crash_in <= 0:
                self.crash(power_cut=self._crash_by_power_cut)

    def _give_up(self, task: asyncio.Task[None]) -> None:
        """Cancel a task of a dead node, and drop its error: nothing could have seen it."""
        if not task.done():
            task.cancel()
        self._ended.append(task)
        task.add_done_callback(_ignore)

    def _noting(self, loop: MachineLoop) -> Render:
        def render(_: int, level: str, logger: str, event: str, values: dict[str, Any]) -> None:
            if loop.dead:
                return  # the process unwinds: nothing could have seen what it says
            self.said[event] += 1
            self.on_event(event, values)
            said = " ".join(f"{name}={value!r}" for name, value in values.items())
            self._note(f"log {level} {logger}: {event} {said}")
            defect = values.get("exc_info")
            if isinstance(defect, BaseException):
                # A broker answers UNKNOWN_SERVER_ERROR and serves on. Here a defect fails the run.
                self._on_defect(f"{logger}: {event}", defect)

        return render


def _nothing(*_: object) -> None:
    """Nobody asked to be told."""


def _ignore(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()


__all__ = ["ADDRESS", "Machine", "SimulatedRuntime", "StartError", "address_of", "plan_of"]
