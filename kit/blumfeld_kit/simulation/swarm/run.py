"""One seed: machines start, clients work under faults, everything heals, and all must be well within a stated time."""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec

from blumfeld_kit.fakes.loop import SimulatedLoop
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.machine.host import SEEDS_A_RUN, Machine
from blumfeld_kit.simulation.network.network import Network
from blumfeld_kit.simulation.swarm.faults import OF_ZOOKEEPER, chance_of
from blumfeld_kit.simulation.swarm.injector import Injector
from blumfeld_kit.simulation.swarm.shape import ZOOKEEPER, Shape
from blumfeld_kit.simulation.swarm.world import Workload, World
from blumfeld_kit.simulation.trace import Trace

SHOWN = 60
"""Newest events of the trace in the message of a failure."""


_NUMBERS = re.compile(r"[0-9.]+")


class SwarmReport(msgspec.Struct, kw_only=True):
    """The result of a run that kept every promise. Any other run raises."""

    shape: Shape
    on: dict[str, float]
    """Class of faults that the seed turned on → mean seconds between two of them."""
    faults: dict[str, int]
    """Faults that happened, by class."""
    counts: Mapping[str, int]
    """The workload's own numbers."""
    progress: int
    virtual_s: float
    converged_s: float
    """Virtual time from the heal to the end of the last check."""
    delivered: int
    """Messages that arrived."""
    events: int
    digest: str
    """Digest of the trace: the same seed and shape give the same digest."""


class SwarmFailure(AssertionError):  # noqa: N818 - a failure of what is simulated, not an error of ours
    """A promise was not kept, nothing converged, nothing progressed, or an error escaped."""

    def __init__(
        self, shape: Shape, at_s: float, error: BaseException, trace: Trace, faults: Mapping[str, int]
    ) -> None:
        self.shape = shape
        self.at_s = at_s
        self.error = error
        self.events = trace.events
        self.newest = list(trace.newest)[-SHOWN:]
        self.faults = dict(faults)
        """Faults that happened, by class."""
        self.kind = f"{type(error).__name__} {_NUMBERS.sub('', str(error).partition(':')[0])}"
        """Failures of one kind count as the same when a seed is reduced."""
        super().__init__(f"seed {shape.seed}, {at_s:.3f} s: {error!r}")

    def told(self) -> str:
        """Return everything that a person needs: events, what escaped, and the command that repeats it."""
        raised = "".join(traceback.format_exception(self.error))
        return "\n".join([*self.newest, raised.rstrip(), str(self), f"again: {self.shape.command()}"])


class Swarm:
    """One run. It is made from a shape and a fresh workload, and runs once."""

    def __init__(self, shape: Shape, workload: Workload) -> None:
        self.shape = shape
        self.loop = SimulatedLoop()
        self.trace = Trace(self.loop.time)
        self.network = Network(self.loop, chance_of(shape.seed, "network"), self.trace)
        self.world = World(shape, self.loop, self.network)
        self._workload = workload
        self._failed: asyncio.Future[None] = self.loop.create_future()
        for nth, plan in enumerate(workload.plans(shape), 1):
            seed = shape.seed * SEEDS_A_RUN + nth
            self.world.machines.append(Machine(seed, self.loop, self.network, plan, self._defect))
        survived = workload.survives | (OF_ZOOKEEPER if shape.consensus == ZOOKEEPER else frozenset())
        allowed = survived if shape.faults is None else frozenset(shape.faults)
        self._injector = Injector(self.world, allowed, self._fail)
        self._healed_s = 0.0

    def run(self) -> SwarmReport:
        """Run to the end. :raises SwarmFailure: see there"""
        try:
            self.loop.run(self._main())
        except Exception as error:
            raise SwarmFailure(
                self.shape, self.loop.time(), error, self.trace, self._injector.counts
            ) from error
        finally:
            self._end_tasks()
        return SwarmReport(
            shape=self.shape,
            on={fault_class.value: mean_s for fault_class, mean_s in self._injector.on.items()},
            faults={
                fault_class.value: self._injector.counts[fault_class.value]
                for fault_class in self._injector.on
            },
            counts=dict(self._workload.counts()),
            progress=self._workload.progress(),
            virtual_s=self.loop.time(),
            converged_s=self.loop.time() - self._healed_s,
            delivered=self.network.delivered,
            events=self.trace.events,
            digest=self.trace.digest(),
        )

    async def _main(self) -> None:
        world, workload, shape = self.world, self._workload, self.shape
        await self._within(shape.settle_s, self._start_all(), "the start")
        await self._within(shape.settle_s, workload.prepare(world), "the preparation")
        end_s = self.loop.time() + shape.seconds
        clients = [self.loop.create_task(run) for run in workload.clients(world, end_s)]
        for client in clients:
            client.add_done_callback(self._client_ended)
        self._injector.begin()
        await self._unless_failed(asyncio.sleep(shape.seconds))
        self._injector.heal()
        self._healed_s = self.loop.time()
        await self._within(shape.settle_s, asyncio.gather(*clients), "the clients' last work after the heal")
        await self._within(shape.settle_s, workload.converge(world), "convergence after the heal")
        await self._within(shape.settle_s, workload.check(world), "the last check")
        self._injector.end()
        if not workload.progress():
            raise ViolationError("no work was done in the whole run, so it proves nothing")

    async def _start_all(self) -> None:
        started = await asyncio.gather(*(machine.start() for machine in self.world.machines))
        assert all(started)

    async def _within(self, seconds: float, work: Any, name: str) -> None:
        try:
            await asyncio.wait_for(self._unless_failed(work), seconds)
        except TimeoutError:
            raise ViolationError(f"{name} did not end within {seconds:g} virtual seconds") from None

    async def _unless_failed(self, work: Coroutine[Any, Any, Any] | asyncio.Future[Any]) -> None:
        """Wait for work, or fail as soon as anything has failed."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self._failed), return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
            task.result()
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait((task,))
            # The time is over. Work that knows what it waited for says so, and that is more than the time-out.
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error from None
            raise
        finally:
            task.cancel()

    def _client_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _defect(self, where: str, error: BaseException) -> None:
        failure = ViolationError(f"defect in {where}: {error!r}")
        failure.__cause__ = error
        self._fail(failure)

    def _fail(self, failure: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(failure)

    def _end_tasks(self) -> None:
        """Cancel every task, so that none wakes up in another run."""
        for machine in self.world.machines:
            machine.end()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        if not self._failed.done():
            self._failed.cancel()
        elif not self._failed.cancelled():
            self._failed.exception()
