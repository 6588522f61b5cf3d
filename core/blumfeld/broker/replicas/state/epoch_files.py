"""Writes of ``leader-epoch-checkpoint`` that may wait, spread over turns.

After a fail-over a node leads or follows many partitions in a new epoch at once, and each one's first batch changes its
file. A write of the file is two syncs of the disk on the loop's thread, so a thousand of them would hold the loop for
seconds. Nothing is lost while a file waits: recovery takes the epochs of the active segment from its batches, and a
roll, a truncation and a clean close write the file at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from blumfeld.spi.runtime import Runtime
from blumfeld.spi.storage import LACKS

SLICE_MS = 2.0
"""Time for these writes in one turn. A write is not interrupted, so a slice may take a write longer."""
SLICE_WRITES_MAX = 8
"""Writes in one turn at most: in a simulation the clock stands still."""
REST_MS_MIN = 1.0
REST = 4.0
"""After a slice the loop serves others for so many times as long as the slice took."""
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
        self._rests = False

    def save(self, state: Unsaved, failed: Callable[[OSError], None]) -> None:
        """Write a replica's file, now or in a later turn. A file that was written or given up meanwhile
        (``epoch_unsaved`` is false) is left out.

        :param failed: called with the error of a later write
        :raises OSError: it was written now, and the disk is bad
        """
        if self._rests:
            self._due.append((state, failed))
            return
        began_ms = self._runtime.monotonic_ms()
        try:
            self._write(state, failed)
        finally:
            self._rest(REST * (self._runtime.monotonic_ms() - began_ms))

    def _write(self, state: Unsaved, failed: Callable[[OSError], None]) -> None:
        try:
            state.save_epochs()
        except OSError as error:
            if error.errno not in LACKS:
                raise
            self._due.append((state, failed))
            self._rest(FULL_MS)

    def _rest(self, pause_ms: float) -> None:
        if not self._rests:
            self._rests = True
            self._runtime.call_later(max(pause_ms, REST_MS_MIN), self._slice)

    def _slice(self) -> None:
        self._rests = False
        began_ms = self._runtime.monotonic_ms()
        took_ms = 0.0
        written = 0
        while self._due and written < SLICE_WRITES_MAX and took_ms < SLICE_MS and not self._rests:
            state, failed = self._due.popleft()
            if not state.epoch_unsaved:
                continue
            written += 1
            try:
                self._write(state, failed)
            except OSError as error:
                failed(error)
            took_ms = self._runtime.monotonic_ms() - began_ms
        if written:
            self._rest(REST * took_ms)
