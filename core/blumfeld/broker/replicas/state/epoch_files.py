"""Writes of ``leader-epoch-checkpoint`` that may wait, spread over turns.

After a fail-over a node leads or follows many partitions in a new epoch at once, and each one's first batch changes its
file. A write of the file is two syncs of the disk on the loop's thread, so a thousand of them would hold the loop for
seconds. Nothing is lost while a file waits: recovery takes the epochs of the active segment from its batches, and a
roll, a truncation and a clean close write the file at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.scheduler import Lane, Work
from blumfeld.spi.storage import LACKS

REST_MS_MIN = 1.0
REST = 4.0
"""After a write the loop serves others for so many times as long as the write took."""
FULL_MS = 1_000.0
"""Pause after a write that found no room, no descriptors or no memory. Nothing is lost meanwhile."""


class Unsaved(Protocol):
    """The state of a replica: :class:`blumfeld.broker.replicas.state.replica_state.ReplicaState`."""

    epoch_unsaved: bool

    def save_epochs(self) -> None:
        """Write the file. Raises OSError."""
        ...


class EpochFiles:
    """The files of a node that are due. A file that is due alone is written at once. One that finds the disk full is
    tried again."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._due: deque[tuple[Unsaved, Callable[[OSError], None]]] = deque()
        self._work: Work | None = None
        """Rests, and then writes what is due."""

    def save(self, state: Unsaved, failed: Callable[[OSError], None]) -> None:
        """Write a replica's file, now or in a later turn. A file that was written or given up meanwhile
        (``epoch_unsaved`` is false) is left out.

        :param failed: called with the error of a later write
        :raises OSError: it was written now, and the disk is bad
        """
        if self._work is not None and not self._work.done:
            self._due.append((state, failed))
            return
        began_ms = self._runtime.monotonic_ms()
        is_full = False
        try:
            is_full = self._write(state, failed)
        finally:
            steps = self._write_due(self._rest(began_ms, is_full))
            self._work = self._runtime.scheduler.run(Lane.UPKEEP, steps)

    def _write(self, state: Unsaved, failed: Callable[[OSError], None]) -> bool:
        """Write a file. Returns whether there was no room for it: then it is due again."""
        try:
            state.save_epochs()
        except OSError as error:
            if error.errno not in LACKS:
                raise
            self._due.append((state, failed))
            return True
        return False

    def _rest(self, began_ms: float, is_full: bool) -> Completion[None]:
        """Returns what is done when the next file may be written, after a write that began then."""
        pause_ms = FULL_MS if is_full else REST * (self._runtime.monotonic_ms() - began_ms)
        rested: Completion[None] = Completion()
        self._runtime.call_later(max(pause_ms, REST_MS_MIN), partial(rested.complete, None))
        return rested

    def _write_due(self, rested: Completion[None]) -> Steps[None]:
        yield rested
        while self._due:
            state, failed = self._due.popleft()
            if not state.epoch_unsaved:
                continue
            began_ms = self._runtime.monotonic_ms()
            is_full = False
            try:
                is_full = self._write(state, failed)
            except OSError as error:
                failed(error)
            yield self._rest(began_ms, is_full)
