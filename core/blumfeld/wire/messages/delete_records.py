# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""DeleteRecords, API key 21: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class DeleteRecordsPartition(Struct):
    """Part of DeleteRecordsRequest."""

    partition_index: Annotated[int, Wire("int32")] = 0
    offset: Annotated[int, Wire("int64")] = 0


class DeleteRecordsTopic(Struct):
    """Part of DeleteRecordsRequest."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[DeleteRecordsPartition], Wire("[]struct")] = field(default_factory=list)


class DeleteRecordsRequest(Message):
    """API 21, request: versions 0-2, flexible from 2."""

    meta: ClassVar[Api] = Api("DeleteRecordsRequest", 21, "request", valid="0-2", flexible="2+")

    topics: Annotated[list[DeleteRecordsTopic], Wire("[]struct")] = field(default_factory=list)
    timeout_ms: Annotated[int, Wire("int32")] = 0


class DeleteRecordsPartitionResult(Struct):
    """Part of DeleteRecordsResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    low_watermark: Annotated[int, Wire("int64")] = 0
    error_code: Annotated[int, Wire("int16")] = 0


class DeleteRecordsTopicResult(Struct):
    """Part of DeleteRecordsResponse."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[DeleteRecordsPartitionResult], Wire("[]struct")] = field(default_factory=list)


class DeleteRecordsResponse(Message):
    """API 21, response: versions 0-2, flexible from 2."""

    meta: ClassVar[Api] = Api("DeleteRecordsResponse", 21, "response", valid="0-2", flexible="2+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    topics: Annotated[list[DeleteRecordsTopicResult], Wire("[]struct")] = field(default_factory=list)
