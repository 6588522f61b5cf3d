# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""ReadShareGroupStateSummary, API key 87: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class PartitionData(Struct):
    """Part of ReadShareGroupStateSummaryRequest."""

    partition: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = 0


class ReadStateSummaryData(Struct):
    """Part of ReadShareGroupStateSummaryRequest."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[PartitionData], Wire("[]struct")] = field(default_factory=list)


class ReadShareGroupStateSummaryRequest(Message):
    """API 87, request: versions 0-1, flexible."""

    meta: ClassVar[Api] = Api("ReadShareGroupStateSummaryRequest", 87, "request", valid="0-1", flexible="0+")

    group_id: Annotated[str, Wire("string")] = ""
    topics: Annotated[list[ReadStateSummaryData], Wire("[]struct")] = field(default_factory=list)


class PartitionResult(Struct):
    """Part of ReadShareGroupStateSummaryResponse."""

    partition: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None
    state_epoch: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = 0
    start_offset: Annotated[int, Wire("int64")] = 0
    delivery_complete_count: Annotated[int, Wire("int32", versions="1+", ignorable=True)] = -1


class ReadStateSummaryResult(Struct):
    """Part of ReadShareGroupStateSummaryResponse."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[PartitionResult], Wire("[]struct")] = field(default_factory=list)


class ReadShareGroupStateSummaryResponse(Message):
    """API 87, response: versions 0-1, flexible."""

    meta: ClassVar[Api] = Api(
        "ReadShareGroupStateSummaryResponse", 87, "response", valid="0-1", flexible="0+"
    )

    results: Annotated[list[ReadStateSummaryResult], Wire("[]struct")] = field(default_factory=list)
