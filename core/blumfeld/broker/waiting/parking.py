"""Drives the purgatory: woken operations run in Phase.COMPLETE, and one timer of the loop serves all deadlines."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import ceil
from typing import Protocol

from blumfeld.broker.waiting.deadlines import EARLY_MS, Deadlines, WaitCounts
from blumfeld.broker.waiting.purgatory import Purgatory
from blumfeld.spi.context import ParkedOperation
from blumfeld.spi.defects import place_of
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Phase, Runtime, Timer


class Expires(Protocol):
    """A request that waits until a deadline."""

    def expire(self) -> None:
        """The deadline has passed: answer with what there is."""
        ...


class PurgatoryParking:
    """The purgatory: implements ``spi.context.Parking``."""

    def __init__(self, runtime: Runtime, events: EventLog) -> None:
        self._runtime = runtime
        self._events = events
        self._defects = RepeatedEvents(runtime)
        self._timer: Timer | None = None
        self._timer_due_ms = 0.0
        self._deadlines: Deadlines[Expires] = Deadlines()
        self.counts = WaitCounts()
        """Requests that wait elsewhere: for the commit of their batches."""
        self._stopped = False
        self.purgatory = Purgatory(int(runtime.monotonic_ms()), self._woken, self._defect)

    @property
    def waiting(self) -> int:
        """Number of requests that wait."""
        return len(self.purgatory) + len(self._deadlines)

    def park(self, operation: ParkedOperation, keys: Sequence[Hashable], timeout_ms: float) -> None:
        """Try to complete the operation now. If that fails, keep it until a wake completes it or the time is up."""
        deadline_ms = ceil(self._runtime.monotonic_ms() + max(timeout_ms, 0))
        if self.purgatory.park(operation, keys, deadline_ms) is not None:
            self._set_timer(deadline_ms)

    def until(self, request: Expires, wait_ms: float, now_ms: float) -> None:
        """Let a request wait that is woken by other means: expire it in ``wait_ms``, unless :meth:`completed` or
        :meth:`forget` is called before. After the broker has stopped it expires at once."""
        if self._stopped:
            self._expire(request)
        elif self._deadlines.add(request, wait_ms, now_ms):
            self._set_timer(now_ms + wait_ms)

    def completed(self, request: Expires, wait_ms: float) -> None:
        """End a wait, and count the request as answered. ``wait_ms`` is that of :meth:`until`."""
        self._deadlines.remove(request, wait_ms)
        self.purgatory.completed_total += 1

    def forget(self, request: Expires, wait_ms: float) -> None:
        """End a wait whose answer nothing waits for any more."""
        self._deadlines.remove(request, wait_ms)

    def wake(self, key: Hashable) -> None:
        """Try the operations that watch ``key`` again in Phase.COMPLETE of this turn."""
        self.purgatory.wake(key)

    def stop(self) -> None:
        """Expire every operation, and from now on each one at once when it is parked."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._stopped = True
        for request in self._deadlines.drain():
            self._expire(request)
        self.purgatory.drain()

    def _woken(self) -> None:
        self._runtime.at_end_of_turn(Phase.COMPLETE, self._run)

    def _run(self) -> None:
        self.purgatory.run_woken()

    def _expire(self, request: Expires) -> None:
        self.purgatory.expired_total += 1
        try:
            request.expire()
        except Exception as error:
            self._defect(request, error)

    def _set_timer(self, due_ms: float) -> None:
        if self._timer is not None:
            if self._timer_due_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_due_ms = due_ms
        self._timer = self._runtime.call_later(due_ms - self._runtime.monotonic_ms(), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ms = self._runtime.monotonic_ms()
        self.purgatory.tick(int(now_ms))
        for request in self._deadlines.expire(now_ms + EARLY_MS):
            self._expire(request)
        due = [at for at in (self.purgatory.next_deadline_ms(), self._deadlines.next_ms()) if at is not None]
        if due:
            self._set_timer(min(due))

    def _defect(self, operation: Expires, error: Exception) -> None:
        name = type(operation).__name__
        log, key = self._events.error, (name, place_of(error))
        self._defects.say(log, "parked operation failed", key, operation=name, exc_info=error)
