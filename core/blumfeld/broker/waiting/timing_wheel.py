"""A hierarchical timing wheel: many timers, most of them cancelled before they are due, on one timer of the loop.

Pure: the time is an argument. The lowest wheel has ``wheel_size`` ticks. Each wheel above spans ``wheel_size`` times
as much as the one below, and there are as many wheels as the deadlines need (Varghese and Lauck; Kafka's has 20 ticks
of 1 ms). The cost of adding and cancelling doesn't depend on the number of timers. Empty buckets don't exist.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")

TICK_MS = 1
WHEEL_SIZE = 20
"""Ticks of one wheel. Both values are Kafka's."""


class TimerTask(Generic[T]):
    """A payload with its deadline. :meth:`TimingWheel.add` returns it, :meth:`TimingWheel.cancel` takes it."""

    __slots__ = ("_bucket", "_due_tick", "_number", "deadline_ms", "payload")

    def __init__(self, deadline_ms: int, payload: T, due_tick: int, number: int) -> None:
        self.deadline_ms = deadline_ms
        self.payload = payload
        self._due_tick = due_tick
        self._number = number
        self._bucket: dict[TimerTask[T], None] | None = None


class TimingWheel(Generic[T]):
    """Timers by deadline. Rounding to ticks never makes one expire early, and makes it late by less than ``tick_ms``.

    :param start_ms: the current time, on the clock of the deadlines and of :meth:`advance`
    """

    __slots__ = ("_buckets", "_count", "_due", "_now_tick", "_number", "_tick_ms", "_wheel_size")

    def __init__(self, start_ms: int = 0, tick_ms: int = TICK_MS, wheel_size: int = WHEEL_SIZE) -> None:
        self._tick_ms = tick_ms
        self._wheel_size = wheel_size
        self._now_tick = start_ms // tick_ms
        self._number = 0
        self._count = 0
        self._buckets: list[dict[int, dict[TimerTask[T], None]]] = [{}]
        """The buckets of each wheel, lowest wheel first: a bucket's first tick → its tasks."""
        self._due: list[tuple[int, int]] = []
        """A heap of (first tick, wheel), one entry for each bucket."""

    def __len__(self) -> int:
        """Number of pending timers."""
        return self._count

    def add(self, deadline_ms: int, payload: T) -> TimerTask[T]:
        """Set a timer. One whose deadline has passed is expired by the next :meth:`advance`."""
        self._number += 1
        self._count += 1
        task = TimerTask(deadline_ms, payload, -(-deadline_ms // self._tick_ms), self._number)
        self._place(task)
        return task

    def cancel(self, task: TimerTask[T]) -> bool:
        """Cancel a timer. Returns whether it was pending."""
        bucket = task._bucket
        if bucket is None:
            return False
        del bucket[task]
        task._bucket = None
        self._count -= 1
        return True

    def advance(self, now_ms: int) -> list[TimerTask[T]]:
        """Remove and return the timers that are due at ``now_ms``, by deadline, then in the order of :meth:`add`.

        A clock that goes back changes nothing.
        """
        now_tick = max(now_ms // self._tick_ms, self._now_tick)
        self._now_tick = now_tick
        expired: list[TimerTask[T]] = []
        while self._due and self._due[0][0] <= now_tick:
            first_tick, wheel = heappop(self._due)
            for task in self._buckets[wheel].pop(first_tick):
                if task._due_tick <= now_tick:
                    task._bucket = None
                    expired.append(task)
                else:
                    self._place(task)
        self._count -= len(expired)
        if len(expired) > 1:
            expired.sort(key=_by_deadline)
        return expired

    def next_deadline_ms(self) -> int | None:
        """Returns the time of the next :meth:`advance`; ``None`` if nothing is pending.

        It is never later than the first deadline (rounded up to a tick). It is earlier if timers must first move down
        from a higher wheel.
        """
        while self._due:
            first_tick, wheel = self._due[0]
            if self._buckets[wheel][first_tick]:
                return first_tick * self._tick_ms
            heappop(self._due)
            del self._buckets[wheel][first_tick]
        return None

    def _place(self, task: TimerTask[T]) -> None:
        now_tick, size = self._now_tick, self._wheel_size
        due_tick = max(task._due_tick, now_tick)
        wheel, span = 0, 1
        while due_tick >= now_tick - now_tick % span + span * size:
            wheel += 1
            span *= size
        while wheel >= len(self._buckets):
            self._buckets.append({})
        first_tick = due_tick - due_tick % span
        buckets = self._buckets[wheel]
        bucket = buckets.get(first_tick)
        if bucket is None:
            bucket = buckets[first_tick] = {}
            heappush(self._due, (first_tick, wheel))
        bucket[task] = None
        task._bucket = bucket


def _by_deadline(task: TimerTask[T]) -> tuple[int, int]:
    return task.deadline_ms, task._number
