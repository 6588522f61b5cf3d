"""The follower's side of FetchSnapshot (KIP-630): a snapshot arrives by chunks, is checked, and becomes an image."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.metadata.image.checkpoint import CheckpointId
from blumfeld.metadata.image.checkpoint_reader import CheckpointReader
from blumfeld.metadata.image.sections import NO_SECTIONS, SectionKinds
from blumfeld.spi.aux_files import AuxDraft
from blumfeld.spi.runtime import Runtime
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_consensus_kraft.kept_snapshots import KeptSnapshots
from blumfeld_consensus_kraft.snapshot_image import load_snapshot
from blumfeld_consensus_kraft.snapshot_source import SnapshotChunk
from blumfeld_consensus_kraft.stored_state import Loaded

SYNC_BYTES = 8 << 20
"""Bytes after which the file is synced, so that its commit is short."""


class SnapshotDownload:
    """One download at a time. After any error nothing is left of it, and :meth:`aim` begins anew.

    The driver calls :meth:`aim`, asks the leader for :attr:`position` and hands over the answer, until
    :meth:`received` says that all is there. Then it calls :meth:`finish`. An answer that was lost is asked for again.
    """

    def __init__(self, runtime: Runtime, kept: KeptSnapshots) -> None:
        self.snapshot: CheckpointId | None = None
        self.leader_id = -1
        self.position = 0
        """Position in the file of the next byte to ask for."""
        self._runtime = runtime
        self._kept = kept
        self._size_bytes = -1
        self._unsynced_bytes = 0
        self._reader: CheckpointReader | None = None
        self._draft: AuxDraft | None = None
        self._number = 0
        """Counts downloads: what a worker did for an older one is of no use to this one."""

    def aim(self, leader_id: int, snapshot: CheckpointId) -> None:
        """Fetch this snapshot from this leader. Goes on where it stands if that is what it fetches already.

        Another leader has another file: each controller writes its own snapshots, and their bytes can't be mixed.
        """
        if (leader_id, snapshot) != (self.leader_id, self.snapshot):
            self.abort()
            self.leader_id, self.snapshot = leader_id, snapshot
            self._reader = CheckpointReader(snapshot.name, snapshot.epoch)

    def abort(self) -> None:
        """Forget what came so far."""
        draft, self._draft = self._draft, None
        self._number += 1
        self.snapshot, self.leader_id, self.position = None, -1, 0
        self._size_bytes, self._unsynced_bytes, self._reader = -1, 0, None
        if draft is not None:
            self._runtime.offload(draft.abort)  # to remove a large file blocks; nothing waits for it

    async def received(self, chunk: SnapshotChunk) -> bool:
        """Take the leader's answer. Returns whether the snapshot is complete; also false if it was aborted meanwhile.

        :raises BrokerError: the leader's error: it has this snapshot no longer. Ask it for records again
        :raises ValueError: the answer doesn't follow what is there, or the snapshot is damaged
        :raises OSError: it can't be written
        """
        number = self._number
        try:
            return await self._take(chunk, number)
        except (BrokerError, ValueError, OSError):
            if number == self._number:
                self.abort()
                raise
            return False

    async def _take(self, chunk: SnapshotChunk, number: int) -> bool:
        if self.snapshot is None or self._reader is None:
            return False
        if chunk.error != ErrorCode.NONE:
            raise BrokerError(chunk.error)
        self._check(self.snapshot, chunk)
        if self._draft is None:
            draft = await self._runtime.offload(self._kept.files.begin, self.snapshot.name)
            if number != self._number:
                await self._runtime.offload(draft.abort)
                return False
            self._draft = draft
        self._size_bytes = chunk.size_bytes
        self._unsynced_bytes += len(chunk.data)
        sync = self._unsynced_bytes >= SYNC_BYTES
        await self._runtime.offload(_take, self._reader, self._draft, chunk.data, sync)
        if number != self._number:
            return False
        if sync:
            self._unsynced_bytes = 0
        self.position += len(chunk.data)
        return self.position == chunk.size_bytes

    def _check(self, snapshot: CheckpointId, chunk: SnapshotChunk) -> None:
        size_bytes, end = self._size_bytes, chunk.position + len(chunk.data)
        if (
            chunk.position != self.position
            or size_bytes not in (-1, chunk.size_bytes)
            or not chunk.data
            or end > chunk.size_bytes
        ):
            raise ValueError(
                f"{snapshot.name}: node {self.leader_id} sent bytes {chunk.position} to {end} of {chunk.size_bytes}, "
                f"where {self.position} comes next"
                + (f" of {size_bytes}" if size_bytes >= 0 else "")
                + ": the download begins anew"
            )

    async def finish(
        self,
        cluster_id: str,
        section_kinds: SectionKinds = NO_SECTIONS,
        progress: Callable[[], None] = lambda: None,
    ) -> Loaded:
        """All chunks are there: put the file in its place and load its image. Then call
        ``RaftLog.truncate_fully_to``; a crash before that is made good by the next start (``stored_state.load``).

        :param progress: called after each megabyte that was loaded
        :raises ValueError: the snapshot is cut off, or holds a record that this build can't read, or it was aborted
            meanwhile. Its file is removed
        :raises OSError: it can't be written or read
        """
        snapshot, reader, draft = self.snapshot, self._reader, self._draft
        if snapshot is None or reader is None or draft is None:
            raise ValueError("no snapshot was fetched")
        try:
            reader.finish()
            await self._runtime.offload(draft.commit)
            try:
                loaded = await load_snapshot(
                    self._runtime, self._kept.files, snapshot, cluster_id, section_kinds, progress
                )
            except ValueError:
                await self._runtime.offload(self._kept.files.delete, snapshot.name)
                raise
            if self._draft is not draft:
                await self._runtime.offload(self._kept.files.delete, snapshot.name)
                raise ValueError(f"{snapshot.name}: the download was given up")
        finally:
            if self._draft is draft:  # otherwise it was aborted meanwhile
                self.abort()
        self._kept.added(snapshot)
        return loaded


def _take(reader: CheckpointReader, draft: AuxDraft, data: bytes, sync: bool) -> None:
    """In a worker: the CRC of 8 MiB takes some milliseconds."""
    for _ in reader.feed(data):
        pass  # the records are decoded when all of them are there
    draft.append(data)
    if sync:
        draft.flush()
