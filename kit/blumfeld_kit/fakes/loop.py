"""An asyncio event loop on virtual time: when nothing is ready, it is the next timer's time at once.

No selector, no sockets, no threads: what runs on it is decided by the order of ``call_soon`` and ``call_later``
alone, so the same program runs the same way every time. Plain ``await``, ``asyncio.sleep`` and tasks work.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

TURNS_MAX = 100_000
"""Turns of the loop without passing time, after which the loop counts as one that never rests."""


class SimulationError(AssertionError):
    """The simulated program can't go on: everything waits, nothing rests, or an error escaped from a callback."""


class _NoSelector:
    """Moves the clock at the place where a real loop waits for sockets."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.pass_time(timeout)
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop whose time starts at 0. An error that escapes from a callback is raised by the call that runs the
    loop.
    """

    def __init__(self) -> None:
        super().__init__()
        self._selector = _NoSelector(self)
        self._clock_resolution = 1e-9
        self._now_s = 0.0
        self._still = 0
        self._escaped: list[BaseException] = []
        self.set_debug(False)
        self.set_exception_handler(self._note_escaped)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now_s

    def pass_time(self, timeout_s: float | None) -> None:
        """Let ``timeout_s`` pass, since nothing is to do. ``None`` means for ever, and raises."""
        if timeout_s is None:
            raise SimulationError("every task waits, and no timer is set: nothing can happen any more")
        if timeout_s > 0:
            self._now_s += timeout_s
            self._still = 0
            return
        self._still += 1
        if self._still > TURNS_MAX:
            raise SimulationError(
                f"{TURNS_MAX} turns, and time stands still: something calls itself for ever"
            )

    def advance(self, ms: float) -> None:
        """Let ``ms`` pass. Every timer that is due runs, in order, with everything that it makes ready."""
        self._check_not_inside()
        self.run_ready()
        end_s = self._now_s + ms / 1000.0
        while (due_s := self._next_timer_s()) is not None and due_s <= end_s + self._clock_resolution:
            if due_s > self._now_s:
                self._now_s, self._still = due_s, 0
            self._one_turn()
            self.run_ready()
        self._now_s = max(self._now_s, end_s)

    def run_ready(self) -> None:
        """Run turns until nothing is ready. No time passes."""
        self._check_not_inside()
        for _ in range(TURNS_MAX):
            if not self._ready:  # type: ignore[attr-defined]
                return
            self._one_turn()
        raise SimulationError(f"{TURNS_MAX} turns, and the loop doesn't come to rest")

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, with as much virtual time as that takes. Return its result, or raise its
        error.
        """
        self._check_not_inside()
        result = self.run_until_complete(coroutine)
        self._raise_escaped()
        return result

    def _one_turn(self) -> None:
        self.call_soon(self.stop)
        self.run_forever()
        self._raise_escaped()

    def _next_timer_s(self) -> float | None:
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0].cancelled():
            self._timer_cancelled_count = max(0, self._timer_cancelled_count - 1)  # type: ignore[has-type]
            heapq.heappop(scheduled)._scheduled = False  # type: ignore[attr-defined]
        return scheduled[0].when() if scheduled else None

    def _check_not_inside(self) -> None:
        if self.is_running():
            raise SimulationError("the loop runs already: inside it, await instead")

    def _note_escaped(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:
            self._escaped.append(error)

    def _raise_escaped(self) -> None:
        if self._escaped:
            escaped, self._escaped = self._escaped, []
            raise SimulationError(f"escaped from a callback: {escaped[0]!r}") from escaped[0]

    # For the base class, which expects a loop with sockets

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no events."""

    def _write_to_self(self) -> None:
        """Do nothing: there is one thread, and no selector to wake."""

    def __del__(self, _warn: Any = None) -> None:
        """Do nothing: nothing is open, so an unclosed loop is no leak."""
