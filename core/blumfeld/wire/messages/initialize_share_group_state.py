# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""InitializeShareGroupState, API key 83: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class PartitionData(Struct):
    """Part of InitializeShareGroupStateRequest."""

    partition: Annotated[int, Wire("int32")] = 0
    state_epoch: Annotated[int, Wire("int32")] = 0
    start_offset: Annotated[int, Wire("int64")] = 0


class InitializeStateData(Struct):
    """Part of InitializeShareGroupStateRequest."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[PartitionData], Wire("[]struct")] = field(default_factory=list)


class InitializeShareGroupStateRequest(Message):
    """API 83, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("InitializeShareGroupStateRequest", 83, "request", valid="0", flexible="0+")

    group_id: Annotated[str, Wire("string")] = ""
    topics: Annotated[list[InitializeStateData], Wire("[]struct")] = field(default_factory=list)


class PartitionResult(Struct):
    """Part of InitializeShareGroupStateResponse."""

    partition: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None


class InitializeStateResult(Struct):
    """Part of InitializeShareGroupStateResponse."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[PartitionResult], Wire("[]struct")] = field(default_factory=list)


class InitializeShareGroupStateResponse(Message):
    """API 83, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("InitializeShareGroupStateResponse", 83, "response", valid="0", flexible="0+")

    results: Annotated[list[InitializeStateResult], Wire("[]struct")] = field(default_factory=list)
