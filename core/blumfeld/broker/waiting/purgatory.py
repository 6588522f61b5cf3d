"""Parks requests that can't be answered yet, with watch keys and a deadline (docs/design.md, rule 6).

Pure: no clock, no loop. The driver calls :meth:`Purgatory.run_woken` in ``Phase.COMPLETE`` of a turn in which
something was woken, and :meth:`Purgatory.tick` when :meth:`Purgatory.next_deadline_ms` has come.

An operation that has ended is taken from all its keys at once, so there is no garbage to purge.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from blumfeld.broker.waiting.timing_wheel import TimerTask, TimingWheel
from blumfeld.spi.context import ParkedOperation

RUN_KEYS_MAX = 10_000
"""Keys that one :meth:`Purgatory.run_woken` works through; a turn has several, and what is left has the next."""


class Parked:
    """A place in the purgatory: what :meth:`Purgatory.park` gives for an operation that has to wait."""

    __slots__ = ("_timer", "ended", "keys", "operation")

    def __init__(self, operation: ParkedOperation, keys: Sequence[Hashable]) -> None:
        self.operation = operation
        self.keys = keys
        self.ended = False
        """Completed, expired or forgotten: the operation will not be called again."""
        self._timer: TimerTask[Parked] | None = None


class Purgatory:
    """Parked operations by watch key.

    Each operation ends exactly once: ``try_complete`` gave True, or ``expire`` was called, or it was forgotten;
    afterwards it isn't called any more. Operations may wake and park from within these calls; nothing recurses.

    :param start_ms: now, on the clock that deadlines are on
    :param on_woken: called when a key was woken and nothing was waiting to be run: order a run
    :param on_defect: called with an operation that raised, which none may; it ended with that
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
        """Operations waiting."""
        return len(self._parked)

    @property
    def watched_keys(self) -> int:
        """Keys with a watcher."""
        return len(self._watchers)

    def park(
        self, operation: ParkedOperation, keys: Sequence[Hashable], deadline_ms: int, *, tried: bool = False
    ) -> Parked | None:
        """Try to complete it now, unless the caller just ``tried`` in vain; if it can't be, keep it until a key wakes
        it or ``deadline_ms`` has come.

        Called from within an operation it is kept, and first tried by the next run. Gives its place, or
        ``None`` if it has ended already: because it completed, or because the purgatory was drained, when
        everything expires at once.
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
        """Something changed for ``key``: the next run tries its watchers, in the order in which they parked."""
        if key in self._watchers:
            self._order(key)

    def forget(self, parked: Parked) -> None:
        """Nobody waits for it any more (its connection is gone): it ends without being called."""
        if not parked.ended:
            self._remove(parked)

    def run_woken(self, keys_max: int = RUN_KEYS_MAX) -> bool:
        """Try the watchers of what was woken, and of what that wakes, up to ``keys_max`` keys in the order of
        waking. Whether some are left, for which a run was ordered again.

        Called from within a run it does nothing.
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
        """It is ``now_ms``: expire what has waited long enough, by deadline. The number that did."""
        expired = 0
        for task in self._wheel.advance(now_ms):
            parked = task.payload
            if not parked.ended:
                self._remove(parked)
                self._expire(parked)
                expired += 1
        return expired

    def next_deadline_ms(self) -> int | None:
        """When to call :meth:`tick` next; ``None`` when nothing waits. May be before any deadline."""
        return self._wheel.next_deadline_ms()

    def drain(self) -> int:
        """The broker stops: expire everything in the order in which it parked, and from now on what is parked at
        once. The number that expired.
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
        """Have a run try the key's watchers, or one new operation, which is a key of its own."""
        if key not in self._woken:
            self._woken[key] = None
            if len(self._woken) == 1 and not self._running:
                self._on_woken()

    def _tries(self, parked: Parked) -> bool:
        """Whether it has ended, and was taken out."""
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
            parked._timer = None  # they know one another: so both go now, not when garbage is collected
        for key in parked.keys:
            watchers = self._watchers.get(key)
            if watchers is not None:
                watchers.pop(parked, None)
                if not watchers:
                    del self._watchers[key]
