"""Drives the purgatory: woken operations run in Phase.COMPLETE, and one timer of the loop serves all deadlines."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from math import ceil

from blumfeld.broker.waiting.purgatory import Purgatory
from blumfeld.spi.context import ParkedOperation
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Phase, Runtime, Timer


class PurgatoryParking:
    """Implements ``spi.context.Parking``."""

    def __init__(self, runtime: Runtime, events: EventLog) -> None:
        self._runtime = runtime
        self._events = events
        self._timer: Timer | None = None
        self._timer_due_ms = 0
        self.purgatory = Purgatory(int(runtime.monotonic_ms()), self._woken, self._defect)

    def park(self, operation: ParkedOperation, keys: Sequence[Hashable], timeout_ms: float) -> None:
        """Try to complete the operation now. If that fails, keep it until a wake completes it or the time is up."""
        self.keep(operation, keys, timeout_ms)

    def keep(
        self,
        operation: ParkedOperation,
        keys: Sequence[Hashable],
        timeout_ms: float,
        *,
        tried: bool = False,
    ) -> Callable[[], None] | None:
        """As :meth:`park`; ``tried`` skips the first attempt, which the caller has just made in vain.

        Returns a function that removes the operation from the purgatory, or ``None`` if it has ended already.
        """
        deadline_ms = ceil(self._runtime.monotonic_ms() + max(timeout_ms, 0))
        parked = self.purgatory.park(operation, keys, deadline_ms, tried=tried)
        if parked is None:
            return None
        self._set_timer(deadline_ms)
        return partial(self.purgatory.forget, parked)

    def wake(self, key: Hashable) -> None:
        """Try the operations that watch ``key`` again in Phase.COMPLETE of this turn."""
        self.purgatory.wake(key)

    def stop(self) -> None:
        """Expire every operation, and from now on each one at once when it is parked."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.purgatory.drain()

    def _woken(self) -> None:
        self._runtime.at_end_of_turn(Phase.COMPLETE, self._run)

    def _run(self) -> None:
        self.purgatory.run_woken()

    def _set_timer(self, due_ms: int) -> None:
        if self._timer is not None:
            if self._timer_due_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_due_ms = due_ms
        self._timer = self._runtime.call_later(due_ms - self._runtime.monotonic_ms(), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.purgatory.tick(int(self._runtime.monotonic_ms()))
        due_ms = self.purgatory.next_deadline_ms()
        if due_ms is not None:
            self._set_timer(due_ms)

    def _defect(self, operation: ParkedOperation, error: Exception) -> None:
        self._events.error("parked operation failed", operation=type(operation).__name__, exc_info=error)
