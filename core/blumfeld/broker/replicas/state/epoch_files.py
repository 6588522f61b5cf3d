"""Writes of ``leader-epoch-checkpoint`` that may wait, one after the other, and none of their syncs on the loop.

After a fail-over a node leads or follows many partitions in a new epoch at once, and each one's first batch changes its
file. A durable write is two syncs of the disk, so workers do them. The loop only renames the file between the two,
unless the epochs have changed meanwhile: then the file is due again. Nothing is lost while a file waits: recovery takes
the epochs of the active segment from its batches, and a roll, a truncation and a clean close write the file at once.
Because the loop renames, no worker puts an older file over theirs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from blumfeld.log.leader_epochs import FILE_NAME
from blumfeld.spi.aux_files import AuxDraft, in_chunks
from blumfeld.spi.runtime import Runtime, pause
from blumfeld.spi.storage import LACKS, AuxFiles

REST = 4.0
"""After a write the device serves others for so many times as long as the write took. The loop makes files, too."""
FULL_MS = 1_000.0
"""Pause after a write that found no room, no descriptors or no memory. Nothing is lost meanwhile."""


class EpochDraft:
    """The file of one log on its way to the disk, with the epochs of the moment when it was made."""

    __slots__ = ("_aux", "_draft", "data", "directory_id")

    def __init__(self, aux: AuxFiles, data: bytes, directory_id: bytes) -> None:
        self._aux = in_chunks(aux)
        self._draft: AuxDraft | None = None
        self.data = data
        self.directory_id = directory_id

    def write(self) -> None:
        """Write and sync the bytes, beside the file. Blocks. Raises OSError."""
        self._draft = self._aux.begin(FILE_NAME)
        try:
            self._draft.append(self.data)
            self._draft.flush()
        except OSError:
            self._draft.abort()
            raise

    def put(self) -> None:
        """Put the file in its place, on the loop. Raises OSError."""
        assert self._draft is not None
        self._draft.put()

    def settle(self) -> None:
        """Make that durable. Blocks. Raises OSError."""
        assert self._draft is not None
        self._draft.settle()

    def abort(self) -> None:
        """Forget the file."""
        assert self._draft is not None
        self._draft.abort()


class Unsaved(Protocol):
    """The state of a replica: :class:`blumfeld.broker.replicas.state.replica_state.ReplicaState`."""

    epoch_unsaved: bool

    def draft_epochs(self) -> EpochDraft:
        """Returns the file with the epochs of now."""
        ...

    def holds(self, draft: EpochDraft) -> bool:
        """Whether the draft still has the epochs of the log, which were not written otherwise since."""
        ...

    def epochs_saved(self) -> None:
        """Take note that the file is durable."""
        ...


class EpochFiles:
    """The files of a node that are due. One that finds the disk full is tried again."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._due: deque[tuple[Unsaved, Callable[[OSError], None]]] = deque()
        self._writes = False

    def save(self, state: Unsaved, failed: Callable[[OSError], None]) -> None:
        """Write a replica's file soon. A file that was written or given up meanwhile (``epoch_unsaved`` is false) is
        left out.

        :param failed: called with the error of the write, if the disk is bad
        """
        self._due.append((state, failed))
        if not self._writes:
            self._writes = True
            self._runtime.call_later(0.0, self._begin)

    def _begin(self) -> None:
        self._runtime.spawn(self._write_due(), "leader epochs")

    async def _write_due(self) -> None:
        try:
            while self._due:
                state, failed = self._due.popleft()
                if not state.epoch_unsaved:
                    continue
                draft = state.draft_epochs()
                began_ms = self._runtime.monotonic_ms()
                try:
                    await self._write(state, draft)
                except OSError as error:
                    if error.errno in LACKS:
                        began_ms -= FULL_MS / REST
                    elif state.holds(draft):  # else the log has moved to another directory, or has gone
                        failed(error)
                        continue
                if state.epoch_unsaved:
                    self._due.append((state, failed))
                if self._due:
                    await pause(self._runtime, REST * (self._runtime.monotonic_ms() - began_ms))
        finally:
            self._writes = False

    async def _write(self, state: Unsaved, draft: EpochDraft) -> None:
        await self._runtime.offload(draft.write)
        if not state.holds(draft):
            await self._runtime.offload(draft.abort)
            return
        draft.put()
        await self._runtime.offload(draft.settle)
        if state.holds(draft):
            state.epochs_saved()
