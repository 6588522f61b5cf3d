# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""ReadShareGroupState, API key 84: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class PartitionData(Struct):
    """Part of ReadShareGroupStateRequest."""

    partition: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = 0


class ReadStateData(Struct):
    """Part of ReadShareGroupStateRequest."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[PartitionData], Wire("[]struct")] = field(default_factory=list)


class ReadShareGroupStateRequest(Message):
    """API 84, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("ReadShareGroupStateRequest", 84, "request", valid="0", flexible="0+")

    group_id: Annotated[str, Wire("string")] = ""
    topics: Annotated[list[ReadStateData], Wire("[]struct")] = field(default_factory=list)


class StateBatch(Struct):
    """Part of ReadShareGroupStateResponse."""

    first_offset: Annotated[int, Wire("int64")] = 0
    last_offset: Annotated[int, Wire("int64")] = 0
    delivery_state: Annotated[int, Wire("int8")] = 0
    delivery_count: Annotated[int, Wire("int16")] = 0


class PartitionResult(Struct):
    """Part of ReadShareGroupStateResponse."""

    partition: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None
    state_epoch: Annotated[int, Wire("int32")] = 0
    start_offset: Annotated[int, Wire("int64")] = 0
    state_batches: Annotated[list[StateBatch], Wire("[]struct")] = field(default_factory=list)


class ReadStateResult(Struct):
    """Part of ReadShareGroupStateResponse."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[PartitionResult], Wire("[]struct")] = field(default_factory=list)


class ReadShareGroupStateResponse(Message):
    """API 84, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("ReadShareGroupStateResponse", 84, "response", valid="0", flexible="0+")

    results: Annotated[list[ReadStateResult], Wire("[]struct")] = field(default_factory=list)
