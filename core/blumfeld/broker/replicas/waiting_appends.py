"""Appends with acks=all that are written and wait for their commit: in offset order, with one queue of deadlines.

Most are committed in the turn that writes them. Only those that are not get a deadline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Protocol, TypeAlias

from blumfeld.broker.waiting.deadlines import EARLY_MS, Deadlines, WaitCounts
from blumfeld.spi.replication import LeaderReplica
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.wire.errors import ErrorCode

ACKS_ALL = -1
# An enumeration's member costs as much to look up as a call.
_NONE = ErrorCode.NONE
_KAFKA_STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


class AppendWaiter(Protocol):
    """Waits for the outcome of an append: until the batch is written (acks=1), or committed (acks=all)."""

    @property
    def commit_wait_ms(self) -> float | None:
        """Time to wait for the commit, from the end of the turn that places the batch; ``None`` for no limit."""
        ...

    def appended(self, code: ErrorCode) -> None:
        """Take the outcome: NONE, or the error. Called once, and never before the append has returned.

        REQUEST_TIMED_OUT: the time is up. The batch may still be committed later.
        """
        ...


Waiting: TypeAlias = tuple[int, int, AppendWaiter]
"""(end offset, acks, waiter) of one append."""


class WaitingAppends:
    """The appends of one partition that wait for their commit.

    :param tells: called before waiters are told outside of :meth:`answer` and :meth:`fail`
    """

    __slots__ = (
        "_counts",
        "_deadlines",
        "_expired",
        "_limits",
        "_new",
        "_runtime",
        "_tells",
        "_timer",
        "queue",
    )

    def __init__(self, runtime: Runtime, counts: WaitCounts, tells: Callable[[], None]) -> None:
        self.queue: deque[Waiting] = deque()
        """The written appends, in offset order."""
        self._runtime = runtime
        self._counts = counts
        self._tells = tells
        self._new = 0
        """Number of appends at the end of the queue that may have no deadline yet."""
        self._deadlines: Deadlines[AppendWaiter] = Deadlines()
        self._limits: dict[AppendWaiter, float] = {}
        """Waiters with a deadline, and how long each may wait."""
        self._expired: dict[AppendWaiter, None] = {}
        """The number of waiters that were answered REQUEST_TIMED_OUT. Their batch's outcome comes later and is told to
        no client.
        """
        self._timer: Timer | None = None

    def written(self, waiting: Sequence[Waiting], end_offset: int, failed: bool) -> list[Waiting]:
        """Take the outcome of a write. Those with acks=1 are told, those with acks=all wait for the commit.

        Returns those that were placed since: this is the outcome of an earlier write that waited for a sync.

        :param end_offset: the written end of the log
        :param failed: the write failed, so that everything behind ``end_offset`` gets KAFKA_STORAGE_ERROR
        """
        committing: list[Waiting] = []
        placed_since: list[Waiting] = []
        # Where the first one waits for the commit, mostly all do, and all are written now.
        if (
            waiting
            and waiting[0][1] == ACKS_ALL
            and not [append for append in waiting if append[1] != ACKS_ALL or append[0] > end_offset]
        ):
            committing, waiting = list(waiting), ()
        for entry in waiting:
            one_end, acks, waiter = entry
            if one_end > end_offset:
                if failed:
                    self.tell(waiter, _KAFKA_STORAGE_ERROR)
                else:
                    placed_since.append(entry)
            elif acks != ACKS_ALL:
                waiter.appended(_NONE)
            else:
                committing.append(entry)
        if committing:
            self.queue += committing
            self._new += len(committing)
        return placed_since

    def answer(self, leader: LeaderReplica, written_end_offset: int) -> None:
        """Tell the waiters whose batches are committed.

        :param written_end_offset: the written end of the log, behind which none of them waits
        """
        queue = self.queue
        code = leader.check_committed(queue[0][0]) if queue else None
        if code is None:
            return
        # The size of the ISR is the same for all, so the leader is asked only once.
        high_watermark = leader.high_watermark
        if high_watermark >= written_end_offset:
            due = list(queue)
            queue.clear()
        else:
            due = []
            while queue and queue[0][0] <= high_watermark:
                due.append(queue.popleft())
        if self._limits or self._expired:
            for _, _, waiter in due:
                self.tell(waiter, code)
        else:
            for _, _, waiter in due:
                waiter.appended(code)

    def fail(self, code: ErrorCode) -> None:
        """Tell every waiter this error."""
        queue = self.queue
        while queue:
            self.tell(queue.popleft()[2], code)

    def tell(self, waiter: AppendWaiter, code: ErrorCode) -> None:
        """Tell a waiter the outcome of its batch, unless its time was up before."""
        if self._limits and (limit_ms := self._limits.pop(waiter, None)) is not None:
            self._deadlines.remove(waiter, limit_ms)
            self._counts.waiting -= 1
            self._counts.completed_total += 1
        elif self._expired and waiter in self._expired:
            del self._expired[waiter]
            return
        waiter.appended(code)

    def outlive_the_turn(self) -> None:
        """Give a deadline to the waiters that were added since the last call and still wait."""
        new, self._new = min(self._new, len(self.queue)), 0
        self.limit([waiter for _, _, waiter in islice(reversed(self.queue), new)][::-1])

    def limit(self, waiters: Iterable[AppendWaiter]) -> None:
        """Give a deadline to those of these waiters that want one and have none."""
        now_ms = self._runtime.monotonic_ms()
        sooner = False
        for waiter in waiters:
            limit_ms = waiter.commit_wait_ms
            if limit_ms is not None and waiter not in self._limits and waiter not in self._expired:
                limit_ms = max(limit_ms, 0)
                self._limits[waiter] = limit_ms
                self._counts.waiting += 1
                sooner = self._deadlines.add(waiter, limit_ms, now_ms) or sooner
        if sooner:
            self._set_timer(now_ms)

    def stop(self) -> None:
        """Set no timer any more. Every waiter must have been told."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, now_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due_ms = self._deadlines.next_ms()
        self._timer = None if due_ms is None else self._runtime.call_later(due_ms - now_ms, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ms = self._runtime.monotonic_ms()
        due = self._deadlines.expire(now_ms + EARLY_MS)
        if due:
            self._tells()
        for waiter in due:
            del self._limits[waiter]
            self._expired[waiter] = None
            self._counts.waiting -= 1
            self._counts.expired_total += 1
        for waiter in due:
            waiter.appended(ErrorCode.REQUEST_TIMED_OUT)
        self._set_timer(now_ms)
