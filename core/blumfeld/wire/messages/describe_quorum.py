# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""DescribeQuorum, API key 55: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class RequestPartitionData(Struct):
    """Part of DescribeQuorumRequest."""

    partition_index: Annotated[int, Wire("int32")] = 0


class RequestTopicData(Struct):
    """Part of DescribeQuorumRequest."""

    topic_name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[RequestPartitionData], Wire("[]struct")] = field(default_factory=list)


class DescribeQuorumRequest(Message):
    """API 55, request: versions 0-2, flexible."""

    meta: ClassVar[Api] = Api("DescribeQuorumRequest", 55, "request", valid="0-2", flexible="0+")

    topics: Annotated[list[RequestTopicData], Wire("[]struct")] = field(default_factory=list)


class ReplicaState(Struct):
    """Part of DescribeQuorumResponse."""

    replica_id: Annotated[int, Wire("int32")] = 0
    replica_directory_id: Annotated[bytes, Wire("uuid", versions="2+")] = ZERO_UUID
    log_end_offset: Annotated[int, Wire("int64")] = 0
    last_fetch_timestamp: Annotated[int, Wire("int64", versions="1+", ignorable=True)] = -1
    last_caught_up_timestamp: Annotated[int, Wire("int64", versions="1+", ignorable=True)] = -1


class ResponsePartitionData(Struct):
    """Part of DescribeQuorumResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", versions="2+", nullable="2+", ignorable=True)] = ""
    leader_id: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = 0
    high_watermark: Annotated[int, Wire("int64")] = 0
    current_voters: Annotated[list[ReplicaState], Wire("[]struct")] = field(default_factory=list)
    observers: Annotated[list[ReplicaState], Wire("[]struct")] = field(default_factory=list)


class ResponseTopicData(Struct):
    """Part of DescribeQuorumResponse."""

    topic_name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[ResponsePartitionData], Wire("[]struct")] = field(default_factory=list)


class Listener(Struct):
    """Part of DescribeQuorumResponse."""

    name: Annotated[str, Wire("string", versions="2+")] = ""
    host: Annotated[str, Wire("string", versions="2+")] = ""
    port: Annotated[int, Wire("uint16", versions="2+")] = 0


class Node(Struct):
    """Part of DescribeQuorumResponse."""

    node_id: Annotated[int, Wire("int32", versions="2+")] = 0
    listeners: Annotated[list[Listener], Wire("[]struct", versions="2+")] = field(default_factory=list)


class DescribeQuorumResponse(Message):
    """API 55, response: versions 0-2, flexible."""

    meta: ClassVar[Api] = Api("DescribeQuorumResponse", 55, "response", valid="0-2", flexible="0+")

    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", versions="2+", nullable="2+", ignorable=True)] = ""
    topics: Annotated[list[ResponseTopicData], Wire("[]struct")] = field(default_factory=list)
    nodes: Annotated[list[Node], Wire("[]struct", versions="2+")] = field(default_factory=list)
