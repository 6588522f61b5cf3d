# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""The records of __remote_log_metadata, framed like metadata records."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class TopicIdPartitionEntry(Struct):
    """Part of RemoteLogSegmentMetadataRecord, RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord.
    """

    name: Annotated[str, Wire("string")] = ""
    id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partition: Annotated[int, Wire("int32")] = 0


class RemoteLogSegmentIdEntry(Struct):
    """Part of RemoteLogSegmentMetadataRecord, RemoteLogSegmentMetadataUpdateRecord."""

    topic_id_partition: Annotated[TopicIdPartitionEntry, Wire("struct")] = field(
        default_factory=TopicIdPartitionEntry
    )
    id: Annotated[bytes, Wire("uuid")] = ZERO_UUID


class SegmentLeaderEpochEntry(Struct):
    """Part of RemoteLogSegmentMetadataRecord, RemoteLogSegmentMetadataSnapshotRecord."""

    leader_epoch: Annotated[int, Wire("int32")] = 0
    offset: Annotated[int, Wire("int64")] = 0


class RemoteLogSegmentMetadataRecord(Message):
    """Record type 0: version 0, flexible."""

    meta: ClassVar[Api] = Api("RemoteLogSegmentMetadataRecord", 0, "metadata", valid="0", flexible="0+")

    remote_log_segment_id: Annotated[RemoteLogSegmentIdEntry, Wire("struct")] = field(
        default_factory=RemoteLogSegmentIdEntry
    )
    start_offset: Annotated[int, Wire("int64")] = 0
    end_offset: Annotated[int, Wire("int64")] = 0
    broker_id: Annotated[int, Wire("int32")] = 0
    max_timestamp_ms: Annotated[int, Wire("int64")] = 0
    event_timestamp_ms: Annotated[int, Wire("int64")] = 0
    segment_leader_epochs: Annotated[list[SegmentLeaderEpochEntry], Wire("[]struct")] = field(
        default_factory=list
    )
    segment_size_in_bytes: Annotated[int, Wire("int32")] = 0
    custom_metadata: Annotated[bytes | None, Wire("bytes", nullable="0+")] = None
    remote_log_segment_state: Annotated[int, Wire("int8")] = 0
    txn_index_empty: Annotated[bool, Wire("bool", tag=0, tagged="0+")] = False


class RemoteLogSegmentMetadataUpdateRecord(Message):
    """Record type 1: version 0, flexible."""

    meta: ClassVar[Api] = Api("RemoteLogSegmentMetadataUpdateRecord", 1, "metadata", valid="0", flexible="0+")

    remote_log_segment_id: Annotated[RemoteLogSegmentIdEntry, Wire("struct")] = field(
        default_factory=RemoteLogSegmentIdEntry
    )
    broker_id: Annotated[int, Wire("int32")] = 0
    event_timestamp_ms: Annotated[int, Wire("int64")] = 0
    custom_metadata: Annotated[bytes | None, Wire("bytes", nullable="0+")] = None
    remote_log_segment_state: Annotated[int, Wire("int8")] = 0


class RemotePartitionDeleteMetadataRecord(Message):
    """Record type 2: version 0, flexible."""

    meta: ClassVar[Api] = Api("RemotePartitionDeleteMetadataRecord", 2, "metadata", valid="0", flexible="0+")

    topic_id_partition: Annotated[TopicIdPartitionEntry, Wire("struct")] = field(
        default_factory=TopicIdPartitionEntry
    )
    broker_id: Annotated[int, Wire("int32")] = 0
    event_timestamp_ms: Annotated[int, Wire("int64")] = 0
    remote_partition_delete_state: Annotated[int, Wire("int8")] = 0


class RemoteLogSegmentMetadataSnapshotRecord(Message):
    """Record type 3: version 0, flexible."""

    meta: ClassVar[Api] = Api(
        "RemoteLogSegmentMetadataSnapshotRecord", 3, "metadata", valid="0", flexible="0+"
    )

    segment_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    start_offset: Annotated[int, Wire("int64")] = 0
    end_offset: Annotated[int, Wire("int64")] = 0
    broker_id: Annotated[int, Wire("int32")] = 0
    max_timestamp_ms: Annotated[int, Wire("int64")] = 0
    event_timestamp_ms: Annotated[int, Wire("int64")] = 0
    segment_leader_epochs: Annotated[list[SegmentLeaderEpochEntry], Wire("[]struct")] = field(
        default_factory=list
    )
    segment_size_in_bytes: Annotated[int, Wire("int32")] = 0
    custom_metadata: Annotated[bytes | None, Wire("bytes", nullable="0+")] = None
    remote_log_segment_state: Annotated[int, Wire("int8")] = 0
    txn_index_empty: Annotated[bool, Wire("bool", tag=0, tagged="0+")] = False


RECORD_TYPES: dict[int, type[Message]] = {
    0: RemoteLogSegmentMetadataRecord,
    1: RemoteLogSegmentMetadataUpdateRecord,
    2: RemotePartitionDeleteMetadataRecord,
    3: RemoteLogSegmentMetadataSnapshotRecord,
}
"""The class of each record type."""
