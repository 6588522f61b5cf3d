"""Deletes remote segments: one, all of a partition, or a partition for ever.

Each step is a record, and each may be done again. A node that dies in the middle leaves records that say what is still
to be deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from blumfeld.log.checkpoints import MalformedFile
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.object_store import StoreError
from blumfeld.spi.partitions import LocalPartitions
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Runtime
from blumfeld.wire.errors import BrokerError
from blumfeld_storage_tiered.cache.segment_bytes import SegmentBytes
from blumfeld_storage_tiered.catalog.catalog import CatalogError, RemoteLogCatalog, UnknownSegmentError
from blumfeld_storage_tiered.catalog.counts import Counts
from blumfeld_storage_tiered.catalog.plans import plan_partition_delete
from blumfeld_storage_tiered.catalog.segment import (
    Change,
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from blumfeld_storage_tiered.catalog.sweep_settings import SweepSettings
from blumfeld_storage_tiered.objects.segments import SegmentObjects
from blumfeld_storage_tiered.objects.topics import TopicDescription, TopicObjects
from blumfeld_storage_tiered.objects.upload import SegmentUpload

FAILURES = (StoreError, BrokerError, CatalogError, MalformedFile, OSError)
"""The errors that end a piece of work for a partition. The next one begins anew."""


class TieringNode(Protocol):
    """The parts of a node that the work for its partitions shares."""

    runtime: Runtime
    events: EventLog
    repeated: RepeatedEvents
    node_id: int
    partitions: LocalPartitions
    uploads: SegmentUpload
    objects: SegmentObjects
    topics: TopicObjects
    source: SegmentBytes
    counts: Counts
    sweep: SweepSettings
    copy_slots: asyncio.Semaphore
    """Bounds the copies that run at once (``remote.log.manager.copier.thread.pool.size``)."""
    expiration_slots: asyncio.Semaphore
    """Bounds the deletions (``remote.log.manager.expiration.thread.pool.size``)."""

    async def ready(self, partition: TopicIdPartition) -> RemoteLogCatalog:
        """Wait until all is known that was committed about a partition when it came here, and return it."""
        ...

    async def refreshed(self, partition: TopicIdPartition) -> RemoteLogCatalog:
        """Wait until all is known that is committed about a partition now, and return it."""
        ...

    def description(self, partition: TopicIdPartition) -> TopicDescription | None:
        """Return the description of a partition's topic, as it is now; ``None`` if the topic is gone."""
        ...

    def append(self, change: Change) -> Completion[None]:
        """Commit a change. It is in the catalog of this node when this completes."""
        ...

    async def pace_copy(self, size_bytes: int) -> None:
        """Wait until so many bytes may be sent (``remote.log.manager.copy.max.bytes.per.second``)."""
        ...

    def interval_ms(self) -> float:
        """Pause between two rounds (``remote.log.manager.task.interval.ms``)."""
        ...

    def backoff_ms(self, before_ms: float) -> float:
        """Pause after a round that failed; ``before_ms`` is the pause after the one before, or 0."""
        ...


def update_of(
    node: TieringNode, segment: RemoteSegment, state: SegmentState, custom_metadata: bytes | None = None
) -> SegmentUpdate:
    """Return the record that gives a segment another state."""
    return SegmentUpdate(
        partition=segment.partition,
        segment_id=segment.segment_id,
        broker_id=node.node_id,
        event_timestamp_ms=node.runtime.now_ms(),
        state=state,
        custom_metadata=custom_metadata,
    )


async def delete_segment(node: TieringNode, segment: RemoteSegment) -> None:
    """Delete a remote segment, in any state. What was done of it before is done again.

    Another node may delete it at the same time, as the leader before or after: then its record is gone, and so are its
    objects.
    """
    counts = node.counts.of(segment.partition.topic)
    counts.deletes += 1
    try:
        with suppress(UnknownSegmentError):
            await node.append(update_of(node, segment, SegmentState.DELETE_STARTED))
            node.source.forget(segment)
            await node.objects.delete(segment)
            await node.append(update_of(node, segment, SegmentState.DELETE_FINISHED))
    except FAILURES:
        counts.delete_errors += 1
        raise


async def delete_segments(node: TieringNode, partition: TopicIdPartition) -> None:
    """Delete all remote segments of a partition whose log goes on without them. Try until it is done."""
    await _until_done(node, partition, _segments_once)


async def delete_partition(node: TieringNode, partition: TopicIdPartition) -> None:
    """Delete a partition for ever: its topic is deleted. Try until it is done, by this node or another one."""
    await _until_done(node, partition, _partition_once)


async def _segments_once(node: TieringNode, partition: TopicIdPartition) -> None:
    for segment in list(await node.refreshed(partition)):
        async with node.expiration_slots:
            await delete_segment(node, segment)
    await _forget_topic(node, partition)


async def _forget_topic(node: TieringNode, partition: TopicIdPartition) -> None:
    """Delete the topic's description. It goes with the first partition, whose leader has written it."""
    if partition.partition == 0:
        await node.topics.delete(partition)


async def _partition_once(node: TieringNode, partition: TopicIdPartition) -> None:
    if partition.partition == 0:
        await node.topics.mark_deleted(partition)  # first: a restore then leaves alone what isn't deleted yet
    catalog = await node.refreshed(partition)
    if catalog.delete_state is None:
        await node.append(_deletion(node, partition, PartitionDeleteState.MARKED))
    while (plan := plan_partition_delete(catalog)).segments or plan.write is not None:
        for segment in plan.segments:
            async with node.expiration_slots:
                await delete_segment(node, segment)
        if plan.write is PartitionDeleteState.FINISHED:
            await _forget_topic(node, partition)  # before the record: nothing looks at the partition after it
        if plan.write is not None:
            await node.append(_deletion(node, partition, plan.write))


async def _until_done(
    node: TieringNode,
    partition: TopicIdPartition,
    work: Callable[[TieringNode, TopicIdPartition], Awaitable[None]],
) -> None:
    """Do the work, and again after a pause as long as it fails: the store or the metadata topic may be away for long,
    and another node may do the same work."""
    name, backoff_ms = f"{partition.topic}-{partition.partition}", 0.0
    while True:
        try:
            await work(node, partition)
            return
        except FAILURES as error:
            node.repeated.say(node.events.warning, "tiering failed", name, partition=name, error=str(error))
        backoff_ms = node.backoff_ms(backoff_ms)
        await sleep(node.runtime, backoff_ms)


async def sleep(runtime: Runtime, delay_ms: float) -> None:
    """Let a time pass."""
    passed: Completion[None] = Completion()
    timer = runtime.call_later(delay_ms, lambda: passed.complete(None))
    try:
        await passed
    finally:
        timer.cancel()


def _deletion(node: TieringNode, partition: TopicIdPartition, state: PartitionDeleteState) -> PartitionDelete:
    return PartitionDelete(
        partition=partition,
        broker_id=node.node_id,
        event_timestamp_ms=node.runtime.now_ms(),
        state=state,
    )
