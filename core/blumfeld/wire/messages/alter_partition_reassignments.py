# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""AlterPartitionReassignments, API key 45: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class ReassignablePartition(Struct):
    """Part of AlterPartitionReassignmentsRequest."""

    partition_index: Annotated[int, Wire("int32")] = 0
    replicas: Annotated[list[int] | None, Wire("[]int32", nullable="0+")] = None


class ReassignableTopic(Struct):
    """Part of AlterPartitionReassignmentsRequest."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[ReassignablePartition], Wire("[]struct")] = field(default_factory=list)


class AlterPartitionReassignmentsRequest(Message):
    """API 45, request: versions 0-1, flexible."""

    meta: ClassVar[Api] = Api("AlterPartitionReassignmentsRequest", 45, "request", valid="0-1", flexible="0+")

    timeout_ms: Annotated[int, Wire("int32")] = 60000
    allow_replication_factor_change: Annotated[bool, Wire("bool", versions="1+")] = True
    topics: Annotated[list[ReassignableTopic], Wire("[]struct")] = field(default_factory=list)


class ReassignablePartitionResponse(Struct):
    """Part of AlterPartitionReassignmentsResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""


class ReassignableTopicResponse(Struct):
    """Part of AlterPartitionReassignmentsResponse."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[ReassignablePartitionResponse], Wire("[]struct")] = field(default_factory=list)


class AlterPartitionReassignmentsResponse(Message):
    """API 45, response: versions 0-1, flexible."""

    meta: ClassVar[Api] = Api(
        "AlterPartitionReassignmentsResponse", 45, "response", valid="0-1", flexible="0+"
    )

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    allow_replication_factor_change: Annotated[bool, Wire("bool", versions="1+", ignorable=True)] = True
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""
    responses: Annotated[list[ReassignableTopicResponse], Wire("[]struct")] = field(default_factory=list)
