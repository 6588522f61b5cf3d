"""Decides when to take a snapshot of the image, and up to where the log may go then (KIP-630)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.image.checkpoint import CheckpointId, checkpoint_parts
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.records import emptied, image_records
from blumfeld.spi.aux_files import AuxDraft
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.scheduler import Lane
from blumfeld.wire.errors import BrokerError
from blumfeld.wire.messages.raft_records import VotersRecord
from blumfeld_consensus_kraft.kept_snapshots import KeptSnapshots, SnapshotFacts
from blumfeld_consensus_kraft.raft_log import RaftLog

WRITE_BYTES = 1 << 20
"""Bytes of a snapshot that are written together."""
SYNC_BYTES = 8 << 20
"""Bytes after which a snapshot that is being written is synced: the log's own syncs never wait for all of it."""
KEPT = 2
"""Snapshots that stay: the newest, and one before it in case that can't be read."""


class _StoppedError(Exception):
    """The node stops: the snapshot under way is dropped."""


class Snapshots:
    """Takes a snapshot after so many bytes of records, or so much time, and deletes the log below the oldest kept.

    :param copied: makes a copy of the committed image
    :param voters_at: ``kraft.version`` and the voters at an end of the log
    """

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        raft: RaftLog,
        events: EventLog,
        copied: Callable[[], Completion[MetadataImage]],
        *,
        voters_at: Callable[[int], tuple[int, VotersRecord | None]] = lambda _: (0, None),
    ) -> None:
        self._runtime = runtime
        self._raft = raft
        self._events = events
        self._copied = copied
        self._voters_at = voters_at
        self._bytes_max = config.int("metadata.log.max.record.bytes.between.snapshots")
        self._interval_ms = config.int("metadata.log.max.snapshot.interval.ms")
        self._retention_bytes = config.int("metadata.max.retention.bytes")
        self._retention_ms = config.int("metadata.max.retention.ms")
        self._bytes = 0
        self._last_timestamp_ms = 0
        self._timer: Timer | None = None
        self._taking = False
        self._stopped = False

    def committed(self, size_bytes: int, timestamp_ms: int) -> None:
        """Another batch is in the image."""
        self._bytes += size_bytes
        self._last_timestamp_ms = timestamp_ms
        if self._bytes >= self._bytes_max:
            self.take()
        elif self._timer is None and self._interval_ms > 0 and not self._stopped:
            self._timer = self._runtime.call_later(self._interval_ms, self._is_time)

    def stop(self) -> None:
        """Take none any more; one under way is dropped."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _is_time(self) -> None:
        self._timer = None
        self.take()

    def take(self) -> None:
        """Take one now, in the background, unless one is under way."""
        if self._taking or self._stopped or self._bytes == 0:
            return
        self._taking = True
        self._bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._runtime.spawn(self._take(), "metadata snapshot")

    async def _take(self) -> None:
        try:
            image = await self._copied()
            await self._write(image)
            await self._runtime.scheduler.completed(Lane.UPKEEP, self._let_go(image))
        except (_StoppedError, BrokerError):
            pass  # the node stops
        finally:
            self._taking = False

    async def _write(self, image: MetadataImage) -> None:
        snapshot = CheckpointId(image.offset + 1, image.epoch)
        kraft_version, voters = self._voters_at(snapshot.end_offset)
        parts = checkpoint_parts(
            image_records(image),
            epoch=snapshot.epoch,
            timestamp_ms=self._runtime.now_ms(),
            last_contained_ms=self._last_timestamp_ms,
            kraft_version=kraft_version,
            voters=voters,
        )
        kept = self._raft.snapshots
        draft: AuxDraft | None = None
        try:
            draft = await self._runtime.offload(kept.files.begin, snapshot.name)
            await self._fill(draft, parts)
            await self._runtime.offload(draft.commit)
            if not self._stopped:
                kept.added(snapshot)
                self._events.info("metadata snapshot taken", name=snapshot.name, size_bytes=draft.size_bytes)
                await self._clean(kept)
        except (OSError, BrokerError, _StoppedError) as error:
            if draft is not None:
                await self._runtime.offload(draft.abort)
            if not isinstance(error, OSError):
                raise
            if not self._stopped:
                self._events.warning("no metadata snapshot", error=str(error))
        except BaseException:
            if draft is not None:
                draft.abort()  # a task that is cancelled or closed can't wait for a worker
            raise

    async def _fill(self, draft: AuxDraft, parts: Iterator[bytes | bytearray | None]) -> None:
        """Make the snapshot part by part, and have a worker write them. To make them in a thread would be no help: it
        would take the interpreter from the loop each time that the loop waits.
        """
        unsynced = 0
        while made := await self._runtime.scheduler.completed(Lane.UPKEEP, self._some_of(parts)):
            unsynced += sum(map(len, made))
            sync = unsynced >= SYNC_BYTES
            await self._runtime.offload(_append, draft, made, sync)
            unsynced = 0 if sync else unsynced

    def _some_of(self, parts: Iterator[bytes | bytearray | None]) -> Steps[list[bytes | bytearray]]:
        """Returns the next parts that are written together; none at the end."""
        made: list[bytes | bytearray] = []
        size = 0
        for part in parts:
            if self._stopped:
                raise _StoppedError
            if part is None:
                yield None
                continue
            made.append(part)
            size += len(part)
            if size >= WRITE_BYTES:
                break
        return made

    def _let_go(self, image: MetadataImage) -> Steps[None]:
        """Free a copy of the image."""
        for _ in emptied(image):
            if self._stopped:
                return
            yield None

    async def _clean(self, kept: KeptSnapshots) -> None:
        """Delete snapshots, and the log below the oldest one, until the rest is small enough and young enough."""
        while not self._stopped:
            snapshot = self._start_of_the_rest(
                kept, [await kept.facts(snapshot_id) for snapshot_id in kept.ids]
            )
            if snapshot is None:
                return
            self._raft.start_at(snapshot)

    def _start_of_the_rest(self, kept: KeptSnapshots, facts: list[SnapshotFacts]) -> CheckpointId | None:
        """The snapshot before which all may go; ``None`` if nothing need go, or nothing can (Kafka's
        ``KafkaRaftLog.maybeClean``).
        """
        if len(kept.ids) < KEPT:
            return None
        size_bytes = self._raft.log.size_bytes() + sum(snapshot_facts.size_bytes for snapshot_facts in facts)
        too_large = 0 <= self._retention_bytes < size_bytes
        oldest_ms = facts[0].last_contained_ms
        age_ms = -1 if oldest_ms is None else self._runtime.now_ms() - oldest_ms
        if not too_large and not 0 <= self._retention_ms < age_ms:
            return None
        if kept.ids[0].end_offset > self._raft.log.log_start_offset:
            candidate = kept.ids[0]
        # A follower that has fetched a snapshot goes on in the log behind it, so both must still be there.
        elif len(kept.ids) > KEPT and not kept.is_held(kept.ids[0]):
            candidate = kept.ids[1]
        else:
            return None
        # A snapshot of the leader's may be there before the log begins behind it.
        return candidate if candidate.end_offset <= self._raft.log.written_end_offset else None


def _append(draft: AuxDraft, parts: list[bytes | bytearray], sync: bool) -> None:
    draft.append(b"".join(parts))
    if sync:
        draft.flush()
