# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""FetchSnapshot, API key 59: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID, Records
from blumfeld.wire.schema import Api, Message, Struct, Wire


class SnapshotId(Struct):
    """Part of FetchSnapshotRequest, FetchSnapshotResponse."""

    end_offset: Annotated[int, Wire("int64")] = 0
    epoch: Annotated[int, Wire("int32")] = 0


class RequestPartitionSnapshot(Struct):
    """Part of FetchSnapshotRequest."""

    partition: Annotated[int, Wire("int32")] = 0
    current_leader_epoch: Annotated[int, Wire("int32")] = 0
    snapshot_id: Annotated[SnapshotId, Wire("struct")] = field(default_factory=SnapshotId)
    position: Annotated[int, Wire("int64")] = 0
    replica_directory_id: Annotated[
        bytes, Wire("uuid", versions="1+", tag=0, tagged="1+", ignorable=True)
    ] = ZERO_UUID


class RequestTopicSnapshot(Struct):
    """Part of FetchSnapshotRequest."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[RequestPartitionSnapshot], Wire("[]struct")] = field(default_factory=list)


class FetchSnapshotRequest(Message):
    """API 59, request: versions 0-1, flexible."""

    meta: ClassVar[Api] = Api("FetchSnapshotRequest", 59, "request", valid="0-1", flexible="0+")

    cluster_id: Annotated[str | None, Wire("string", nullable="0+", tag=0, tagged="0+")] = None
    replica_id: Annotated[int, Wire("int32")] = -1
    max_bytes: Annotated[int, Wire("int32")] = 2**31 - 1
    topics: Annotated[list[RequestTopicSnapshot], Wire("[]struct")] = field(default_factory=list)


class LeaderIdAndEpoch(Struct):
    """Part of FetchSnapshotResponse."""

    leader_id: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = 0


class ResponsePartitionSnapshot(Struct):
    """Part of FetchSnapshotResponse."""

    index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    snapshot_id: Annotated[SnapshotId, Wire("struct")] = field(default_factory=SnapshotId)
    current_leader: Annotated[LeaderIdAndEpoch, Wire("struct", tag=0, tagged="0+")] = field(
        default_factory=LeaderIdAndEpoch
    )
    size: Annotated[int, Wire("int64")] = 0
    position: Annotated[int, Wire("int64")] = 0
    unaligned_records: Annotated[Records | None, Wire("records")] = None


class ResponseTopicSnapshot(Struct):
    """Part of FetchSnapshotResponse."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[ResponsePartitionSnapshot], Wire("[]struct")] = field(default_factory=list)


class NodeEndpoint(Struct):
    """Part of FetchSnapshotResponse."""

    node_id: Annotated[int, Wire("int32", versions="1+")] = 0
    host: Annotated[str, Wire("string", versions="1+")] = ""
    port: Annotated[int, Wire("uint16", versions="1+")] = 0


class FetchSnapshotResponse(Message):
    """API 59, response: versions 0-1, flexible."""

    meta: ClassVar[Api] = Api("FetchSnapshotResponse", 59, "response", valid="0-1", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32", ignorable=True)] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    topics: Annotated[list[ResponseTopicSnapshot], Wire("[]struct")] = field(default_factory=list)
    node_endpoints: Annotated[list[NodeEndpoint], Wire("[]struct", versions="1+", tag=0, tagged="1+")] = (
        field(default_factory=list)
    )
