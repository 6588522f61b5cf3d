"""Names of objects. They are those of Kafka's ``LocalTieredStorage``: a folder for each partition, which the topic's id
makes the partition's for ever, and in it the files of each segment::

    ticks-0-qUiBghE1SjWuUlRKwlHGrQ/00000000000000000903-XrQlh8GbRfq72WiwM1JrJg.log

A segment's first offset has 20 digits, so a listing has the segments of a partition by offset, and all objects of one
segment stand together. Kafka leaves the manifest, which it doesn't know, alone.
"""

from __future__ import annotations

import re
from enum import Enum

import msgspec

from blumfeld.wire.primitives import uuid_bytes, uuid_text
from blumfeld_storage_tiered.catalog.segment import RemoteSegment, TopicIdPartition

_TOPIC = r"[A-Za-z0-9._-]{1,249}"
_UUID = r"[A-Za-z0-9_-]{22}"
_NAME = re.compile(rf"({_TOPIC})-(\d{{1,10}})-({_UUID})/(\d{{20}})-({_UUID})\.([a-z_]+)")


class SegmentFile(Enum):
    """The files of a segment; the value is the suffix of the object's name."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TRANSACTION_INDEX = "txnindex"
    """Only a segment with aborted transactions has one."""
    PRODUCER_SNAPSHOT = "snapshot"
    LEADER_EPOCHS = "leader_epoch_checkpoint"


MANIFEST = "manifest"
"""Suffix of the object that makes the others a whole segment."""

REQUIRED = (
    SegmentFile.LOG,
    SegmentFile.OFFSET_INDEX,
    SegmentFile.TIME_INDEX,
    SegmentFile.PRODUCER_SNAPSHOT,
    SegmentFile.LEADER_EPOCHS,
)
"""Files that Kafka reads of every segment."""

_SUFFIXES = frozenset((MANIFEST, *(kind.value for kind in SegmentFile)))


class SegmentName(msgspec.Struct, frozen=True, order=True):
    """What the name of an object says of its segment."""

    partition: TopicIdPartition
    start_offset: int
    segment_id: bytes


def partition_prefix(partition: TopicIdPartition) -> str:
    """Returns the prefix of the keys of a partition's objects, and of no others."""
    return f"{partition.topic}-{partition.partition}-{uuid_text(partition.topic_id)}/"


def object_key(segment: RemoteSegment | SegmentName, suffix: str) -> str:
    """Returns the key of one of a segment's objects. ``suffix`` is a ``SegmentFile``'s value or :data:`MANIFEST`."""
    base = f"{segment.start_offset:020d}-{uuid_text(segment.segment_id)}"
    return f"{partition_prefix(segment.partition)}{base}.{suffix}"


def parse_key(key: str) -> tuple[SegmentName, str] | None:
    """Returns the segment and the suffix of a key, or ``None`` for an object that is no part of a segment."""
    match = _NAME.fullmatch(key)
    if match is None or match[6] not in _SUFFIXES:
        return None
    partition = TopicIdPartition(uuid_bytes(match[3]), int(match[2]), match[1])
    name = SegmentName(partition, int(match[4]), uuid_bytes(match[5]))
    # Two texts may stand for one id, and a number may have zeros in front: the key must be the one that we would write.
    return (name, match[6]) if object_key(name, match[6]) == key else None
