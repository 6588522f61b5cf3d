"""The finished snapshots beside the metadata log: which there are, which are in use, and which may go."""

from __future__ import annotations

from typing import NamedTuple

from blumfeld.metadata.image.checkpoint import CheckpointId, last_contained_ms
from blumfeld.spi.aux_files import ChunkedAuxFiles, in_chunks
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.storage import AuxFiles

HOLD_MS = 60_000
"""Time that a snapshot stays after a follower asked for a part of it. Without this a slow follower would begin anew
with each snapshot that the leader takes, and might never end.
"""


HEADER_BYTES_MAX = 1 << 16
"""Bytes at the beginning of a snapshot in which its header is looked for. Voters may stand in the same batch."""


class SnapshotFacts(NamedTuple):
    """Facts about a snapshot that its retention depends on."""

    size_bytes: int
    last_contained_ms: int | None
    """Timestamp of the last record that it contains; ``None`` if the header can't be read."""


class KeptSnapshots:
    """Snapshot ids, oldest first. Kept in memory, because each fetch of a follower asks for them.

    :raises OSError: the directory can't be read
    """

    def __init__(self, runtime: Runtime, aux: AuxFiles) -> None:
        self.files = in_chunks(aux)
        self._runtime = runtime
        self._facts: dict[CheckpointId, SnapshotFacts] = {}
        self._held_until_ms: dict[CheckpointId, float] = {}
        checkpoint_ids = (CheckpointId.of(name) for name in aux.names())
        self.ids = sorted(checkpoint_id for checkpoint_id in checkpoint_ids if checkpoint_id is not None)

    @property
    def latest(self) -> CheckpointId | None:
        """The newest snapshot."""
        return self.ids[-1] if self.ids else None

    @property
    def earliest(self) -> CheckpointId | None:
        """The oldest snapshot."""
        return self.ids[0] if self.ids else None

    def added(self, snapshot: CheckpointId) -> None:
        """Take note of a snapshot whose file is on the device."""
        if snapshot not in self.ids:
            self.ids = sorted([*self.ids, snapshot])

    async def facts(self, snapshot: CheckpointId) -> SnapshotFacts:
        """Returns the facts that retention depends on. The file is looked at once, off the loop. Raises ``OSError``."""
        known = self._facts.get(snapshot)
        if known is None:
            known = await self._runtime.offload(_facts_of, self.files, snapshot)
            self._facts[snapshot] = known
        return known

    def hold(self, snapshot: CheckpointId) -> None:
        """Keep a snapshot for ``HOLD_MS`` from now: a follower fetches from it."""
        self._held_until_ms[snapshot] = self._runtime.monotonic_ms() + HOLD_MS

    def is_held(self, snapshot: CheckpointId) -> bool:
        """Whether a follower asked for a part of it within the last ``HOLD_MS``."""
        return self._held_until_ms.get(snapshot, 0.0) > self._runtime.monotonic_ms()

    def delete_before(self, kept: CheckpointId) -> None:
        """Delete all snapshots that are older than ``kept``, off the loop.

        A file that can't be removed is only found again by the next start, so the error goes nowhere.
        """
        gone = [checkpoint_id for checkpoint_id in self.ids if checkpoint_id < kept]
        self.ids = [checkpoint_id for checkpoint_id in self.ids if checkpoint_id >= kept]
        for snapshot in gone:
            self._held_until_ms.pop(snapshot, None)
            self._facts.pop(snapshot, None)
        if gone:
            self._runtime.spawn(self._delete(gone), "delete metadata snapshots")

    async def _delete(self, snapshots: list[CheckpointId]) -> None:
        for snapshot in snapshots:
            try:
                await self._runtime.offload(self.files.delete, snapshot.name)
            except OSError:
                return


def _facts_of(files: ChunkedAuxFiles, snapshot: CheckpointId) -> SnapshotFacts:
    head = files.read_at(snapshot.name, 0, HEADER_BYTES_MAX) or b""
    return SnapshotFacts(files.size(snapshot.name) or 0, last_contained_ms(head))
