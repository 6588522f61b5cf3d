"""The scheduler of a node: runs long work in steps on the loop's thread, between the turns of all other requests.

A piece of work is a generator (:data:`~blumfeld.spi.completion.Steps`). It yields ``None`` where a turn for others may
come, or an open completion that it waits for. Every piece runs in a lane, and each lane has a budget of time in a turn
of the loop: :data:`BUDGETS` says how long a turn may be. The pieces of a lane share its budget in turns, so ten large
requests delay the other connections no longer than one does.

Reached as ``runtime.scheduler``. The simulated runtime has the same scheduler on virtual time, which stands still in a
turn. There each piece does one step a turn: the more turns, the more can come between two steps.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar

from blumfeld.spi.completion import Completion, Steps
from blumfeld.wire.errors import PluginContractError

T = TypeVar("T")

SHARE_MS = 1.0
"""Time for one piece before the next one of its lane gets its share."""


class Lane(Enum):
    """The kinds of long work. Each has a budget of its own, so that none of them waits for another."""

    REQUESTS = "requests"
    """Requests of many elements."""
    REPLICATION = "replication"
    """Replicas that this node leads or follows: answers to fetches, roles, producers after a truncation."""
    METADATA = "metadata"
    """The controller's decisions, and the image of the cluster."""
    LOADING = "loading"
    """The replay of groups' and transactions' shards after an election."""
    COORDINATORS = "coordinators"
    """Other work of those shards: large transactions that end, markers, events that all shards are told of."""
    UPKEEP = "upkeep"
    """Work in the background: retention, checkpoints, metadata snapshots."""


class Budget(NamedTuple):
    """The bounds of one lane."""

    turn_ms: float
    """Time in one turn of the loop. A step is not interrupted, so a turn may take a step longer."""
    running_max: int = sys.maxsize
    """Pieces that have begun. The others wait. One that waits for a completion doesn't count."""


BUDGETS = {
    # A request in work may need twenty times its frame's memory, a queued one only its frame.
    Lane.REQUESTS: Budget(4.0, running_max=4),
    # At the end of the turn the logs of an answer are written, which takes as long again or twice.
    Lane.REPLICATION: Budget(1.5),
    Lane.METADATA: Budget(3.0),
    # One long log doesn't delay all shards, and most are done early. Kafka has 4 ``group.coordinator.threads``.
    Lane.LOADING: Budget(4.0, running_max=4),
    Lane.COORDINATORS: Budget(2.0),
    Lane.UPKEEP: Budget(1.0),
}
"""The time that long work may take in a turn of the loop: the sum, and one step of each lane."""

Finished = Callable[[Any, BaseException | None], None]
Soon = Callable[[Callable[[], None]], object]


class Work:
    """One piece of work in the scheduler. It can be cancelled like a timer."""

    __slots__ = ("_finished", "_lane", "_steps", "_wanted", "done")

    def __init__(
        self,
        lane: _LaneState,
        steps: Steps[Any],
        finished: Finished | None,
        wanted: Callable[[], bool] | None,
    ) -> None:
        self.done = False
        """Whether it has ended, or was cancelled."""
        self._lane = lane
        self._steps: Any = steps  # typing's generators don't have ``gi_running``
        self._finished = finished
        self._wanted = wanted

    def cancel(self) -> None:
        """End it where it is; ``finished`` is not called. May be called by one of its steps, and after its end."""
        if not self.done:
            self.done, self._finished = True, None
            if not self._steps.gi_running:
                self._close()

    def finish(self) -> None:
        """Run all that is left of it at once. It must wait for nothing, and no step of it may call this."""
        while not self.done:
            if not self.step() and not self.done:
                raise RuntimeError("work that waits can't be run to its end at once")

    def step(self) -> bool:
        """Run one step. Returns whether the next one may follow: not at the end, or if it waits for a completion."""
        try:
            if self._wanted is not None and not self._wanted():
                self._steps.close()
                self._end(None, None)
                return False
            awaited = next(self._steps)
            if awaited is None:
                if not self.done:
                    return True
            elif not isinstance(awaited, Completion):
                raise PluginContractError(
                    f"{self._steps} yielded {awaited!r}: None or a Completion is allowed"
                )
            elif not self.done:
                if awaited.done:
                    return True
                awaited.when_done(lambda _: self._lane.add(self))
                return False
        except StopIteration as end:
            self._end(end.value, None)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # CancelledError, too: whatever a piece does, its lane goes on
            self._end(None, error)
        else:
            self._close()  # cancelled by its own step
        return False

    def _close(self) -> None:
        """Close the steps of work that is not heard of any more."""
        try:
            self._steps.close()
        except Exception as error:
            self._lane.stray(error)

    def _end(self, result: Any, error: BaseException | None) -> None:
        self.done = True
        if self._finished is not None:
            try:
                self._finished(result, error)
                return
            except Exception as defect:
                error = defect
        if error is not None:
            self._lane.stray(error)


class _LaneState:
    """The pieces of one lane, and the time that they have in this turn."""

    def __init__(
        self, budget: Budget, now_ms: Callable[[], float], soon: Soon, arm: Callable[[], None]
    ) -> None:
        self.longest_ms = 0.0
        self._budget = budget
        self._running: deque[Work] = deque()
        """Pieces that have begun, and may go on."""
        self._queued: deque[Work] = deque()
        """Pieces that have not begun."""
        self._spent_ms = 0.0
        """Part of this turn's budget that is spent."""
        self._ends_ms: float | None = None
        """The end of this turn's budget; ``None`` if no piece is running now."""
        self._now_ms = now_ms
        self._soon = soon
        self._arm = arm

    def __len__(self) -> int:
        return len(self._running) + len(self._queued)

    def add(self, work: Work) -> None:
        """Queue a piece whose completion is done. It never runs from here: another piece may be running."""
        if not work.done:
            self._running.append(work)
            self._arm()

    def begin(self, work: Work, at_once: bool) -> None:
        """Run the first share now, if it may be, and queue what is left."""
        if not at_once or len(self) or self._left_ms() <= 0:
            self._queued.append(work)
        elif self._share(work, self._budget.turn_ms):
            self._running.append(work)
        if len(self) or self._spent_ms:
            self._arm()

    def turn(self) -> None:
        """Deal out the budget of one turn."""
        self._spent_ms = 0.0
        running, queued = self._running, self._queued
        while running or queued:
            while queued and len(running) < self._budget.running_max:
                running.append(queued.popleft())
            for _ in range(len(running)):
                work = running.popleft()
                if not work.done and self._share(work, SHARE_MS):
                    running.append(work)
                if self._left_ms() <= 0:
                    return
            if not self._spent_ms:  # the clock stands still
                return

    def _left_ms(self) -> float:
        if self._ends_ms is not None:
            return self._ends_ms - self._now_ms()
        return self._budget.turn_ms - self._spent_ms

    def _share(self, work: Work, share_ms: float) -> bool:
        """Run one share of a piece. Returns whether it needs another."""
        now_ms, outer_ends_ms = self._now_ms, self._ends_ms
        began_ms = last_ms = now_ms()
        if outer_ends_ms is None:
            self._ends_ms = began_ms + self._budget.turn_ms - self._spent_ms
        end_ms = min(began_ms + share_ms, self._ends_ms or 0.0)
        more = True
        while last_ms < end_ms and (more := work.step()):
            last_ms = now_ms()
            if last_ms == began_ms:  # the clock stands still
                break
        last_ms = now_ms()
        self._ends_ms = outer_ends_ms
        if outer_ends_ms is None:
            self._spent_ms += last_ms - began_ms
            self.longest_ms = max(self.longest_ms, self._spent_ms)
        return more

    def stray(self, error: BaseException) -> None:
        """Give an error to the loop. The pieces behind go on."""
        self._soon(partial(_raise, error))


class Scheduler:
    """Runs the long work of a node. Made by its runtime."""

    def __init__(self, now_ms: Callable[[], float], soon: Soon) -> None:
        """:param now_ms: a clock that never goes back
        :param soon: calls a function back in the next turn of the loop
        """
        self._soon = soon
        self._lanes = {lane: _LaneState(BUDGETS[lane], now_ms, soon, self._arm) for lane in Lane}
        self._armed = False

    def run(
        self,
        lane: Lane,
        steps: Steps[Any],
        finished: Finished | None = None,
        *,
        wanted: Callable[[], bool] | None = None,
        at_once: bool = True,
    ) -> Work:
        """Run ``steps`` to their end, one share in each turn of the loop.

        :param finished: called once with (result, error), in a later turn or before this returns. Without it an error
            reaches the loop, which logs it
        :param wanted: asked before each step. Work that is not wanted any more is closed, and ``finished(None, None)``
            is called
        :param at_once: run the first share now, unless others wait in the lane or its time of this turn is over
        """
        state = self._lanes[lane]
        work = Work(state, steps, finished, wanted)
        state.begin(work, at_once)
        return work

    def completed(self, lane: Lane, steps: Steps[T]) -> Completion[T]:
        """Run ``steps`` as :meth:`run` does. Returns the completion of their result, which a task may await."""
        completion: Completion[T] = Completion()

        def finished(result: T, error: BaseException | None) -> None:
            if error is None:
                completion.complete(result)
            else:
                completion.fail(error)

        self.run(lane, steps, finished)
        return completion

    def waiting(self, lane: Lane) -> int:
        """Returns the number of pieces that wait for their next share."""
        return len(self._lanes[lane])

    def longest_ms(self, lane: Lane) -> float:
        """Returns the longest time that the lane took of a turn."""
        return self._lanes[lane].longest_ms

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._soon(self._turn)

    def _turn(self) -> None:
        self._armed = False
        for lane in self._lanes.values():
            lane.turn()
        if any(map(len, self._lanes.values())):
            self._arm()


def _raise(error: BaseException) -> NoReturn:
    raise error
