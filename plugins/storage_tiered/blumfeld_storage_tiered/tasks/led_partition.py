"""The work for one tiered partition that this node leads: copy what is sealed and stable, delete what has expired.

One round does both, every ``remote.log.manager.task.interval.ms``. Pure functions plan it (``catalog/``); here are the
requests, in an order of which a crash between any two leaves nothing wrong:

* copy: record COPY_STARTED, upload, verify, record COPY_FINISHED. Only then may the local segment go.
* delete: move the log start, record DELETE_STARTED, delete the objects, record DELETE_FINISHED.

The leader epoch fences each of them: before it, this node must still lead in the epoch that the round began in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.log.producers.snapshot import encode_snapshot
from blumfeld.log.segments.file_names import Suffix, segment_name
from blumfeld.log.segments.rules import RetentionLimits
from blumfeld.spi.completion import Completion
from blumfeld.spi.object_store import StoreError
from blumfeld.spi.partitions import PartitionEnds
from blumfeld.spi.runtime import Task
from blumfeld.spi.storage import SegmentInfo, TopicPartition
from blumfeld.wire.errors import BrokerError
from blumfeld_storage_tiered.catalog.catalog import RemoteLogCatalog
from blumfeld_storage_tiered.catalog.plans import (
    DoomedSegment,
    epochs_between,
    log_start_of_leader,
    plan_copies,
    plan_expiration,
    plan_sweep,
)
from blumfeld_storage_tiered.catalog.segment import RemoteSegment, SegmentState, TopicIdPartition
from blumfeld_storage_tiered.logs.tiered_log import TieredLog
from blumfeld_storage_tiered.objects.names import SegmentFile, partition_prefix
from blumfeld_storage_tiered.objects.topics import TopicDescription
from blumfeld_storage_tiered.tasks.deletion import FAILURES, TieringNode, delete_segment, update_of


class NotLeadingError(Exception):
    """This node doesn't lead the partition in this epoch any more: the round ends, and none follows."""


class LedPartition:
    """One partition, from the moment at which this node leads it to the moment at which it doesn't.

    :param leader_epoch: the epoch in which this node leads
    """

    def __init__(
        self, node: TieringNode, partition: TopicIdPartition, log: TieredLog, leader_epoch: int
    ) -> None:
        self._node = node
        self._partition = partition
        self._name = TopicPartition(partition.topic, partition.partition)
        self._log = log
        self._leader_epoch = leader_epoch
        self._task: Task | None = None
        self._wake: Completion[None] = Completion.of(None)
        self._backoff_ms = 0.0
        self._is_first = True
        self._stored_description: TopicDescription | None = None
        """The description of the topic that the store has; ``None`` if that isn't known."""
        self._busy: set[bytes] = set()
        """Ids of segments that are being deleted beside the rounds."""
        self._sweep_at_ms = (
            node.runtime.monotonic_ms() + node.sweep.interval_ms * node.runtime.random.random()
        )
        self.lag_segments = 0
        self.lag_bytes = 0
        """Sealed and stable segments that are not copied yet, as of the last plan."""
        self.delete_lag_segments = 0
        self.delete_lag_bytes = 0
        """Remote segments that have expired and aren't deleted yet, as of the last plan."""
        self.remote_segments = 0
        """Remote segments that the metadata names, in any state."""
        self.remote_bytes = 0
        """Bytes of those that serve this log."""

    def start(self) -> None:
        """Begin with the rounds. The first one is at once."""
        self._task = self._node.runtime.spawn(self._run(), f"tiering {self._name}")

    def stop(self) -> None:
        """End. An upload that runs is given up; nobody sees it."""
        if self._task is not None:
            self._task.cancel()

    def wake(self) -> None:
        """Begin the next round now."""
        if not self._wake.done:
            self._wake.complete(None)

    async def _run(self) -> None:
        node, name = self._node, str(self._name)
        while True:
            try:
                await self._round()
                self._backoff_ms = 0
            except NotLeadingError:
                return
            except FAILURES as error:
                node.repeated.say(
                    node.events.warning, "tiering failed", name, partition=name, error=str(error)
                )
                self._backoff_ms = node.backoff_ms(self._backoff_ms)
            await self._sleep(self._backoff_ms or node.interval_ms())

    async def _sleep(self, delay_ms: float) -> None:
        self._wake = Completion()
        timer = self._node.runtime.call_later(delay_ms, self.wake)
        try:
            await self._wake
        finally:
            timer.cancel()

    async def _round(self) -> None:
        if self._is_first:
            # Another node may have copied a moment ago, as the leader before.
            catalog = await self._node.refreshed(self._partition)
            self._take_over_log_start(catalog)
            self._is_first = False
        else:
            catalog = await self._node.ready(self._partition)
        await self._describe_topic()
        if not self._log.config.remote_log_copy_disable:
            await self._copy_all(catalog)
        else:
            self.lag_segments = self.lag_bytes = 0
        await self._expire(catalog)
        if self._node.runtime.monotonic_ms() >= self._sweep_at_ms:
            self._stored_description = None  # a leader before may have written it after this one
            self._sweep_at_ms = self._node.runtime.monotonic_ms() + self._node.sweep.interval_ms
            await self._sweep()

    def _ends(self) -> PartitionEnds:
        """Return the partition's ends.

        :raises NotLeadingError: this node leads no more, or in another epoch
        """
        try:
            ends = self._node.partitions.ends(self._name)
        except BrokerError as error:
            raise NotLeadingError from error
        if ends.leader_epoch != self._leader_epoch:
            raise NotLeadingError
        return ends

    def _epochs(self) -> LeaderEpochCache:
        return self._log.remote.epochs()

    def _take_over_log_start(self, catalog: RemoteLogCatalog) -> None:
        """Begin the log where the store does: the leader before may have deleted segments, and died before this node
        heard how far it had moved the log start."""
        log = self._log
        offset = log_start_of_leader(
            catalog,
            self._epochs().entries,
            log_start_offset=log.log_start_offset,
            local_start_offset=log.local_log_start_offset,
        )
        if offset > log.log_start_offset:
            self._ends()
            self._node.partitions.advance_log_start(self._name, offset, self._leader_epoch)

    async def _describe_topic(self) -> None:
        """Keep the topic's description in the store as the topic is. The leader of its first partition does it.

        A failure ends no round, because the copies are worth more: the next round tries again.
        """
        node = self._node
        description = node.description(self._partition) if self._partition.partition == 0 else None
        if description is None or description == self._stored_description:
            return
        self._ends()
        try:
            await node.topics.write(description)
        except StoreError as error:
            about = self._partition.topic
            node.repeated.say(
                node.events.warning,
                "topic not described",
                (about, "description"),
                topic=about,
                error=str(error),
            )
        else:
            self._stored_description = description

    # Copies

    async def _copy_all(self, catalog: RemoteLogCatalog) -> None:
        copied_to = -1
        while segments := self._plan(catalog):
            if segments[0].base_offset <= copied_to:
                raise OSError(f"the copy of the segment at {segments[0].base_offset} serves nothing")
            copied_to = segments[0].base_offset
            self.lag_segments = len(segments)
            self.lag_bytes = sum(segment.size_bytes for segment in segments)
            async with self._node.copy_slots:
                await self._copy(segments[0])
        self.lag_segments = self.lag_bytes = 0

    def _plan(self, catalog: RemoteLogCatalog) -> Sequence[SegmentInfo]:
        ends, epochs = self._ends(), self._epochs()
        log = self._log
        # A record is found by its leader epoch. What lies before the first one that is known stays on this disk.
        first = epochs.entries[0].start_offset if epochs.entries else ends.log_end_offset
        return plan_copies(
            [s for s in log.segments() if first <= max(s.base_offset, log.log_start_offset)],
            copied_end_offset=self._copied_end_offset(catalog, epochs),
            last_stable_offset=ends.last_stable_offset,
            log_start_offset=log.log_start_offset,
        )

    def _copied_end_offset(self, catalog: RemoteLogCatalog, epochs: LeaderEpochCache) -> int:
        start = max(self._log.local_log_start_offset, self._log.log_start_offset)
        return catalog.served_end_offset(start, epochs.entries)

    async def _copy(self, info: SegmentInfo) -> None:
        node = self._node
        segment = self._described(info)
        sources = self._sources(info, segment)
        self._ends()
        counts = node.counts.of(self._partition.topic)
        counts.copies += 1
        try:
            await node.append(segment)
            custom_metadata = await self._upload(segment, sources)
            await node.append(update_of(node, segment, SegmentState.COPY_FINISHED, custom_metadata))
        except FAILURES:
            counts.copy_errors += 1
            raise
        counts.copied_bytes += segment.size_bytes
        node.events.info("segment copied", partition=str(self._name), offset=info.base_offset)

    async def _upload(self, segment: RemoteSegment, sources: Mapping[SegmentFile, str | bytes]) -> bytes:
        try:
            custom_metadata = await self._node.uploads.upload(segment, sources, self._node.pace_copy)
            self._ends()
        except FAILURES:
            self._give_up(segment)
            raise
        return custom_metadata

    def _described(self, info: SegmentInfo) -> RemoteSegment:
        name = segment_name(info.base_offset, Suffix.TRANSACTION_INDEX)
        return RemoteSegment(
            partition=self._partition,
            segment_id=self._node.runtime.new_uuid(),
            start_offset=info.base_offset,
            end_offset=info.next_offset - 1,
            broker_id=self._node.node_id,
            max_timestamp_ms=info.max_timestamp_ms,
            event_timestamp_ms=self._node.runtime.now_ms(),
            leader_epochs=epochs_between(self._epochs().entries, info.base_offset, info.next_offset),
            size_bytes=info.size_bytes,
            txn_index_empty=not self._log.aux.read(name),
        )

    def _sources(self, info: SegmentInfo, segment: RemoteSegment) -> dict[SegmentFile, str | bytes]:
        """Return the segment's files. The small ones are read now: the broker may change or remove them."""
        aux = self._log.aux
        sources: dict[SegmentFile, str | bytes] = {
            SegmentFile(path.rpartition(".")[2]): path for path in info.files
        }
        epochs = self._epochs()
        epochs.truncate_from_end(info.next_offset)
        sources[SegmentFile.LEADER_EPOCHS] = epochs.encode()
        snapshot = aux.read(segment_name(info.next_offset, Suffix.PRODUCER_SNAPSHOT))
        sources[SegmentFile.PRODUCER_SNAPSHOT] = encode_snapshot([]) if snapshot is None else snapshot
        if not segment.txn_index_empty:
            index = aux.read(segment_name(info.base_offset, Suffix.TRANSACTION_INDEX))
            sources[SegmentFile.TRANSACTION_INDEX] = index or b""
        return sources

    def _give_up(self, segment: RemoteSegment) -> None:
        """Delete what was uploaded of a copy that failed. If that fails too, the sweep finds it."""
        self._node.runtime.spawn(self._try_to_delete(segment), f"give up a copy of {self._name}")

    async def _try_to_delete(self, segment: RemoteSegment) -> None:
        self._busy.add(segment.segment_id)
        try:
            await delete_segment(self._node, segment)
        except FAILURES:
            return
        finally:
            self._busy.discard(segment.segment_id)

    # Expiration

    async def _expire(self, catalog: RemoteLogCatalog) -> None:
        node, log, config = self._node, self._log, self._log.config
        ends, epochs = self._ends(), self._epochs()
        limits = RetentionLimits()
        if config.deletes:
            limits = RetentionLimits(retention_ms=config.retention_ms, retention_bytes=config.retention_bytes)
        copied_end = self._copied_end_offset(catalog, epochs)
        plan = plan_expiration(
            catalog,
            epochs.entries,
            limits,
            log_start_offset=log.log_start_offset,
            high_watermark=ends.high_watermark,
            local_only_bytes=sum(s.size_bytes for s in log.segments() if s.next_offset > copied_end),
            now_ms=node.runtime.now_ms(),
            grace_ms=node.sweep.copy_grace_ms,
            busy=self._busy,
        )
        if plan.log_start_offset > log.log_start_offset:
            node.partitions.advance_log_start(self._name, plan.log_start_offset, self._leader_epoch)
        self._measure(catalog, epochs, plan.segments)
        for at, doomed in enumerate(plan.segments, 1):
            async with node.expiration_slots:
                self._ends()
                await delete_segment(node, doomed.segment)
                self._measure(catalog, epochs, plan.segments[at:])
                node.events.info(
                    "remote segment deleted",
                    partition=str(self._name),
                    offset=doomed.segment.start_offset,
                    reason=doomed.reason,
                )

    def _measure(
        self, catalog: RemoteLogCatalog, epochs: LeaderEpochCache, doomed: Sequence[DoomedSegment]
    ) -> None:
        self.delete_lag_segments = len(doomed)
        self.delete_lag_bytes = sum(expired.segment.size_bytes for expired in doomed)
        self.remote_segments = len(catalog)
        self.remote_bytes = catalog.size_bytes(epochs.entries)

    # Orphans

    async def _sweep(self) -> None:
        """Delete the objects of this partition that no record speaks of: a node died between a put and a record, or was
        fenced while it uploaded.

        The listing comes first. A copy writes its record before its first object, so the record of each object that is
        listed is known once the metadata is read to its end.
        """
        node = self._node
        listed = [s async for s in node.objects.list_segments(partition_prefix(self._partition))]
        catalog = await node.refreshed(self._partition)
        objects = [(info, s.name.segment_id) for s in listed for info in s.objects.values()]
        plan = plan_sweep(objects, catalog, now_ms=node.runtime.now_ms(), grace_ms=node.sweep.orphan_grace_ms)
        if plan.unexplained:
            node.repeated.say(
                node.events.error,
                "objects are older than all that the metadata topic says of their partition: they are left alone",
                (self._name, "unexplained"),
                partition=str(self._name),
                objects=len(plan.unexplained),
                first=plan.unexplained[0].key,
            )
        orphans = {info.key for info in plan.orphans}
        for segment in listed:
            if all(info.key in orphans for info in segment.objects.values()):
                self._ends()
                await node.objects.delete(segment.name)
                node.events.warning(
                    "orphan deleted", partition=str(self._name), offset=segment.name.start_offset
                )
