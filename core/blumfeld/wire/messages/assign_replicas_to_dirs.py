# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""AssignReplicasToDirs, API key 73: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class RequestPartitionData(Struct):
    """Part of AssignReplicasToDirsRequest."""

    partition_index: Annotated[int, Wire("int32")] = 0


class RequestTopicData(Struct):
    """Part of AssignReplicasToDirsRequest."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[RequestPartitionData], Wire("[]struct")] = field(default_factory=list)


class RequestDirectoryData(Struct):
    """Part of AssignReplicasToDirsRequest."""

    id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    topics: Annotated[list[RequestTopicData], Wire("[]struct")] = field(default_factory=list)


class AssignReplicasToDirsRequest(Message):
    """API 73, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("AssignReplicasToDirsRequest", 73, "request", valid="0", flexible="0+")

    broker_id: Annotated[int, Wire("int32")] = 0
    broker_epoch: Annotated[int, Wire("int64")] = -1
    directories: Annotated[list[RequestDirectoryData], Wire("[]struct")] = field(default_factory=list)


class ResponsePartitionData(Struct):
    """Part of AssignReplicasToDirsResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0


class ResponseTopicData(Struct):
    """Part of AssignReplicasToDirsResponse."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[ResponsePartitionData], Wire("[]struct")] = field(default_factory=list)


class ResponseDirectoryData(Struct):
    """Part of AssignReplicasToDirsResponse."""

    id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    topics: Annotated[list[ResponseTopicData], Wire("[]struct")] = field(default_factory=list)


class AssignReplicasToDirsResponse(Message):
    """API 73, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("AssignReplicasToDirsResponse", 73, "response", valid="0", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    directories: Annotated[list[ResponseDirectoryData], Wire("[]struct")] = field(default_factory=list)
