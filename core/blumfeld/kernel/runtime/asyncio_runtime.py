"""The runtime on a running asyncio loop, with the real clock, chance, files and threads.

An edge module: it reads the clock and draws random numbers. The end of a turn is one ``call_soon``. It is made from a
reader's callback, so it runs after all readers of that poll, and all requests of one poll share their system calls. A
loop that calls the readers itself can also end the turn itself (``TurnEndingLoop``), which saves one round of its
queue.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, TypeVar

from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.spi.runtime import TURN_ROUNDS_MAX, Files, Phase, Random, Timer
from blumfeld.spi.scheduler import Scheduler
from blumfeld.spi.transport import TurnEndingLoop

if TYPE_CHECKING:
    from blumfeld.kernel.runtime.worker_process import WorkerProcess

T = TypeVar("T")
Callback = Callable[[], None]
OnDefect = Callable[[str, BaseException], None]
"""Takes (where, exception): an exception that escaped from a task or callback."""

_ROUNDS = range(TURN_ROUNDS_MAX)
OFFLOAD_THREADS_MAX = 4
"""Worker threads for blocking calls. Kafka's 8 ``num.io.threads`` serve requests; ours only sync and read cold
files."""

_RESERVED_LOW_WORDS = 100
"""Ids with a zero high word and a low word below this are Kafka's own (``DirectoryId``, KIP-858)."""


def _without_locals(work: Callable[..., T], *args: Any) -> T:
    """Return ``work(*args)``. Its error keeps none of the memory that the work had.

    A traceback holds the frames of its calls and their variables, among them up to 100 MB of an unpacked batch. Whoever
    waits for the work and is given the error is in a circle with it, and garbage collection comes late.
    """
    try:
        return work(*args)
    except BaseException as error:
        link: BaseException | None = error
        while link is not None:
            traceback.clear_frames(link.__traceback__)
            link = link.__cause__ or link.__context__
        raise
    finally:
        del work, args


class AsyncioRuntime:
    """``Runtime`` of one node. Make it inside the running loop, or hand it a loop. Only the loop's thread may call it.

    :param on_defect: called with an exception that escaped from a task or an end-of-turn callback. It must log it and
        stop the node
    """

    random: Random
    files: Files
    scheduler: Scheduler

    def __init__(
        self,
        on_defect: OnDefect,
        *,
        files: Files | None = None,
        random_seed: int | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.random = random.Random(random_seed)
        self.files = files if files is not None else RealFiles()
        self._loop = loop if loop is not None else asyncio.get_running_loop()
        self._on_defect = on_defect
        self._phases: list[list[Callback]] = [[] for _ in Phase]
        self._soon: Callable[[Callback], object] = self._loop.call_soon
        if isinstance(self._loop, TurnEndingLoop):
            self._soon = self._loop.call_after_poll
        self._armed = False
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._executor: Executor | None = None
        self._worker: WorkerProcess | None = None
        self.scheduler = Scheduler(self.monotonic_ms, lambda callback: self.call_later(0, callback))

    def now_ms(self) -> int:
        """Wall clock, ms since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """A clock for durations, in ms with fraction."""
        return time.monotonic() * 1000.0

    def secrets(self, n: int) -> bytes:
        """Returns bytes of the system's random generator."""
        return os.urandom(n)

    def new_uuid(self) -> bytes:
        """Returns 16 random bytes that are a legal Kafka id."""
        return legal_uuid(self.random)

    def call_later(self, delay_ms: float, callback: Callback) -> Timer:
        """Call ``callback()`` on the loop in ``delay_ms``; 0 means the next turn."""
        if delay_ms <= 0:
            return self._loop.call_soon(callback)
        return self._loop.call_later(delay_ms / 1000.0, callback)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine as a task, which is kept alive until it ends. An exception that escapes from it is a
        defect."""
        task = self._loop.create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_defect(f"task {task.get_name()}", error)

    def offload(self, work: Callable[..., T], *args: Any) -> Awaitable[T]:
        """Run a blocking call in a worker thread. The threads are started with the first call."""
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(OFFLOAD_THREADS_MAX, thread_name_prefix="blumfeld-offload")
        return self._loop.run_in_executor(self._executor, _without_locals, work, *args)

    def offload_process(self, work: Callable[..., Generator[float, float, T]], *args: Any) -> Awaitable[T]:
        """Run ``work(files, *args)`` in the worker process, which is started when first needed."""
        if self._worker is None:
            from blumfeld.kernel.runtime.worker_process import WorkerProcess

            self._worker = WorkerProcess(self._loop, self.in_thread)
        return self._worker.run(work, args)

    def in_thread(self, callback: Callback) -> None:
        """Call ``callback()`` on the loop soon. May be called from any thread. Does nothing after the loop is
        closed."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def at_end_of_turn(self, phase: Phase, callback: Callback) -> None:
        """Call ``callback()`` once in ``phase`` at the end of this turn."""
        self._phases[phase].append(callback)
        if not self._armed:
            self._armed = True
            self._soon(self._end_turn)

    def _end_turn(self) -> None:
        # Phases are numbers here and the loop is unrolled, because this runs in every turn. After COMPLETE it goes back
        # to WRITE: a coordinator may have placed records. The bound keeps such a chain from holding the loop; what is
        # left then has a turn of its own, after the answers.
        phases = self._phases
        for _ in _ROUNDS:
            if phases[0]:
                self._run_phase(0)
            if phases[1]:
                self._run_phase(1)
            if phases[2]:
                self._run_phase(2)
            if not (phases[0] or phases[1] or phases[2]):
                break
        if phases[3]:
            self._run_phase(3)
        if phases[0] or phases[1] or phases[2] or phases[3]:
            self._loop.call_soon(self._end_turn)
        else:
            self._armed = False

    def _run_phase(self, phase: int) -> None:
        callbacks = self._phases[phase]
        self._phases[phase] = []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:
                self._on_defect(f"end of turn, {Phase(phase).name}", error)

    async def close(self) -> None:
        """Cancel the tasks that still run, wait for them and for offloaded work, end the worker process.

        Nothing may be called afterwards.
        """
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._worker is not None:
            worker, self._worker = self._worker, None
            await worker.close()
        if self._executor is not None:
            executor, self._executor = self._executor, None
            await self._loop.run_in_executor(None, executor.shutdown)


def legal_uuid(source: Random) -> bytes:
    """Returns 16 bytes of ``source`` that are a legal Kafka id: not reserved, and no ``-`` at the start of its text
    form, which command lines would take for an option."""
    while True:
        candidate = source.randbytes(16)
        begins_with_dash = candidate[0] >> 2 == 62
        reserved = not any(candidate[:8]) and int.from_bytes(candidate[8:], "big") < _RESERVED_LOW_WORDS
        if not begins_with_dash and not reserved:
            return candidate
