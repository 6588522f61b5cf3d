"""The content of a store, as far as a restore needs it. Reads, and writes nothing.

It costs a listing and one request for each segment: its manifest. The newest segment of each partition costs two more:
its leader epochs and its producers. The listing shows whether a segment's files are there and have their sizes. Their
content isn't read (``blumfeld tiered verify`` reads it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from blumfeld.log.checkpoints import MalformedFile
from blumfeld.log.leader_epochs import FILE_NAME, LeaderEpochCache
from blumfeld.log.producers.snapshot import CorruptSnapshot, decode_snapshot
from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld.spi.object_store import ObjectNotFoundError, ObjectStore
from blumfeld.spi.runtime import Runtime
from blumfeld_storage_tiered.catalog.plans import epochs_between
from blumfeld_storage_tiered.catalog.segment import RemoteSegment, SegmentState, TopicIdPartition
from blumfeld_storage_tiered.objects.manifest import SegmentCorruptError, SegmentManifest
from blumfeld_storage_tiered.objects.names import MANIFEST, SegmentFile, SegmentName, object_key
from blumfeld_storage_tiered.objects.segments import SegmentObjects, StoredSegment
from blumfeld_storage_tiered.objects.topics import TopicDescription, TopicObjects
from blumfeld_storage_tiered.restore.history import newest_segment

T = TypeVar("T")
R = TypeVar("R")

REQUESTS_AT_ONCE = 32
NO_BROKER = -1


class Damage(msgspec.Struct, frozen=True, order=True):
    """An object that isn't what was written, so that something can't be restored."""

    key: str
    found: str
    written: str


class FoundPartition(msgspec.Struct):
    """The segments of one partition."""

    partition: TopicIdPartition
    segments: list[RemoteSegment] = []
    """The whole segments in the state COPY_FINISHED, sorted by their offsets."""
    unfinished: list[SegmentName] = []
    """Copies that were under way, and deletions: they have no manifest."""
    epochs: tuple[EpochEntry, ...] = ()
    """The leader epochs that were copied with the newest segment."""
    producers: bytes | None = None
    """The producers at its end, as a snapshot file."""


class FoundTopic(msgspec.Struct):
    """A topic of which the store has something."""

    topic: str
    topic_id: bytes
    description: TopicDescription | None = None
    partitions: dict[int, FoundPartition] = {}
    modified_ms: int = 0
    """When the last of its objects was written, by the store's clock."""


class StoreContent(msgspec.Struct):
    """The whole store."""

    cluster_id: str
    topics: list[FoundTopic] = []
    """By name; those of one name by the time of their last object."""
    damages: list[Damage] = []
    modified_ms: int = 0
    """When the last object was written, by the store's clock."""


async def store_content(
    runtime: Runtime, store: ObjectStore, cluster_id: str, only: Sequence[str] = ()
) -> StoreContent:
    """Return what the store has.

    :param only: the names of the topics to look at; none: all
    :raises StoreError: a request failed, so that nothing can be said
    """
    return await _Reading(runtime, store, cluster_id, only).content()


class _Reading:
    """One reading of a store."""

    def __init__(self, runtime: Runtime, store: ObjectStore, cluster_id: str, only: Sequence[str]) -> None:
        self._objects = SegmentObjects(runtime, store)
        self._descriptions = TopicObjects(store)
        self._only = only
        self._topics: dict[bytes, FoundTopic] = {}
        self._damages: list[Damage] = []
        self._content = StoreContent(cluster_id)

    async def content(self) -> StoreContent:
        """Read it all."""
        content = self._content
        described = [topic async for topic in self._descriptions.list() if self._wants(topic.topic)]
        for stored in described:
            self._seen(stored.topic, stored.topic_id, stored.info.modified_ms)
        listed = [
            each async for each in self._objects.list_segments() if self._wants(each.name.partition.topic)
        ]
        for segment in listed:
            self._add(segment)
        await _each([(topic.topic, topic.topic_id) for topic in described], self._describe)
        await _each([segment for segment in listed if segment.is_whole], self._take)
        found = [partition for topic in self._topics.values() for partition in topic.partitions.values()]
        for partition in found:
            partition.segments.sort(key=lambda each: (each.start_offset, each.segment_id))
        await _each(found, self._take_state)
        content.topics = sorted(self._topics.values(), key=lambda topic: (topic.topic, topic.modified_ms))
        content.damages = sorted(self._damages)
        return content

    def _wants(self, topic: str) -> bool:
        return not self._only or topic in self._only

    def _seen(self, name: str, topic_id: bytes, modified_ms: int) -> FoundTopic:
        topic = self._topics.get(topic_id)
        if topic is None:
            topic = self._topics[topic_id] = FoundTopic(name, topic_id)
        topic.modified_ms = max(topic.modified_ms, modified_ms)
        self._content.modified_ms = max(self._content.modified_ms, modified_ms)
        return topic

    def _add(self, segment: StoredSegment) -> None:
        partition = segment.name.partition
        topic = self._seen(partition.topic, partition.topic_id, segment.modified_ms)
        found = topic.partitions.setdefault(partition.partition, FoundPartition(partition))
        if not segment.is_whole:
            found.unfinished.append(segment.name)

    def _partition(self, at: TopicIdPartition) -> FoundPartition:
        return self._topics[at.topic_id].partitions[at.partition]

    async def _describe(self, topic: tuple[str, bytes]) -> None:
        try:
            self._topics[topic[1]].description = await self._descriptions.read(*topic)
        except SegmentCorruptError as error:
            self._damages.append(Damage(error.key, error.found, error.written))

    async def _take(self, stored: StoredSegment) -> None:
        """Read the manifest of a segment, and hold the listing against it."""
        try:
            manifest, custom_metadata = await self._objects.manifest_of(stored.name)
            _check_listing(stored, manifest)
        except SegmentCorruptError as error:
            self._damages.append(Damage(error.key, error.found, error.written))
            return
        segment = manifest.segment(NO_BROKER, 0, custom_metadata)
        self._partition(stored.name.partition).segments.append(
            replace(segment, state=SegmentState.COPY_FINISHED)
        )

    async def _take_state(self, found: FoundPartition) -> None:
        """Read leader epochs and producers of the newest segment. One that lacks them is damaged: the next one counts
        then."""
        while found.segments:
            newest = newest_segment(found.segments)
            try:
                found.epochs = await self._epochs(newest)
                found.producers = await self._producers(newest)
                return
            except SegmentCorruptError as error:
                self._damages.append(Damage(error.key, error.found, error.written))
            except ObjectNotFoundError:
                self._damages.append(
                    Damage(object_key(newest, MANIFEST), "a segment that is gone", "a segment")
                )
            found.segments.remove(newest)

    async def _epochs(self, segment: RemoteSegment) -> tuple[EpochEntry, ...]:
        data = await self._objects.read_file(segment, SegmentFile.LEADER_EPOCHS)
        key = object_key(segment, SegmentFile.LEADER_EPOCHS.value)
        try:
            entries = LeaderEpochCache.decode(data or b"", FILE_NAME).entries
        except MalformedFile as error:
            raise SegmentCorruptError(key, str(error), "leader epochs") from None
        own = epochs_between(entries, segment.start_offset, segment.end_offset + 1)
        if own != segment.leader_epochs:
            raise SegmentCorruptError(
                key, f"the epochs {own}", f"those of the manifest, {segment.leader_epochs}"
            )
        return tuple(entries)

    async def _producers(self, segment: RemoteSegment) -> bytes | None:
        data = await self._objects.read_file(segment, SegmentFile.PRODUCER_SNAPSHOT)
        try:
            decode_snapshot(data or b"")
        except CorruptSnapshot as error:
            key = object_key(segment, SegmentFile.PRODUCER_SNAPSHOT.value)
            raise SegmentCorruptError(key, str(error), "producers") from None
        return data


def _check_listing(stored: StoredSegment, manifest: SegmentManifest) -> None:
    """Check that all files of a segment are listed, with their sizes.

    :raises SegmentCorruptError: one isn't
    """
    for suffix, facts in manifest.files.items():
        info = stored.objects.get(suffix)
        if info is None or info.size_bytes != facts.size_bytes:
            found = "nothing" if info is None else f"{info.size_bytes} bytes"
            raise SegmentCorruptError(object_key(stored.name, suffix), found, f"{facts.size_bytes} bytes")


async def _each(items: Iterable[T], work: Callable[[T], Awaitable[R]]) -> None:
    """Do the work for all items, some at once."""
    slots = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def one(item: T) -> None:
        async with slots:
            await work(item)

    tasks = [asyncio.ensure_future(one(item)) for item in items]
    try:
        for task in tasks:
            await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
