"""When to take a snapshot of the image, and what of the log may go then (KIP-630)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.image.checkpoint import CheckpointId, checkpoint_in_steps
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.records import emptied, image_records
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.storage import PartitionLog
from blumfeld.wire.errors import BrokerError
from blumfeld.wire.messages.raft_records import VotersRecord
from blumfeld_consensus_kraft.kept_snapshots import KeptSnapshots
from blumfeld_consensus_kraft.raft_log import RaftLog, drop_below

T = TypeVar("T")
OFFLOAD_BYTES = 1 << 20
"""Size from which a snapshot is written off the loop. To sync a smaller one takes no longer than to sync a batch."""
STEPS_FREED_AT_ONCE = 4
"""Steps in which a dropped image is emptied, in one turn: about 4,096 partitions."""
KEPT = 2
"""Snapshots that stay: the newest, and one before it in case that can't be read."""
_ENDED = object()


class _StoppedError(Exception):
    """The node stops: the snapshot under way is dropped."""


class Snapshots:
    """Takes a snapshot after so many bytes of records, or so much time, and deletes the log below the oldest kept.

    :param copied: makes a copy of the committed image
    :param raft: the log with its snapshots, where other voters fetch from both
    """

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        log: PartitionLog,
        events: EventLog,
        copied: Callable[[], Completion[MetadataImage]],
        raft: RaftLog | None = None,
    ) -> None:
        self.kraft_version = 0
        self.voters: VotersRecord | None = None
        self._runtime = runtime
        self._log = log
        self._events = events
        self._copied = copied
        self._raft = raft
        self._bytes_max = config.int("metadata.log.max.record.bytes.between.snapshots")
        self._interval_ms = config.int("metadata.log.max.snapshot.interval.ms")
        self._retention_bytes = config.int("metadata.max.retention.bytes")
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
            await self._let_go(image)
        except (_StoppedError, BrokerError):
            pass  # the node stops
        finally:
            self._taking = False

    async def _write(self, image: MetadataImage) -> None:
        snapshot = CheckpointId(image.offset + 1, image.epoch)
        steps = checkpoint_in_steps(
            image_records(image),
            epoch=snapshot.epoch,
            timestamp_ms=self._runtime.now_ms(),
            last_contained_ms=self._last_timestamp_ms,
            kraft_version=self.kraft_version,
            voters=self.voters,
        )
        try:
            parts = await self._in_slices(steps)
            if self._stopped:
                return
            data: bytes = await self._runtime.offload(b"".join, parts)
            if len(data) < OFFLOAD_BYTES:
                self._log.aux.write(snapshot.name, data)
            else:
                await self._runtime.offload(self._log.aux.write, snapshot.name, data)
            if not self._stopped:
                self._clean(snapshot)
                self._events.info("metadata snapshot taken", name=snapshot.name, size_bytes=len(data))
        except OSError as error:
            if not self._stopped:
                self._events.warning("no metadata snapshot", error=str(error))

    async def _let_go(self, image: MetadataImage) -> None:
        """Free a copy of the image over several turns."""
        steps = emptied(image)
        while not self._stopped:
            for _ in range(STEPS_FREED_AT_ONCE):
                if next(steps, _ENDED) is _ENDED:
                    return
            await self._turn()

    async def _turn(self) -> None:
        turn: Completion[None] = Completion()
        self._runtime.call_later(0, lambda: turn.complete(None))
        await turn

    async def _in_slices(self, steps: Steps[T]) -> T:
        """The result of the steps, one in each turn. A thread would be no help: it would take the interpreter from the
        loop each time that the loop waits.
        """
        while not self._stopped:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            await self._turn()
        raise _StoppedError

    def _clean(self, taken: CheckpointId) -> None:
        kept = KeptSnapshots(self._runtime, self._log.aux) if self._raft is None else self._raft.snapshots
        kept.added(taken)
        # A follower that has fetched a snapshot goes on in the log behind it, so both must still be there.
        held = [one for one in kept.ids if kept.is_held(one)]
        oldest = min([kept.ids[-KEPT:][0], *held])
        kept.delete_before(oldest)
        if self._log.size_bytes() > self._retention_bytes and oldest.end_offset > self._log.log_start_offset:
            if self._raft is None:
                drop_below(self._log, oldest.end_offset)
            else:
                self._raft.start_at(oldest)
