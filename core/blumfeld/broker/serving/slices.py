"""Time slices for large requests: they share the loop's thread with all other requests.

A piece of work is a generator (:mod:`blumfeld.spi.steps`). Each turn of the loop has one slice of time for all of them
together. The slice is dealt out in shares from the front of the queue, so ten large requests delay the other
connections no longer than one does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from blumfeld.spi.completion import Steps
from blumfeld.spi.runtime import Runtime

SLICE_MS = 4.0
"""Time for all large requests together in one turn of the loop. A step is not interrupted, so a slice may take a step
longer."""
SHARE_MS = 1.0
"""Time for one large request before the next one gets its share of the slice."""
STEPS_MAX = 100
"""Steps of one share at most. In a simulation the virtual clock stands still, and would never end the share."""
SHARES_MAX = 64
"""Shares of one slice at most, for the same reason."""
RUNNING_MAX = 4
"""Large requests in work at the same time. A request in work may need twenty times its frame's memory, a queued one
only its frame. A request that waits for a completion doesn't count."""

Finished = Callable[[Any, BaseException | None], None]


class Work:
    """One piece of work: its generator, the callback for its end, and the check whether it is still wanted."""

    __slots__ = ("finished", "steps", "wanted")

    def __init__(self, steps: Steps[Any], finished: Finished, wanted: Callable[[], bool]) -> None:
        self.steps = steps
        self.finished = finished
        self.wanted = wanted


class Slices:
    """Runs all work in steps of a node, on the loop's thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._running: deque[Work] = deque()
        self._queued: deque[Work] = deque()
        self._armed = False

    def __len__(self) -> int:
        """Number of pieces that wait for their next share."""
        return len(self._running) + len(self._queued)

    def run(self, steps: Steps[Any], finished: Finished, wanted: Callable[[], bool] = lambda: True) -> None:
        """Run ``steps`` to their end. The first share runs at once if no other work waits.

        ``finished(result, error)`` is called once: in a later turn, or before this returns. Work that is not
        ``wanted()`` any more is closed at its next share, and ``finished(None, None)`` is called.
        """
        work = Work(steps, finished, wanted)
        if self._armed or len(self._running) >= RUNNING_MAX:
            self._queued.append(work)
        elif self._share(work, self._runtime.monotonic_ms() + SLICE_MS):
            self._running.append(work)
        self._arm()

    def _arm(self) -> None:
        if (self._running or self._queued) and not self._armed:
            self._armed = True
            self._runtime.call_later(0, self._slice)

    def _slice(self) -> None:
        self._armed = False
        now = self._runtime.monotonic_ms
        running, queued = self._running, self._queued
        end_ms = now() + SLICE_MS
        for _ in range(SHARES_MAX):
            while queued and len(running) < RUNNING_MAX:
                running.append(queued.popleft())
            if not running or now() >= end_ms:
                break
            work = running.popleft()
            if self._share(work, min(now() + SHARE_MS, end_ms)):
                running.append(work)
        self._arm()

    def _share(self, work: Work, end_ms: float) -> bool:
        """Run one share of the work. Returns whether it needs another: not if it has ended, or waits for a
        completion."""
        now = self._runtime.monotonic_ms
        if not work.wanted():
            work.steps.close()
            work.finished(None, None)
            return False
        steps = work.steps
        try:
            for _ in range(STEPS_MAX):
                awaited = next(steps)
                if awaited is not None and not awaited.done:
                    awaited.when_done(lambda _: self._goes_on(work))
                    return False
                if now() >= end_ms:
                    break
        except StopIteration as end:
            work.finished(end.value, None)
            return False
        except Exception as error:
            work.finished(None, error)
            return False
        return True

    def _goes_on(self, work: Work) -> None:
        """Queue work again whose completion is done. It never runs from here: another request's code may be running."""
        self._running.append(work)
        self._arm()
