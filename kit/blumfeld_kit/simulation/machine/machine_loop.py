"""The event loop of one process on a simulated machine, inside the loop of the whole simulation.

Everything that the process does passes through its own queue: timers, tasks, arrivals from the network. So the
process can be stopped (SIGSTOP) and continued, each of its turns can cost time, its clock can run at another rate, and
all of that holds for plug-ins that use asyncio directly, too.
"""

from __future__ import annotations

import asyncio
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

from blumfeld_kit.fakes.loop import SimulatedLoop, SimulationError
from blumfeld_kit.simulation.machine.clocks import MachineClock

UNWIND_ROUNDS_MAX = 100
"""Cancellations after which a task that doesn't end is left alone."""
EARLY_S = 1e-9
"""Timers may fire this much early: the float of a machine's time and that of virtual time differ by rounding."""


class MachineTimer(asyncio.TimerHandle):
    """A timer on a machine's clock."""

    __slots__ = ("world",)

    def __init__(
        self,
        when_s: float,
        callback: Callable[..., Any],
        arguments: Any,
        loop: MachineLoop,
        context: Context | None,
    ) -> None:
        super().__init__(when_s, callback, arguments, loop, context)
        self.world: asyncio.Handle | None = None
        """The timer of the simulation that stands for this one."""


class MachineLoop(asyncio.BaseEventLoop):
    """The loop of one incarnation. It runs while the simulation's loop runs."""

    def __init__(self, world: SimulatedLoop, clock: MachineClock) -> None:
        super().__init__()
        self.world = world
        self.dead = False
        """The process is gone: timers and arrivals do nothing. Cancelled tasks still unwind."""
        self.turn_cost_s = 0.0
        """Virtual time that each turn takes. The next turn waits for that long, as on a loaded machine."""
        self.turns = 0
        self._clock = clock
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._paused = False
        self._queue: deque[Any] = deque()
        """Work of the next turn: asyncio's handles, and (callback, arguments) of arrivals."""
        self._turn_is_set = False
        self._busy_until_s = 0.0

    # The machine's side

    def pause(self) -> None:
        """Stop (SIGSTOP). The running turn ends first."""
        self._paused = True

    def resume(self) -> None:
        """Go on (SIGCONT). Timers that were due and bytes that arrived come all at once."""
        self._paused = False
        if self._queue:
            self._set_turn()

    @property
    def is_paused(self) -> bool:
        """Whether the process is stopped."""
        return self._paused

    def deliver(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Run an arrival from outside in the next turn, unless the process has died by then."""
        if self.dead:
            return
        self._queue.append((callback, arguments))  # no Handle: most of what a process does is an arrival
        if not (self._turn_is_set or self._paused):
            self._set_turn()

    def die(self) -> None:
        """Be dead from now on. Every task is cancelled, as often as it takes to end it."""
        if not self.dead:
            self.dead = True
            self.turn_cost_s = self._busy_until_s = 0.0
            self.resume()
            self.world.call_soon(self.unwind)

    def unwind(self) -> None:
        """End every task. What a task waits for in its ``finally`` never comes to a dead process.

        A task that were left would be ended by the garbage collector, at any time, and could not even wait then.
        """
        for _ in range(UNWIND_ROUNDS_MAX):
            for task in list(self._tasks):
                task.cancel()
            self._turn()
            if not self._tasks:
                return

    def _arrive(self, callback: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if self.dead:
            return
        try:
            callback(*arguments)
        except Exception as error:
            self.call_exception_handler({"message": "an arrival raised", "exception": error})

    def _set_turn(self) -> None:
        if not self._turn_is_set:
            self._turn_is_set = True
            world = self.world
            if self._busy_until_s > world.time():
                world.call_at(self._busy_until_s, self._turn)
            else:
                world.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_set = False
        if self._paused:
            return
        queue, world = self._queue, self.world
        self.turns += 1
        if self.turn_cost_s:  # before the turn: what it queues must wait for its end
            self._busy_until_s = world.time() + self.turn_cost_s
        before = _get_running_loop()
        _set_running_loop(self)
        try:
            for _ in range(len(queue)):
                handle = queue.popleft()
                if type(handle) is tuple:
                    self._arrive(*handle)
                elif not handle._cancelled:
                    handle._run()
        finally:
            _set_running_loop(before)
        if queue:
            self._set_turn()

    # asyncio's side

    def time(self) -> float:
        """The machine's monotonic clock, in seconds."""
        return self._clock.monotonic_s(self.world.time())

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> Any:
        """Make a task, which :meth:`die` ends."""
        task = super().create_task(coro, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call it in the next turn."""
        handle = asyncio.Handle(callback, args, self, context)
        self._queue.append(handle)
        if not (self._turn_is_set or self._paused):
            self._set_turn()
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call it in ``delay`` seconds of the machine's clock."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call it at that time of the machine's clock."""
        timer = MachineTimer(when, callback, args, self, context)
        self._arm(timer, when)
        return timer

    def _arm(self, timer: MachineTimer, when: float) -> None:
        left_s = max(when - self.time(), 0.0) / self._clock.rate
        if 0.0 < left_s < EARLY_S:
            # So short a time may not move the virtual time at all, where a real clock goes on. Code that waits for what
            # is left of a pause would wait for ever.
            left_s = EARLY_S
        timer.world = self.world.call_at(self.world.time() + left_s, self._due, timer, when)

    def _due(self, timer: MachineTimer, when: float) -> None:
        if self.dead:
            return
        if self.time() < when - EARLY_S:  # the clock has become slower since
            self._arm(timer, when)
            return
        self._queue.append(timer)
        if not (self._turn_is_set or self._paused):
            self._set_turn()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        assert isinstance(handle, MachineTimer)
        if handle.world is not None:
            handle.world.cancel()

    def set_debug(self, enabled: bool) -> None:
        """Do nothing: debugging is the simulation's, and would read the real clock."""
        self._debug = False

    def _write_to_self(self) -> None:
        """Do nothing: there is one thread, and no selector to wake."""

    def is_running(self) -> bool:
        """Always: it runs as long as the simulation does."""
        return True

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report to the simulation, unless the process is dead: nothing could have seen it."""
        if not self.dead:
            self.world.call_exception_handler(context)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Refuse: the simulation has one thread."""
        raise SimulationError("a thread was asked for behind the runtime's back: use Runtime.offload")

    def __del__(self, _warn: Any = None) -> None:
        """Do nothing: nothing is open, so an unclosed loop is no leak."""
