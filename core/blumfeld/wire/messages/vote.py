# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""Vote, API key 52: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class RequestPartitionData(Struct):
    """Part of VoteRequest."""

    partition_index: Annotated[int, Wire("int32")] = 0
    replica_epoch: Annotated[int, Wire("int32")] = 0
    replica_id: Annotated[int, Wire("int32")] = 0
    replica_directory_id: Annotated[bytes, Wire("uuid", versions="1+", ignorable=True)] = ZERO_UUID
    voter_directory_id: Annotated[bytes, Wire("uuid", versions="1+", ignorable=True)] = ZERO_UUID
    last_offset_epoch: Annotated[int, Wire("int32")] = 0
    last_offset: Annotated[int, Wire("int64")] = 0
    pre_vote: Annotated[bool, Wire("bool", versions="2+")] = False


class RequestTopicData(Struct):
    """Part of VoteRequest."""

    topic_name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[RequestPartitionData], Wire("[]struct")] = field(default_factory=list)


class VoteRequest(Message):
    """API 52, request: versions 0-2, flexible."""

    meta: ClassVar[Api] = Api("VoteRequest", 52, "request", valid="0-2", flexible="0+")

    cluster_id: Annotated[str | None, Wire("string", nullable="0+")] = None
    voter_id: Annotated[int, Wire("int32", versions="1+", ignorable=True)] = -1
    topics: Annotated[list[RequestTopicData], Wire("[]struct")] = field(default_factory=list)


class ResponsePartitionData(Struct):
    """Part of VoteResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    leader_id: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = 0
    vote_granted: Annotated[bool, Wire("bool")] = False


class ResponseTopicData(Struct):
    """Part of VoteResponse."""

    topic_name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[ResponsePartitionData], Wire("[]struct")] = field(default_factory=list)


class NodeEndpoint(Struct):
    """Part of VoteResponse."""

    node_id: Annotated[int, Wire("int32", versions="1+")] = 0
    host: Annotated[str, Wire("string", versions="1+")] = ""
    port: Annotated[int, Wire("uint16", versions="1+")] = 0


class VoteResponse(Message):
    """API 52, response: versions 0-2, flexible."""

    meta: ClassVar[Api] = Api("VoteResponse", 52, "response", valid="0-2", flexible="0+")

    error_code: Annotated[int, Wire("int16")] = 0
    topics: Annotated[list[ResponseTopicData], Wire("[]struct")] = field(default_factory=list)
    node_endpoints: Annotated[list[NodeEndpoint], Wire("[]struct", versions="1+", tag=0, tagged="1+")] = (
        field(default_factory=list)
    )
