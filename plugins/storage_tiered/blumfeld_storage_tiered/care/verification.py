"""Checks a store: every byte against its checksum, and every segment against the records of the metadata topic."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping

import msgspec

from blumfeld.spi.object_store import ObjectNotFoundError
from blumfeld_storage_tiered.catalog.segment import RemoteSegment, SegmentState, TopicIdPartition
from blumfeld_storage_tiered.objects.manifest import SegmentCorruptError
from blumfeld_storage_tiered.objects.names import partition_prefix
from blumfeld_storage_tiered.objects.segments import SegmentObjects, StoredSegment
from blumfeld_storage_tiered.objects.topics import StoredTopic, TopicObjects

GRACE_MS = 3_600_000
"""Younger objects may belong to a copy that is under way."""
NO_BROKER = -1

MISSING, ROTTEN, ORPHANED = "missing", "rotten", "orphaned"


class Finding(msgspec.Struct, frozen=True, order=True):
    """Something that isn't as it was written, or that nothing speaks of."""

    key: str
    """The object's; the prefix of a partition where offsets are missing."""
    kind: str
    """``missing``, ``rotten`` or ``orphaned``."""
    found: str
    written: str


class Checked(msgspec.Struct):
    """The counts of all that was looked at so far."""

    segments: int = 0
    """Segments of which every byte was read."""
    size_bytes: int = 0
    under_way: int = 0
    """Segments whose copy or deletion isn't finished. Nothing is said of them."""


class StoreVerification:
    """The check of a store, or of one topic in it. It reads and changes nothing.

    :param records: the segments that the metadata topic speaks of, by id, in any state; ``None`` if it isn't known.
        Each segment is held against its own manifest alone then, and an orphan is one that has none
    :param topic: the only one that is looked at; ``None``: all
    :param topic_ids: the topics of the cluster; ``None`` if they aren't known
    """

    def __init__(
        self,
        objects: SegmentObjects,
        descriptions: TopicObjects,
        now_ms: int,
        records: Mapping[bytes, RemoteSegment] | None = None,
        topic: str | None = None,
        *,
        topic_ids: Collection[bytes] | None = None,
    ) -> None:
        self._objects = objects
        self._descriptions = descriptions
        self._topic_ids = topic_ids
        self._now_ms = now_ms
        self._records = records
        self._topic = topic
        self._seen: set[bytes] = set()
        self._ends: dict[TopicIdPartition, int] = {}
        """Partition → the highest offset of the segments so far."""
        self.checked = Checked()

    async def findings(self) -> AsyncIterator[Finding]:
        """Yield what is wrong.

        :raises StoreError: a request failed, so that nothing can be said
        """
        prefix = "" if self._topic is None else f"{self._topic}-"
        async for stored in self._objects.list_segments(prefix):
            if self._topic in (None, stored.name.partition.topic):
                self._seen.add(stored.name.segment_id)
                for finding in await self._look_at(stored):
                    yield finding
        for segment in (self._records or {}).values():
            is_wanted = self._topic in (None, segment.partition.topic)
            if is_wanted and segment.segment_id not in self._seen and _is_finished(segment):
                for finding in await self._verify(segment):
                    yield finding
        async for described in self._descriptions.list():
            if self._topic in (None, described.topic):
                for finding in await self._look_at_description(described):
                    yield finding

    async def _look_at_description(self, described: StoredTopic) -> list[Finding]:
        info = described.info
        if self._topic_ids is not None and described.topic_id not in self._topic_ids:
            if info.modified_ms + GRACE_MS > self._now_ms:
                return []
            return [Finding(info.key, ORPHANED, f"{info.size_bytes} bytes", "a topic of the cluster")]
        try:
            await self._descriptions.read(described.topic, described.topic_id)
        except SegmentCorruptError as error:
            return [Finding(error.key, ROTTEN, error.found, error.written)]
        except ObjectNotFoundError:
            pass  # its topic was deleted a moment ago
        return []

    async def _look_at(self, stored: StoredSegment) -> list[Finding]:
        if self._records is not None:
            record = self._records.get(stored.name.segment_id)
            if record is None:
                return self._orphans(stored, "a record in the metadata topic")
            if not _is_finished(record):
                self.checked.under_way += 1
                return []
            return await self._verify(record)
        if not stored.is_whole:
            return self._orphans(stored, "a manifest beside it")
        try:
            manifest, custom_metadata = await self._objects.manifest_of(stored.name)
        except SegmentCorruptError as error:
            return [Finding(error.key, ROTTEN, error.found, error.written)]
        return await self._verify(manifest.segment(NO_BROKER, self._now_ms, custom_metadata))

    def _orphans(self, stored: StoredSegment, lacks: str) -> list[Finding]:
        if stored.modified_ms + GRACE_MS > self._now_ms:
            self.checked.under_way += 1
            return []
        return [
            Finding(info.key, ORPHANED, f"{info.size_bytes} bytes", lacks) for info in stored.objects.values()
        ]

    async def _verify(self, segment: RemoteSegment) -> list[Finding]:
        self.checked.segments += 1
        self.checked.size_bytes += segment.size_bytes
        findings = [
            Finding(p.key, MISSING if p.found == "nothing" else ROTTEN, p.found, p.written)
            for p in await self._objects.verify(segment)
        ]
        return findings + self._gap_before(segment)

    def _gap_before(self, segment: RemoteSegment) -> list[Finding]:
        """Return the gap between two segments of a partition, if there is one. A listing has them by offset."""
        before = self._ends.get(segment.partition)
        self._ends[segment.partition] = max(segment.end_offset, -1 if before is None else before)
        if before is None or segment.start_offset <= before + 1:
            return []
        written = f"the records {before + 1} to {segment.start_offset - 1}"
        return [Finding(partition_prefix(segment.partition), MISSING, "nothing", written)]


def _is_finished(segment: RemoteSegment) -> bool:
    return segment.state is SegmentState.COPY_FINISHED
