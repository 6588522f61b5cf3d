"""The leader's side of FetchSnapshot (KIP-630): parts of a snapshot for other voters and observers."""

from __future__ import annotations

from typing import NamedTuple

from blumfeld.metadata.image.checkpoint import CheckpointId
from blumfeld.spi.runtime import Runtime
from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_kraft.kept_snapshots import KeptSnapshots

BOOTSTRAP = CheckpointId(0, 0)
"""The snapshot that a node was formatted with. The first leader writes its content into the log: nobody fetches it."""
CHUNK_BYTES_MAX = 8 << 20
"""Bytes of one answer, whatever the follower allows. Kafka's followers ask for as many."""


class SnapshotChunk(NamedTuple):
    """The answer to FetchSnapshot for one position."""

    error: ErrorCode
    """NONE, SNAPSHOT_NOT_FOUND or POSITION_OUT_OF_RANGE; without data if it is not NONE."""
    size_bytes: int = 0
    """Size of the whole snapshot."""
    position: int = 0
    data: bytes = b""
    """``UnalignedRecords``: it begins and ends anywhere in a batch."""


class SnapshotSource:
    """Answers from the snapshots beside the log. One that is asked for is held for a minute."""

    def __init__(self, runtime: Runtime, kept: KeptSnapshots) -> None:
        self._runtime = runtime
        self._kept = kept

    async def chunk(self, snapshot: CheckpointId, position: int, bytes_max: int) -> SnapshotChunk:
        """Returns the part of a snapshot that begins at ``position``, read by a worker: up to ``bytes_max``, and at
        least one byte.

        :raises OSError: the file can't be read
        """
        if snapshot == BOOTSTRAP or snapshot not in self._kept.ids:
            return SnapshotChunk(ErrorCode.SNAPSHOT_NOT_FOUND)
        self._kept.hold(snapshot)
        size_bytes = (await self._kept.facts(snapshot)).size_bytes
        if not 0 <= position < size_bytes:
            return SnapshotChunk(ErrorCode.POSITION_OUT_OF_RANGE, size_bytes, position)
        wanted = min(max(bytes_max, 1), CHUNK_BYTES_MAX)
        data = await self._runtime.offload(self._kept.files.read_at, snapshot.name, position, wanted)
        if not data:
            return SnapshotChunk(ErrorCode.SNAPSHOT_NOT_FOUND)
        return SnapshotChunk(ErrorCode.NONE, size_bytes, position, data)
