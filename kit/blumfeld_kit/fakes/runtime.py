"""A runtime on virtual time with files in memory: for unit tests, and for the simulation of whole nodes.

Turns, tasks and timers are those of the real runtime, on a loop whose clock jumps. The same seed gives the same run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar, cast

from blumfeld.kernel.runtime.asyncio_runtime import AsyncioRuntime
from blumfeld.spi.runtime import Files, Phase, Random, Timer
from blumfeld_kit.fakes.files import FakeDisk
from blumfeld_kit.fakes.loop import SimulatedLoop, SimulationError
from blumfeld_kit.fakes.power import PowerCut

T = TypeVar("T")
Callback = Callable[[], None]

EPOCH_MS = 1_700_000_000_000
"""Wall clock when virtual time starts: November 2023."""


class FakeRuntime(AsyncioRuntime):
    """``Runtime`` of one simulated node.

    A test drives it from outside the loop: :meth:`run` a coroutine, :meth:`advance` the time, :meth:`run_turn`. Several
    runtimes may share one ``loop`` (nodes of a cluster). One after the other may use the same ``disk`` (a node that
    restarts).

    :param files: replaces the disk in memory, for instance by real files
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        loop: SimulatedLoop | None = None,
        disk: FakeDisk | None = None,
        files: Files | None = None,
    ) -> None:
        self.loop = loop if loop is not None else SimulatedLoop()
        self.disk = disk if disk is not None else FakeDisk()
        self.defects: list[tuple[str, BaseException]] = []
        """(place, error) of every error that escaped from a task or an end-of-turn callback."""
        self.dead = False
        """The node crashed: nothing of this incarnation runs any more."""
        self.offload_delay_ms: Callable[[], float] | None = None
        """Returns the duration of one piece of offloaded work. ``None``: the work is done in the next turn."""
        self._clock_skew_ms = 0
        self._works: dict[asyncio.Task[Any], None] = {}
        super().__init__(
            self._note_defect,
            files=files if files is not None else self.disk.mount(self.now_ms),
            random_seed=seed,
            loop=self.loop,
        )

    def secrets(self, n: int) -> bytes:
        """As ``Runtime.secrets``: from the seed, so that a run can be repeated."""
        return self.random.randbytes(n)

    # Driven by a test

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, with as much virtual time as that takes. Return its result, or raise its
        error.
        """
        result = self.loop.run(coroutine)
        self._raise_defect()
        return result

    def run_turn(self) -> None:
        """Run turns, with their ends, until nothing is ready. No time passes."""
        self.loop.run_ready()
        self._raise_defect()

    def advance(self, ms: float) -> None:
        """Let ``ms`` pass. Every timer that is due fires, in order."""
        self.loop.advance(ms)
        self._raise_defect()

    def jump_clock(self, ms: int) -> None:
        """Let the wall clock jump, but not the monotonic one."""
        self._clock_skew_ms += ms

    def crash(self, *, power_cut: bool = True, luck: Random | PowerCut | None = None) -> None:
        """Crash the node at once: nothing of it runs any more, its file handles raise, and its locks are free.

        With ``power_cut`` the disk loses unsynced changes unless ``luck`` (by default the runtime's own chance) keeps
        them. Without it the page cache survives (``kill -9``).
        """
        self.dead = True
        self._phases = [[] for _ in Phase]
        if power_cut:
            self.disk.crash(self.random if luck is None else luck)
        else:
            self.disk.kill()
        tasks: list[asyncio.Task[Any]] = [*self._tasks, *self._works]
        self._tasks = {}
        for task in tasks:
            task.cancel()
        if not self.loop.is_running():
            self.loop.run_ready()  # so that the cancelled tasks end now; their handles raise

    # Runtime

    def now_ms(self) -> int:
        """Return the virtual wall clock."""
        return EPOCH_MS + self._clock_skew_ms + int(self.loop.time() * 1000)

    def monotonic_ms(self) -> float:
        """Return the virtual ms since the loop was made."""
        return self.loop.time() * 1000.0

    def call_later(self, delay_ms: float, callback: Callback) -> Timer:
        """Call ``callback()`` in ``delay_ms`` of virtual time; 0 means the next turn."""
        if delay_ms <= 0:
            return self.loop.call_soon(self._fire, callback)
        return self.loop.call_later(delay_ms / 1000.0, self._fire, callback)

    def _fire(self, callback: Callback) -> None:
        if not self.dead:
            callback()

    def at_end_of_turn(self, phase: Phase, callback: Callback) -> None:
        """Call ``callback()`` once in ``phase`` at the end of this turn."""
        if not self.dead:
            super().at_end_of_turn(phase, callback)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine as a task. A task of a crashed node never starts."""
        if self.dead:
            coroutine.close()
            ended: asyncio.Future[None] = self.loop.create_future()  # its loop may never run again
            ended.set_result(None)
            return cast("asyncio.Task[None]", ended)
        return super().spawn(coroutine, name)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if task in self._tasks:
            super()._task_ended(task)
        elif not task.cancelled():
            task.exception()  # fetched, or asyncio would report it: a crashed node's handles raise

    def offload(self, work: Callable[..., T], *args: Any) -> Awaitable[T]:
        """Do the work in a later turn. After a crash of the node it is never done."""
        future: asyncio.Future[T] = self.loop.create_future()

        def do() -> None:
            if self.dead or future.cancelled():
                return
            outcome: T | Exception
            try:
                outcome = work(*args)
            except Exception as error:
                outcome = error
            if self.dead or future.done():
                return  # the node crashed in the middle of this work
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        delay_ms = 0.0 if self.offload_delay_ms is None else self.offload_delay_ms()
        if delay_ms <= 0:
            self.loop.call_soon(do)
        else:
            self.loop.call_later(delay_ms / 1000.0, do)
        return future

    def offload_process(self, work: Callable[..., Generator[float, float, T]], *args: Any) -> Awaitable[T]:
        """Do the work step by step, each step in a later turn, on this node's files. It may be cancelled between two
        steps.
        """
        before = list(self._works)
        task = self.loop.create_task(self._run_steps(before, work(self.files, *args)))
        self._works[task] = None
        task.add_done_callback(self._works.pop)
        return task

    async def _run_steps(self, before: list[asyncio.Task[Any]], steps: Generator[float, float, T]) -> T:
        try:
            if before:
                await asyncio.wait(before)
            result: list[T] = []
            pause_seconds = await self.offload(_step, steps, None, result)
            while not result:
                if pause_seconds > 0:
                    await asyncio.sleep(pause_seconds)
                pause_seconds = await self.offload(_step, steps, self.monotonic_ms() / 1000.0, result)
            return result[0]
        finally:
            if not self.dead:
                steps.close()

    def in_thread(self, callback: Callback) -> None:
        """Call it in the next turn: there is only one thread."""
        self.loop.call_soon(self._fire, callback)

    def _note_defect(self, where: str, error: BaseException) -> None:
        self.defects.append((where, error))

    def _raise_defect(self) -> None:
        if self.defects:
            where, error = self.defects[0]
            raise SimulationError(f"defect in {where}: {error!r}") from error


def _step(steps: Generator[float, float, T], now_seconds: float | None, result: list[T]) -> float:
    """Run one step of a piece of work. The last step appends the work's result to ``result``."""
    try:
        return next(steps) if now_seconds is None else steps.send(now_seconds)
    except StopIteration as stop:
        result.append(stop.value)
        return 0.0
