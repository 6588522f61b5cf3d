"""One segment in the remote store, and the changes to it, as ``__remote_log_metadata`` has them (KIP-405)."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

import msgspec

from blumfeld.spi.leader_epochs import EpochEntry


class SegmentState(IntEnum):
    """The life of a remote segment, in the numbers of its records. A copy that failed goes from 0 to 2."""

    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2
    DELETE_FINISHED = 3


class PartitionDeleteState(IntEnum):
    """The deletion of all remote segments of a partition, in the numbers of its records."""

    MARKED = 0
    STARTED = 1
    FINISHED = 2


class TopicIdPartition(msgspec.Struct, frozen=True, order=True):
    """A partition of one topic for ever: a topic that is made again has another id."""

    topic_id: bytes
    partition: int
    topic: str = msgspec.field(default="")
    """The topic's name, for people and for the names of objects."""


class RemoteSegment(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of one remote segment. A change of state replaces it."""

    partition: TopicIdPartition
    segment_id: bytes
    """A UUID. A segment that is copied again, after a failure or by another leader, has another one."""
    start_offset: int
    end_offset: int
    """The last offset, not the one behind it, as in Kafka's records."""
    broker_id: int
    """The node that wrote the last record about it."""
    max_timestamp_ms: int
    event_timestamp_ms: int
    """When that record was made."""
    leader_epochs: tuple[EpochEntry, ...]
    """The leader epochs of its records, each with its first offset in the segment."""
    size_bytes: int
    """Bytes of the log file."""
    custom_metadata: bytes | None = None
    """At most ``remote.log.metadata.custom.metadata.max.bytes``."""
    state: SegmentState = SegmentState.COPY_STARTED
    txn_index_empty: bool = False
    """It is known to have no aborted transaction."""


class SegmentUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """A segment that is known has another state."""

    partition: TopicIdPartition
    segment_id: bytes
    broker_id: int
    event_timestamp_ms: int
    state: SegmentState
    custom_metadata: bytes | None = None
    """Replaces the segment's, unless it is ``None``."""


class PartitionDelete(msgspec.Struct, frozen=True, kw_only=True):
    """The deletion of a whole partition has got so far."""

    partition: TopicIdPartition
    broker_id: int
    event_timestamp_ms: int
    state: PartitionDeleteState


Change: TypeAlias = "RemoteSegment | SegmentUpdate | PartitionDelete"
"""One record of ``__remote_log_metadata``."""
