"""The records of ``__remote_log_metadata`` as bytes, and the partition of that topic that has them (KIP-405). Pure.

Kafka's own broker reads what is written here, and what it wrote is read here: ``RemoteLogMetadataSerde`` and
``RemoteLogMetadataTopicPartitioner``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, TypeVar

from blumfeld.metadata.image.record_frame import decode_record, encode_record
from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld.wire.messages.remote_log_metadata_records import (
    RECORD_TYPES,
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
)
from blumfeld.wire.primitives import DecodeError
from blumfeld_storage_tiered.catalog.segment import (
    Change,
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)

_MASK_32 = 0xFFFFFFFF
_MURMUR_FACTOR = 0x5BD1E995
_MURMUR_SEED = 0x9747B28C
S = TypeVar("S", bound=IntEnum)


def metadata_partition(partition: TopicIdPartition, count: int) -> int:
    """Returns the partition of ``__remote_log_metadata`` that has the records of ``partition``.

    :param count: the partitions of that topic
    """
    most, least = struct.unpack(">QQ", partition.topic_id)
    # Java's Objects.hash(least, most, partition): each long counts as its two halves, one xor the other.
    mixed = 1
    for part in (least ^ least >> 32, most ^ most >> 32, partition.partition):
        mixed = 31 * mixed + part & _MASK_32
    return (_murmur2_of_four(mixed) & 0x7FFFFFFF) % count


def _murmur2_of_four(number: int) -> int:
    """Kafka's murmur2 of a number's four bytes, big-endian."""
    word = int.from_bytes(number.to_bytes(4, "big"), "little")
    word = word * _MURMUR_FACTOR & _MASK_32
    word = (word ^ word >> 24) * _MURMUR_FACTOR & _MASK_32
    hashed = ((_MURMUR_SEED ^ 4) * _MURMUR_FACTOR & _MASK_32) ^ word
    hashed = (hashed ^ hashed >> 13) * _MURMUR_FACTOR & _MASK_32
    return hashed ^ hashed >> 15


def encode_change(change: Change) -> bytes:
    """Returns the value of the record; its key is null."""
    if isinstance(change, RemoteSegment):
        return encode_record(_segment_record(change))
    if isinstance(change, SegmentUpdate):
        return encode_record(
            RemoteLogSegmentMetadataUpdateRecord(
                remote_log_segment_id=_id_entry(change.partition, change.segment_id),
                broker_id=change.broker_id,
                event_timestamp_ms=change.event_timestamp_ms,
                custom_metadata=change.custom_metadata,
                remote_log_segment_state=change.state,
            )
        )
    return encode_record(
        RemotePartitionDeleteMetadataRecord(
            topic_id_partition=_partition_entry(change.partition),
            broker_id=change.broker_id,
            event_timestamp_ms=change.event_timestamp_ms,
            remote_partition_delete_state=change.state,
        )
    )


def decode_change(value: bytes | memoryview) -> Change:
    """Returns the change in the value of a record.

    :raises DecodeError: another frame version, an unknown type or state, a segment without epochs or with its end
        before its start, or bytes that aren't what they say
    """
    record = decode_record(value, RECORD_TYPES)
    if isinstance(record, RemoteLogSegmentMetadataRecord):
        entry = record.remote_log_segment_id
        return _segment(_partition(entry.topic_id_partition), entry.id, record)
    if isinstance(record, RemoteLogSegmentMetadataUpdateRecord):
        entry = record.remote_log_segment_id
        return SegmentUpdate(
            partition=_partition(entry.topic_id_partition),
            segment_id=entry.id,
            broker_id=record.broker_id,
            event_timestamp_ms=record.event_timestamp_ms,
            state=known_state(SegmentState, record.remote_log_segment_state),
            custom_metadata=record.custom_metadata,
        )
    if isinstance(record, RemotePartitionDeleteMetadataRecord):
        return PartitionDelete(
            partition=_partition(record.topic_id_partition),
            broker_id=record.broker_id,
            event_timestamp_ms=record.event_timestamp_ms,
            state=known_state(PartitionDeleteState, record.remote_partition_delete_state),
        )
    raise DecodeError("a snapshot record stands in a log of remote metadata: only a snapshot file has them")


def encode_snapshot_segment(segment: RemoteSegment) -> bytes:
    """Returns the record of a segment in a snapshot, which names the partition elsewhere."""
    return encode_record(
        RemoteLogSegmentMetadataSnapshotRecord(segment_id=segment.segment_id, **_fields(segment))
    )


def decode_snapshot_segment(value: bytes | memoryview, partition: TopicIdPartition) -> RemoteSegment:
    """Returns the segment of ``partition`` in a record of a snapshot.

    :raises DecodeError: as :func:`decode_change`
    """
    record = decode_record(value, RECORD_TYPES)
    if not isinstance(record, RemoteLogSegmentMetadataSnapshotRecord):
        raise DecodeError(f"{type(record).__name__} stands in a snapshot, which has segments only")
    return _segment(partition, record.segment_id, record)


def _segment_record(segment: RemoteSegment) -> RemoteLogSegmentMetadataRecord:
    return RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=_id_entry(segment.partition, segment.segment_id), **_fields(segment)
    )


def _fields(segment: RemoteSegment) -> dict[str, Any]:
    """The fields that both records of a segment have."""
    return {
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "broker_id": segment.broker_id,
        "max_timestamp_ms": segment.max_timestamp_ms,
        "event_timestamp_ms": segment.event_timestamp_ms,
        "segment_leader_epochs": [
            SegmentLeaderEpochEntry(leader_epoch=epoch, offset=start)
            for epoch, start in segment.leader_epochs
        ],
        "segment_size_in_bytes": segment.size_bytes,
        "custom_metadata": segment.custom_metadata,
        "remote_log_segment_state": segment.state,
        "txn_index_empty": segment.txn_index_empty,
    }


def _segment(
    partition: TopicIdPartition,
    segment_id: bytes,
    record: RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataSnapshotRecord,
) -> RemoteSegment:
    if not 0 <= record.start_offset <= record.end_offset:
        raise DecodeError(f"a segment of {partition} from {record.start_offset} to {record.end_offset}")
    if not record.segment_leader_epochs:
        raise DecodeError(f"a segment of {partition} at {record.start_offset} without leader epochs")
    return RemoteSegment(
        partition=partition,
        segment_id=segment_id,
        start_offset=record.start_offset,
        end_offset=record.end_offset,
        broker_id=record.broker_id,
        max_timestamp_ms=record.max_timestamp_ms,
        event_timestamp_ms=record.event_timestamp_ms,
        leader_epochs=_epochs(record.segment_leader_epochs),
        size_bytes=record.segment_size_in_bytes,
        custom_metadata=record.custom_metadata,
        state=known_state(SegmentState, record.remote_log_segment_state),
        txn_index_empty=record.txn_index_empty,
    )


def _epochs(entries: Iterable[SegmentLeaderEpochEntry]) -> tuple[EpochEntry, ...]:
    """Kafka writes them out of a map, so their order means nothing."""
    return tuple(sorted(EpochEntry(entry.leader_epoch, entry.offset) for entry in entries))


def known_state(states: type[S], number: int) -> S:
    """Returns the state with this number.

    :raises DecodeError: there is none
    """
    for state in states:
        if state == number:
            return state
    allowed = ", ".join(f"{state.value} {state.name}" for state in states)
    raise DecodeError(f"unknown state {number} in remote metadata: allowed is {allowed}")


def _partition(entry: TopicIdPartitionEntry) -> TopicIdPartition:
    return TopicIdPartition(entry.id, entry.partition, entry.name)


def _partition_entry(partition: TopicIdPartition) -> TopicIdPartitionEntry:
    return TopicIdPartitionEntry(name=partition.topic, id=partition.topic_id, partition=partition.partition)


def _id_entry(partition: TopicIdPartition, segment_id: bytes) -> RemoteLogSegmentIdEntry:
    return RemoteLogSegmentIdEntry(topic_id_partition=_partition_entry(partition), id=segment_id)
