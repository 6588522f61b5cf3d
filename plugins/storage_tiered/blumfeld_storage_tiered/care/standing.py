"""How much of each topic lies in the store and how much on the disks, and what the store costs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from blumfeld_storage_tiered.cache.segment_bytes import CHUNK_BYTES
from blumfeld_storage_tiered.objects.names import SegmentFile
from blumfeld_storage_tiered.objects.segments import StoredSegment
from blumfeld_storage_tiered.objects.upload import PART_BYTES
from blumfeld_storage_tiered.options import PriceList

GB = 10**9


class PartitionEnds(msgspec.Struct, frozen=True, kw_only=True):
    """A partition as its leader tells of it."""

    local_bytes: int
    """Bytes of its log on the leader's disk."""
    local_start_offset: int
    copied_end_offset: int
    """The store has every record below it."""
    log_end_offset: int


class TopicStanding(msgspec.Struct, kw_only=True):
    """One topic. The numbers of the disks are ``None`` where no broker was asked."""

    topic: str
    segments: int = 0
    objects: int = 0
    remote_bytes: int = 0
    """Bytes of all its objects."""
    puts: int = 0
    """Requests that wrote them."""
    gets: int = 0
    """Requests to read all of it once, with a cold cache."""
    local_bytes: int | None = None
    """On the disks of the leaders."""
    pending_bytes: int | None = None
    """Bytes of these that the store doesn't have, those of the active segments included."""
    lag_records: int | None = None
    """Records that the store doesn't have."""
    described: bool = False
    """The store has its settings: a restored cluster would have them again."""


class Cost(msgspec.Struct, frozen=True):
    """The cost of the objects, in the currency of the price list."""

    month: float
    """Storage for a month."""
    written: float
    """The requests that wrote them, once."""
    read_once: float
    """To read all of it once: requests, and bytes that leave the store."""


def standings(
    stored: Iterable[StoredSegment],
    ends: Mapping[tuple[str, int], PartitionEnds] | None,
    described: Iterable[str] = (),
) -> list[TopicStanding]:
    """Return the standing of each topic, by name.

    :param ends: the tiered partitions of the cluster, where it was asked
    :param described: the topics whose descriptions the store has
    """
    topics: dict[str, TopicStanding] = {}
    doubled: dict[str, int] = {}
    """Topic → bytes that lie in the store and on the leader's disk."""
    for segment in stored:
        partition = segment.name.partition
        topic = topics.setdefault(partition.topic, TopicStanding(topic=partition.topic))
        log = segment.objects.get(SegmentFile.LOG.value)
        log_bytes = 0 if log is None else log.size_bytes
        topic.segments += segment.is_whole
        topic.objects += len(segment.objects)
        topic.remote_bytes += segment.size_bytes
        topic.puts += len(segment.objects) - 1 + _puts(log_bytes)
        topic.gets += -(-log_bytes // CHUNK_BYTES) + 2  # the manifest and the offset index
        there = None if ends is None else ends.get((partition.topic, partition.partition))
        if there is not None and segment.is_whole and segment.name.start_offset >= there.local_start_offset:
            doubled[partition.topic] = doubled.get(partition.topic, 0) + log_bytes
    for (name, _), partition_ends in (ends or {}).items():
        topic = topics.setdefault(name, TopicStanding(topic=name))
        topic.local_bytes = (topic.local_bytes or 0) + partition_ends.local_bytes
        begin = max(partition_ends.copied_end_offset, partition_ends.local_start_offset)
        topic.lag_records = (topic.lag_records or 0) + partition_ends.log_end_offset - begin
    for name in described:
        topics.setdefault(name, TopicStanding(topic=name)).described = True
    for name, topic in topics.items():
        if topic.local_bytes is not None:
            topic.pending_bytes = max(0, topic.local_bytes - doubled.get(name, 0))
    return [topics[name] for name in sorted(topics)]


def _puts(log_bytes: int) -> int:
    """Requests that write a log: a multipart upload has one to begin, one for each part, and one to complete."""
    return 1 if log_bytes < PART_BYTES else 2 + -(-log_bytes // PART_BYTES)


def cost(topics: Iterable[TopicStanding], prices: PriceList) -> Cost:
    """Return the cost of these topics."""
    month = written = read_once = 0.0
    for topic in topics:
        gb = topic.remote_bytes / GB
        month += gb * prices.gb_month
        # The size of each object but the manifest is asked for once it is there.
        heads = topic.objects - topic.segments
        written += topic.puts / 1000 * prices.put_1000 + heads / 1000 * prices.get_1000
        read_once += topic.gets / 1000 * prices.get_1000 + gb * prices.gb_out
    return Cost(month, written, read_once)
