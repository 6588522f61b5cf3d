"""Deadlines of waiting requests, in one queue for each length of wait. Pure: the time is an argument.

Requests that wait equally long expire in the order in which they came, so a queue needs no sorting: a request is added
and removed with one dictionary entry each. Clients use few different lengths of wait. A heap says which queue is due
next.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")

EMPTY_QUEUES_MAX = 64
"""Empty queues that are kept at most, beside as many as there are queues in use. A client that waits for another
length each time would leave one behind with each request."""


EARLY_MS = 0.001
"""A timer may come this much before its deadline, because times are rounded. It counts as due then: setting the timer
again for so short a time may never end."""


class WaitCounts:
    """Numbers of the requests that wait under deadlines, for metrics."""

    __slots__ = ("completed_total", "expired_total", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self.completed_total = 0
        """Requests that were answered after they had waited."""
        self.expired_total = 0


class Deadlines(Generic[T]):
    """Waiting things by deadline. A thing must be hashable, and wait at most once at a time.

    All times are ms of one monotonic clock.
    """

    __slots__ = ("_firsts", "_purge_at", "_queues")

    def __init__(self) -> None:
        self._queues: dict[float, dict[T, float]] = {}
        """Length of the wait → thing → deadline, in the order of deadlines."""
        self._firsts: list[tuple[float, float]] = []
        """A heap with one entry for each queue: (no deadline in it is earlier, length of the wait)."""
        self._purge_at = EMPTY_QUEUES_MAX

    def __len__(self) -> int:
        """Number of things that wait."""
        return sum(map(len, self._queues.values()))

    def add(self, waiting: T, wait_ms: float, now_ms: float) -> bool:
        """Let a thing wait. Returns whether :meth:`next_ms` may have changed.

        :param now_ms: no earlier than in the call before, or the thing may expire late by the difference
        """
        queue = self._queues.get(wait_ms)
        if queue is not None:
            queue[waiting] = now_ms + wait_ms
            return False
        if len(self._queues) >= self._purge_at:
            self._purge()
        deadline_ms = now_ms + wait_ms
        self._queues[wait_ms] = {waiting: deadline_ms}
        heappush(self._firsts, (deadline_ms, wait_ms))
        return self._firsts[0][1] == wait_ms

    def remove(self, waiting: T, wait_ms: float) -> None:
        """End a wait before its deadline.

        :raises KeyError: the thing doesn't wait, or waits for another length
        """
        del self._queues[wait_ms][waiting]

    def next_ms(self) -> float | None:
        """Returns a time before which nothing expires; ``None`` if nothing waits."""
        return self._firsts[0][0] if self._firsts else None

    def expire(self, now_ms: float) -> list[T]:
        """Remove the things whose deadline has come. Returns them in the order of their deadlines."""
        due: list[tuple[float, T]] = []
        firsts = self._firsts
        while firsts and firsts[0][0] <= now_ms:
            _, wait_ms = heappop(firsts)
            queue = self._queues[wait_ms]
            expired: list[T] = []
            for waiting, deadline_ms in queue.items():
                if deadline_ms > now_ms:
                    heappush(firsts, (deadline_ms, wait_ms))
                    break
                expired.append(waiting)
                due.append((deadline_ms, waiting))
            if len(expired) == len(queue):
                del self._queues[wait_ms]
            else:
                for waiting in expired:
                    del queue[waiting]
        due.sort(key=lambda entry: entry[0])
        return [waiting for _, waiting in due]

    def drain(self) -> list[T]:
        """Remove everything that waits. Returns it in the order of deadlines."""
        return self.expire(float("inf"))

    def _purge(self) -> None:
        self._queues = {wait_ms: queue for wait_ms, queue in self._queues.items() if queue}
        self._firsts = [(next(iter(queue.values())), wait_ms) for wait_ms, queue in self._queues.items()]
        heapify(self._firsts)
        self._purge_at = EMPTY_QUEUES_MAX + 2 * len(self._queues)
