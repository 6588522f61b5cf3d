# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""ListPartitionReassignments, API key 46: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class ListPartitionReassignmentsTopics(Struct):
    """Part of ListPartitionReassignmentsRequest."""

    name: Annotated[str, Wire("string")] = ""
    partition_indexes: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class ListPartitionReassignmentsRequest(Message):
    """API 46, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("ListPartitionReassignmentsRequest", 46, "request", valid="0", flexible="0+")

    timeout_ms: Annotated[int, Wire("int32")] = 60000
    topics: Annotated[list[ListPartitionReassignmentsTopics] | None, Wire("[]struct", nullable="0+")] = None


class OngoingPartitionReassignment(Struct):
    """Part of ListPartitionReassignmentsResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    replicas: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)
    adding_replicas: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)
    removing_replicas: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class OngoingTopicReassignment(Struct):
    """Part of ListPartitionReassignmentsResponse."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[OngoingPartitionReassignment], Wire("[]struct")] = field(default_factory=list)


class ListPartitionReassignmentsResponse(Message):
    """API 46, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("ListPartitionReassignmentsResponse", 46, "response", valid="0", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""
    topics: Annotated[list[OngoingTopicReassignment], Wire("[]struct")] = field(default_factory=list)
