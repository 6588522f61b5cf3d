"""Parks requests that can't be answered yet, with watch keys and a deadline (docs/design.md, rule 6).

Pure: no clock, no loop. The driver calls :meth:`Purgatory.run_woken` in ``Phase.COMPLETE`` of a turn in which a key
was woken, and :meth:`Purgatory.tick` when :meth:`Purgatory.next_deadline_ms` has come.

An operation is removed from all its keys the moment it ends, so no later purge is needed (Kafka's purgatory has one).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from blumfeld.broker.waiting.timing_wheel import TimerTask, TimingWheel
from blumfeld.spi.context import ParkedOperation

RUN_KEYS_MAX = 10_000
"""Keys that one call of :meth:`Purgatory.run_woken` serves, so that a chain of wakes can't hold the loop. A turn makes
several calls; keys that are left after them wait for the next turn."""


class Parked:
    """Handle of an operation that waits in the purgatory."""

    __slots__ = ("_timer", "ended", "keys", "operation")

    def __init__(self, operation: ParkedOperation, keys: Sequence[Hashable]) -> None:
        self.operation = operation
        self.keys = keys
        self.ended = False
        """Whether it was completed, expired or forgotten. If so, the operation will not be called again."""
        self._timer: TimerTask[Parked] | None = None


class Purgatory:
    """Parked operations by watch key.

    Each operation ends exactly once: ``try_complete`` returned True, ``expire`` was called, or it was forgotten.
    Afterwards it isn't called any more. An operation may wake keys and park others while it is called: such work is
    queued for the next run, and never recurses.

    :param start_ms: the current time, on the clock of the deadlines
    :param on_woken: called when a key is woken and no run is due yet: the driver must then call :meth:`run_woken`
    :param on_defect: called with an operation that raised, which is a defect; the operation has ended by that
    """

    __slots__ = (
        "_calling",
        "_closed",
        "_on_defect",
        "_on_woken",
        "_parked",
        "_running",
        "_watchers",
        "_wheel",
        "_woken",
        "completed_total",
        "expired_total",
    )

    def __init__(
        self,
        start_ms: int,
        on_woken: Callable[[], None],
        on_defect: Callable[[ParkedOperation, Exception], None],
    ) -> None:
        self._on_woken = on_woken
        self._on_defect = on_defect
        self._wheel: TimingWheel[Parked] = TimingWheel(start_ms)
        self._parked: dict[Parked, None] = {}
        self._watchers: dict[Hashable, dict[Parked, None]] = {}
        self._woken: dict[Hashable, None] = {}
        self._running = False
        self._calling = False
        self._closed = False
        self.completed_total = 0
        """Operations that completed after they had waited."""
        self.expired_total = 0

    def __len__(self) -> int:
        """Number of operations that wait."""
        return len(self._parked)

    @property
    def watched_keys(self) -> int:
        """Number of keys that at least one operation watches."""
        return len(self._watchers)

    def park(
        self, operation: ParkedOperation, keys: Sequence[Hashable], deadline_ms: int, *, tried: bool = False
    ) -> Parked | None:
        """Try to complete the operation now; if that fails, keep it until a wake completes it or its deadline comes.

        Returns its handle, or ``None`` if it has ended already: it completed, or the purgatory was drained before and
        it expired at once.

        When an operation parks another one, the new one isn't called here: the next run tries it first. That bounds
        the stack.

        :param tried: skip the first attempt, which the caller has just made in vain
        """
        parked = Parked(operation, keys)
        if self._closed:
            parked.ended = True
            self._expire(parked)
            return None
        nested = self._calling
        if not nested and not tried and self._tries(parked):
            return None
        self._parked[parked] = None
        for key in keys:
            watchers = self._watchers.get(key)
            if watchers is None:
                self._watchers[key] = {parked: None}
            else:
                watchers[parked] = None
        parked._timer = self._wheel.add(deadline_ms, parked)
        if nested:
            self._order(parked)
        return parked

    def wake(self, key: Hashable) -> None:
        """Have the next run try the operations that watch ``key``, in the order in which they were parked."""
        if key in self._watchers:
            self._order(key)

    def forget(self, parked: Parked) -> None:
        """End an operation without calling it, because nothing waits for its answer (its connection is gone)."""
        if not parked.ended:
            self._remove(parked)

    def run_woken(self, keys_max: int = RUN_KEYS_MAX) -> bool:
        """Try the operations of woken keys, in the order of waking, also of keys that are woken meanwhile.

        Returns whether keys are left after ``keys_max``; for those ``on_woken`` was called again. A call from within
        a run does nothing.
        """
        if self._running:
            return False
        self._running = True
        try:
            while self._woken and keys_max > 0:
                keys_max -= 1
                key = next(iter(self._woken))
                del self._woken[key]
                watchers = (key,) if isinstance(key, Parked) else tuple(self._watchers.get(key, ()))
                for parked in watchers:
                    if not parked.ended and self._tries(parked):
                        self.completed_total += 1
        finally:
            self._running = False
        if self._woken:
            self._on_woken()
        return bool(self._woken)

    def tick(self, now_ms: int) -> int:
        """Expire the operations whose deadline has come, in the order of deadlines. Returns their number."""
        expired = 0
        for task in self._wheel.advance(now_ms):
            parked = task.payload
            if not parked.ended:
                self._remove(parked)
                self._expire(parked)
                expired += 1
        return expired

    def next_deadline_ms(self) -> int | None:
        """Returns the time of the next :meth:`tick`, perhaps before the first deadline; ``None`` if nothing waits."""
        return self._wheel.next_deadline_ms()

    def drain(self) -> int:
        """Expire all operations in the order in which they were parked. Returns their number.

        For a broker that stops: an operation that is parked afterwards expires at once.
        """
        self._closed = True
        expired = 0
        for parked in list(self._parked):
            if not parked.ended:
                self._remove(parked)
                self._expire(parked)
                expired += 1
        self._woken.clear()
        return expired

    def _order(self, key: Hashable) -> None:
        """Queue a key for the next run. A new operation is queued as a key of its own."""
        if key not in self._woken:
            self._woken[key] = None
            if len(self._woken) == 1 and not self._running:
                self._on_woken()

    def _tries(self, parked: Parked) -> bool:
        """Call ``try_complete``. Returns whether the operation has ended and was removed."""
        nested, self._calling = self._calling, True
        try:
            if not parked.operation.try_complete():
                return False
        except Exception as error:
            self._on_defect(parked.operation, error)
        finally:
            self._calling = nested
        self._remove(parked)
        return True

    def _expire(self, parked: Parked) -> None:
        self.expired_total += 1
        nested, self._calling = self._calling, True
        try:
            parked.operation.expire()
        except Exception as error:
            self._on_defect(parked.operation, error)
        finally:
            self._calling = nested

    def _remove(self, parked: Parked) -> None:
        parked.ended = True
        if parked not in self._parked:
            return
        del self._parked[parked]
        if parked._timer is not None:
            self._wheel.cancel(parked._timer)
            parked._timer = None  # breaks a cycle of references: both are freed now, without the collector
        for key in parked.keys:
            watchers = self._watchers.get(key)
            if watchers is not None:
                watchers.pop(parked, None)
                if not watchers:
                    del self._watchers[key]
