"""Large requests on one thread: each turn of the loop gives them a slice of time, and everybody else the rest.

A piece of work is a generator (:mod:`blumfeld.spi.steps`). One slice a turn is for all of them together, dealt out in
shares from the front of the queue, so that ten large requests delay others no longer than one does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.runtime import Runtime

SLICE_MS = 4.0
"""Time for all large requests together in one turn of the loop. A step is not interrupted, so a slice may take a step
longer."""
SHARE_MS = 1.0
"""Time for one of them before the next gets its share of the slice."""
STEPS_MAX = 100
"""Steps of one share at most: on virtual time no clock would end it."""
SHARES_MAX = 64
"""Shares of one slice at most, for the same reason."""
RUNNING_MAX = 4
"""Large requests in work at the same time. One in work may need twenty times its frame's memory; those behind it need
their frames. One that waits for something else than its turn doesn't count."""

Finished = Callable[[Any, BaseException | None], None]


class Work:
    """One piece of work: how far it has come, the callback for its end, and whether its answer is still wanted."""

    __slots__ = ("finished", "steps", "wanted")

    def __init__(self, steps: Steps[Any], finished: Finished, wanted: Callable[[], bool]) -> None:
        self.steps = steps
        self.finished = finished
        self.wanted = wanted


class Slices:
    """Runs work of a node in steps, on the loop's thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._running: deque[Work] = deque()
        self._queued: deque[Work] = deque()
        self._armed = False

    def __len__(self) -> int:
        """Pieces that wait for their turn."""
        return len(self._running) + len(self._queued)

    def run(self, steps: Steps[Any], finished: Finished, wanted: Callable[[], bool] = lambda: True) -> None:
        """Run ``steps`` to their end, the first of them at once if nothing else waits.

        ``finished(result, error)`` is called once, from a later turn or from here. Work that is not ``wanted()`` any
        more is ended at its next share instead, and ``finished(None, None)`` is called.
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
        """Whether it wants another share; not if it has ended, or waits."""
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
        """What it waited for is there. It goes on in a turn of its own: this may be the middle of another's."""
        self._running.append(work)
        self._arm()


def waited(awaited: Completion[Any]) -> Steps[Any]:
    """Wait for a completion within steps; its value.

    :raises BaseException: its error
    """
    if not awaited.done:
        yield awaited
    return awaited.result()
