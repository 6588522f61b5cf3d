# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""DeleteShareGroupState, API key 86: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class PartitionData(Struct):
    """Part of DeleteShareGroupStateRequest."""

    partition: Annotated[int, Wire("int32")] = 0


class DeleteStateData(Struct):
    """Part of DeleteShareGroupStateRequest."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[PartitionData], Wire("[]struct")] = field(default_factory=list)


class DeleteShareGroupStateRequest(Message):
    """API 86, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("DeleteShareGroupStateRequest", 86, "request", valid="0", flexible="0+")

    group_id: Annotated[str, Wire("string")] = ""
    topics: Annotated[list[DeleteStateData], Wire("[]struct")] = field(default_factory=list)


class PartitionResult(Struct):
    """Part of DeleteShareGroupStateResponse."""

    partition: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None


class DeleteStateResult(Struct):
    """Part of DeleteShareGroupStateResponse."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[PartitionResult], Wire("[]struct")] = field(default_factory=list)


class DeleteShareGroupStateResponse(Message):
    """API 86, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("DeleteShareGroupStateResponse", 86, "response", valid="0", flexible="0+")

    results: Annotated[list[DeleteStateResult], Wire("[]struct")] = field(default_factory=list)
