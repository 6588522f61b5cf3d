# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""WriteShareGroupState, API key 85: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class StateBatch(Struct):
    """Part of WriteShareGroupStateRequest."""

    first_offset: Annotated[int, Wire("int64")] = 0
    last_offset: Annotated[int, Wire("int64")] = 0
    delivery_state: Annotated[int, Wire("int8")] = 0
    delivery_count: Annotated[int, Wire("int16")] = 0


class PartitionData(Struct):
    """Part of WriteShareGroupStateRequest."""

    partition: Annotated[int, Wire("int32")] = 0
    state_epoch: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = 0
    start_offset: Annotated[int, Wire("int64")] = 0
    delivery_complete_count: Annotated[int, Wire("int32", versions="1+", ignorable=True)] = -1
    state_batches: Annotated[list[StateBatch], Wire("[]struct")] = field(default_factory=list)


class WriteStateData(Struct):
    """Part of WriteShareGroupStateRequest."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[PartitionData], Wire("[]struct")] = field(default_factory=list)


class WriteShareGroupStateRequest(Message):
    """API 85, request: versions 0-1, flexible."""

    meta: ClassVar[Api] = Api("WriteShareGroupStateRequest", 85, "request", valid="0-1", flexible="0+")

    group_id: Annotated[str, Wire("string")] = ""
    topics: Annotated[list[WriteStateData], Wire("[]struct")] = field(default_factory=list)


class PartitionResult(Struct):
    """Part of WriteShareGroupStateResponse."""

    partition: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None


class WriteStateResult(Struct):
    """Part of WriteShareGroupStateResponse."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[PartitionResult], Wire("[]struct")] = field(default_factory=list)


class WriteShareGroupStateResponse(Message):
    """API 85, response: versions 0-1, flexible."""

    meta: ClassVar[Api] = Api("WriteShareGroupStateResponse", 85, "response", valid="0-1", flexible="0+")

    results: Annotated[list[WriteStateResult], Wire("[]struct")] = field(default_factory=list)
