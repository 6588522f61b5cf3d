# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""DeleteShareGroupOffsets, API key 92: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class DeleteShareGroupOffsetsRequestTopic(Struct):
    """Part of DeleteShareGroupOffsetsRequest."""

    topic_name: Annotated[str, Wire("string")] = ""


class DeleteShareGroupOffsetsRequest(Message):
    """API 92, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("DeleteShareGroupOffsetsRequest", 92, "request", valid="0", flexible="0+")

    group_id: Annotated[str, Wire("string")] = ""
    topics: Annotated[list[DeleteShareGroupOffsetsRequestTopic], Wire("[]struct")] = field(
        default_factory=list
    )


class DeleteShareGroupOffsetsResponseTopic(Struct):
    """Part of DeleteShareGroupOffsetsResponse."""

    topic_name: Annotated[str, Wire("string")] = ""
    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None


class DeleteShareGroupOffsetsResponse(Message):
    """API 92, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("DeleteShareGroupOffsetsResponse", 92, "response", valid="0", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None
    responses: Annotated[list[DeleteShareGroupOffsetsResponseTopic], Wire("[]struct")] = field(
        default_factory=list
    )
