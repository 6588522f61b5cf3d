# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""AlterReplicaLogDirs, API key 34: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class AlterReplicaLogDirTopic(Struct):
    """Part of AlterReplicaLogDirsRequest."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class AlterReplicaLogDir(Struct):
    """Part of AlterReplicaLogDirsRequest."""

    path: Annotated[str, Wire("string")] = ""
    topics: Annotated[list[AlterReplicaLogDirTopic], Wire("[]struct")] = field(default_factory=list)


class AlterReplicaLogDirsRequest(Message):
    """API 34, request: versions 1-2, flexible from 2."""

    meta: ClassVar[Api] = Api("AlterReplicaLogDirsRequest", 34, "request", valid="1-2", flexible="2+")

    dirs: Annotated[list[AlterReplicaLogDir], Wire("[]struct")] = field(default_factory=list)


class AlterReplicaLogDirPartitionResult(Struct):
    """Part of AlterReplicaLogDirsResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0


class AlterReplicaLogDirTopicResult(Struct):
    """Part of AlterReplicaLogDirsResponse."""

    topic_name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[AlterReplicaLogDirPartitionResult], Wire("[]struct")] = field(
        default_factory=list
    )


class AlterReplicaLogDirsResponse(Message):
    """API 34, response: versions 1-2, flexible from 2."""

    meta: ClassVar[Api] = Api("AlterReplicaLogDirsResponse", 34, "response", valid="1-2", flexible="2+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    results: Annotated[list[AlterReplicaLogDirTopicResult], Wire("[]struct")] = field(default_factory=list)
