"""A machine in the simulation: a disk that outlives its nodes, and the node that runs on it at the moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from blumfeld.kernel.composing.plan import Plan, make_plan
from blumfeld.kernel.manifest.sections import Manifest
from blumfeld.kernel.node import Node, StartError
from blumfeld.kernel.watching.event_log import EventLogs, Render
from blumfeld.plugging.registry import GROUP, Registry
from blumfeld.plugging.sections import decode_section
from blumfeld.testing.fakes.files import FakeDisk
from blumfeld.testing.fakes.loop import SimulatedLoop
from blumfeld.testing.fakes.runtime import FakeRuntime
from blumfeld.testing.simulation.network import Network
from blumfeld.testing.simulation.transport import SimulatedTransport

ADDRESS = ("10.0.0.1", 9092)
DATA_DIR = "/data"
STOP_GRACE_MS = 1_000
SEEDS_A_RUN = 1_000_003
"""Incarnation n of seed s draws from s × this + n."""


def plan_of(config: Mapping[str, Any], storage: str) -> Plan:
    """Return the plan of a simulated node: as a manifest says it, except for the network."""
    raw = {
        "node": {"data_dir": DATA_DIR},
        "network": {
            "plugin": "net_simulated",
            "listeners": [{"name": "PLAINTEXT", "bind": f"{ADDRESS[0]}:{ADDRESS[1]}"}],
        },
        "storage": {"plugin": storage},
        "config": dict(config),
    }
    network = EntryPoint("net_simulated", "blumfeld.testing.simulation.transport:Plugin", GROUP)
    registry = Registry([*entry_points(group=GROUP), network])
    return make_plan(decode_section(raw, Manifest, "simulation"), "simulation", registry)


class SimulatedRuntime(FakeRuntime):
    """The runtime of one incarnation: virtual time, the machine's disk, the shared network."""

    def __init__(
        self,
        seed: int,
        loop: SimulatedLoop,
        disk: FakeDisk,
        network: Network,
        on_defect: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__(seed, loop=loop, disk=disk)
        self.network = network
        self.transports: list[SimulatedTransport] = []
        self.offload_delay_ms = self._device_time_ms
        self._tell_defect = on_defect

    def _device_time_ms(self) -> float:
        return 0.2 + self.random.random() * 8.0

    def _note_defect(self, where: str, error: BaseException) -> None:
        if not self.dead:
            self._tell_defect(where, error)


class Machine:
    """The machine of one node. ``crash`` may be called at any time, also inside a disk operation."""

    def __init__(
        self,
        seed: int,
        loop: SimulatedLoop,
        network: Network,
        plan: Plan,
        on_defect: Callable[[str, BaseException], None],
        on_power_cut: Callable[[], None],
    ) -> None:
        self.disk = FakeDisk()
        self.incarnations = 0
        self.node: Node | None = None
        """The node that runs or starts."""
        self.down = asyncio.Event()
        """Set when the node crashed."""
        self.kills = self.power_cuts = 0
        self._runtime: SimulatedRuntime | None = None
        self._starting: asyncio.Task[None] | None = None
        self._seed = seed
        self._loop = loop
        self._network = network
        self._plan = plan
        self._on_defect = on_defect
        self._on_power_cut = on_power_cut
        self.disk.watch = self._disk_used
        self._crash_in: int | None = None
        self._crash_by_power_cut = False
        self._ended: list[asyncio.Task[None]] = []

    async def start(self) -> bool:
        """Start a new incarnation. Return whether it lived to serve. :raises StartError: it can't start on what it
        found
        """
        self.incarnations += 1
        self.down.clear()
        self._network.trace.note(f"start {self.incarnations}")
        seed = self._seed * SEEDS_A_RUN + self.incarnations
        runtime = SimulatedRuntime(seed, self._loop, self.disk, self._network, self._on_defect)
        self._runtime = runtime
        logs = EventLogs(self._noting, now_ms=runtime.now_ms)
        logs.port_is_open(lambda prepare, use: use(prepare()))
        self.node = Node(self._plan, runtime, logs)
        self._starting = self._loop.create_task(self.node.start(), name="node start")
        crashed = self._loop.create_task(self.down.wait(), name="crash")
        await asyncio.wait((self._starting, crashed), return_when=asyncio.FIRST_COMPLETED)
        crashed.cancel()
        if runtime.dead:
            return False
        self._starting.result()
        return True

    async def stop(self) -> None:
        """Stop the node as SIGTERM does."""
        assert self.node is not None
        assert self._runtime is not None
        self._network.trace.note("stop")
        stopping = self._loop.create_task(self.node.stop(STOP_GRACE_MS), name="node stop")
        crashed = self._loop.create_task(self.down.wait(), name="crash")
        await asyncio.wait((stopping, crashed), return_when=asyncio.FIRST_COMPLETED)
        crashed.cancel()
        if not self._runtime.dead:
            stopping.result()
            self._runtime.dead = True
            self.disk.kill()
        else:
            self._give_up(stopping)

    def crash(self, *, power_cut: bool) -> None:
        """Crash the node at once."""
        runtime = self._runtime
        if runtime is None or runtime.dead:
            return
        self._crash_in = None
        self._network.trace.note("power cut" if power_cut else "kill -9")
        runtime.crash(power_cut=power_cut)
        for transport in runtime.transports:
            transport.die()
        if self._starting is not None:
            self._give_up(self._starting)
        self.kills += not power_cut
        self.power_cuts += power_cut
        if power_cut:
            self._on_power_cut()
        self.down.set()

    def crash_in_operation(self, nth: int, *, power_cut: bool) -> None:
        """Crash inside the ``nth`` disk operation from now on."""
        self._crash_in = nth
        self._crash_by_power_cut = power_cut

    def spare(self) -> None:
        """Cancel a planned crash."""
        self._crash_in = None

    def _disk_used(self, operation: str, path: str) -> None:
        self._network.trace.note(f"{operation} {path}")
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

    def _noting(self) -> Render:
        trace = self._network.trace

        def render(_: int, level: str, logger: str, event: str, values: dict[str, Any]) -> None:
            said = " ".join(f"{name}={value!r}" for name, value in values.items())
            trace.note(f"log {level} {logger}: {event} {said}")
            defect = values.get("exc_info")
            if isinstance(defect, BaseException) and self._runtime is not None and not self._runtime.dead:
                # A broker answers UNKNOWN_SERVER_ERROR and serves on. Here a defect fails the run.
                self._on_defect(f"{logger}: {event}", defect)

        return render


def _ignore(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()


__all__ = ["ADDRESS", "Machine", "SimulatedRuntime", "StartError", "plan_of"]
