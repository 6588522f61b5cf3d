# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""OffsetDelete, API key 47: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class OffsetDeleteRequestPartition(Struct):
    """Part of OffsetDeleteRequest."""

    partition_index: Annotated[int, Wire("int32")] = 0


class OffsetDeleteRequestTopic(Struct):
    """Part of OffsetDeleteRequest."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[OffsetDeleteRequestPartition], Wire("[]struct")] = field(default_factory=list)


class OffsetDeleteRequest(Message):
    """API 47, request: version 0, never flexible."""

    meta: ClassVar[Api] = Api("OffsetDeleteRequest", 47, "request", valid="0", flexible="none")

    group_id: Annotated[str, Wire("string")] = ""
    topics: Annotated[list[OffsetDeleteRequestTopic], Wire("[]struct")] = field(default_factory=list)


class OffsetDeleteResponsePartition(Struct):
    """Part of OffsetDeleteResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0


class OffsetDeleteResponseTopic(Struct):
    """Part of OffsetDeleteResponse."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[OffsetDeleteResponsePartition], Wire("[]struct")] = field(default_factory=list)


class OffsetDeleteResponse(Message):
    """API 47, response: version 0, never flexible."""

    meta: ClassVar[Api] = Api("OffsetDeleteResponse", 47, "response", valid="0", flexible="none")

    error_code: Annotated[int, Wire("int16")] = 0
    throttle_time_ms: Annotated[int, Wire("int32", ignorable=True)] = 0
    topics: Annotated[list[OffsetDeleteResponseTopic], Wire("[]struct")] = field(default_factory=list)
