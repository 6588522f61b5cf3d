# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""EndQuorumEpoch, API key 54: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class ReplicaInfo(Struct):
    """Part of EndQuorumEpochRequest."""

    candidate_id: Annotated[int, Wire("int32", versions="1+")] = 0
    candidate_directory_id: Annotated[bytes, Wire("uuid", versions="1+")] = ZERO_UUID


class RequestPartitionData(Struct):
    """Part of EndQuorumEpochRequest."""

    partition_index: Annotated[int, Wire("int32")] = 0
    leader_id: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = 0
    preferred_successors: Annotated[list[int], Wire("[]int32", versions="0", ignorable=True)] = field(
        default_factory=list
    )
    preferred_candidates: Annotated[list[ReplicaInfo], Wire("[]struct", versions="1+", ignorable=True)] = (
        field(default_factory=list)
    )


class RequestTopicData(Struct):
    """Part of EndQuorumEpochRequest."""

    topic_name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[RequestPartitionData], Wire("[]struct")] = field(default_factory=list)


class LeaderEndpoint(Struct):
    """Part of EndQuorumEpochRequest."""

    name: Annotated[str, Wire("string", versions="1+")] = ""
    host: Annotated[str, Wire("string", versions="1+")] = ""
    port: Annotated[int, Wire("uint16", versions="1+")] = 0


class EndQuorumEpochRequest(Message):
    """API 54, request: versions 0-1, flexible from 1."""

    meta: ClassVar[Api] = Api("EndQuorumEpochRequest", 54, "request", valid="0-1", flexible="1+")

    cluster_id: Annotated[str | None, Wire("string", nullable="0+")] = None
    topics: Annotated[list[RequestTopicData], Wire("[]struct")] = field(default_factory=list)
    leader_endpoints: Annotated[list[LeaderEndpoint], Wire("[]struct", versions="1+", ignorable=True)] = (
        field(default_factory=list)
    )


class ResponsePartitionData(Struct):
    """Part of EndQuorumEpochResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    leader_id: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = 0


class ResponseTopicData(Struct):
    """Part of EndQuorumEpochResponse."""

    topic_name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[ResponsePartitionData], Wire("[]struct")] = field(default_factory=list)


class NodeEndpoint(Struct):
    """Part of EndQuorumEpochResponse."""

    node_id: Annotated[int, Wire("int32", versions="1+")] = 0
    host: Annotated[str, Wire("string", versions="1+")] = ""
    port: Annotated[int, Wire("uint16", versions="1+")] = 0


class EndQuorumEpochResponse(Message):
    """API 54, response: versions 0-1, flexible from 1."""

    meta: ClassVar[Api] = Api("EndQuorumEpochResponse", 54, "response", valid="0-1", flexible="1+")

    error_code: Annotated[int, Wire("int16")] = 0
    topics: Annotated[list[ResponseTopicData], Wire("[]struct")] = field(default_factory=list)
    node_endpoints: Annotated[list[NodeEndpoint], Wire("[]struct", versions="1+", tag=0, tagged="1+")] = (
        field(default_factory=list)
    )
