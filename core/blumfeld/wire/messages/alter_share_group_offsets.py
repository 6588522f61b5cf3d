# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""AlterShareGroupOffsets, API key 91: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class AlterShareGroupOffsetsRequestPartition(Struct):
    """Part of AlterShareGroupOffsetsRequest."""

    partition_index: Annotated[int, Wire("int32")] = 0
    start_offset: Annotated[int, Wire("int64")] = 0


class AlterShareGroupOffsetsRequestTopic(Struct):
    """Part of AlterShareGroupOffsetsRequest."""

    topic_name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[AlterShareGroupOffsetsRequestPartition], Wire("[]struct")] = field(
        default_factory=list
    )


class AlterShareGroupOffsetsRequest(Message):
    """API 91, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("AlterShareGroupOffsetsRequest", 91, "request", valid="0", flexible="0+")

    group_id: Annotated[str, Wire("string")] = ""
    topics: Annotated[list[AlterShareGroupOffsetsRequestTopic], Wire("[]struct")] = field(
        default_factory=list
    )


class AlterShareGroupOffsetsResponsePartition(Struct):
    """Part of AlterShareGroupOffsetsResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None


class AlterShareGroupOffsetsResponseTopic(Struct):
    """Part of AlterShareGroupOffsetsResponse."""

    topic_name: Annotated[str, Wire("string")] = ""
    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[AlterShareGroupOffsetsResponsePartition], Wire("[]struct")] = field(
        default_factory=list
    )


class AlterShareGroupOffsetsResponse(Message):
    """API 91, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("AlterShareGroupOffsetsResponse", 91, "response", valid="0", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None
    responses: Annotated[list[AlterShareGroupOffsetsResponseTopic], Wire("[]struct")] = field(
        default_factory=list
    )
