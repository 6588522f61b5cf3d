# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""DeleteTopics, API key 20: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class DeleteTopicState(Struct):
    """Part of DeleteTopicsRequest."""

    name: Annotated[str | None, Wire("string", versions="6+", nullable="6+")] = None
    topic_id: Annotated[bytes, Wire("uuid", versions="6+")] = ZERO_UUID


class DeleteTopicsRequest(Message):
    """API 20, request: versions 1-6, flexible from 4."""

    meta: ClassVar[Api] = Api("DeleteTopicsRequest", 20, "request", valid="1-6", flexible="4+")

    topics: Annotated[list[DeleteTopicState], Wire("[]struct", versions="6+")] = field(default_factory=list)
    topic_names: Annotated[list[str], Wire("[]string", versions="0-5", ignorable=True)] = field(
        default_factory=list
    )
    timeout_ms: Annotated[int, Wire("int32")] = 0


class DeletableTopicResult(Struct):
    """Part of DeleteTopicsResponse."""

    name: Annotated[str | None, Wire("string", nullable="6+")] = ""
    topic_id: Annotated[bytes, Wire("uuid", versions="6+", ignorable=True)] = ZERO_UUID
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", versions="5+", nullable="5+", ignorable=True)] = None


class DeleteTopicsResponse(Message):
    """API 20, response: versions 1-6, flexible from 4."""

    meta: ClassVar[Api] = Api("DeleteTopicsResponse", 20, "response", valid="1-6", flexible="4+")

    throttle_time_ms: Annotated[int, Wire("int32", versions="1+", ignorable=True)] = 0
    responses: Annotated[list[DeletableTopicResult], Wire("[]struct")] = field(default_factory=list)
