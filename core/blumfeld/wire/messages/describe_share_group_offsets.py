# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""DescribeShareGroupOffsets, API key 90: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class DescribeShareGroupOffsetsRequestTopic(Struct):
    """Part of DescribeShareGroupOffsetsRequest."""

    topic_name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class DescribeShareGroupOffsetsRequestGroup(Struct):
    """Part of DescribeShareGroupOffsetsRequest."""

    group_id: Annotated[str, Wire("string")] = ""
    topics: Annotated[list[DescribeShareGroupOffsetsRequestTopic] | None, Wire("[]struct", nullable="0+")] = (
        field(default_factory=list)
    )


class DescribeShareGroupOffsetsRequest(Message):
    """API 90, request: versions 0-1, flexible."""

    meta: ClassVar[Api] = Api("DescribeShareGroupOffsetsRequest", 90, "request", valid="0-1", flexible="0+")

    groups: Annotated[list[DescribeShareGroupOffsetsRequestGroup], Wire("[]struct")] = field(
        default_factory=list
    )


class DescribeShareGroupOffsetsResponsePartition(Struct):
    """Part of DescribeShareGroupOffsetsResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    start_offset: Annotated[int, Wire("int64")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = 0
    lag: Annotated[int, Wire("int64", versions="1+", ignorable=True)] = -1
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None


class DescribeShareGroupOffsetsResponseTopic(Struct):
    """Part of DescribeShareGroupOffsetsResponse."""

    topic_name: Annotated[str, Wire("string")] = ""
    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[DescribeShareGroupOffsetsResponsePartition], Wire("[]struct")] = field(
        default_factory=list
    )


class DescribeShareGroupOffsetsResponseGroup(Struct):
    """Part of DescribeShareGroupOffsetsResponse."""

    group_id: Annotated[str, Wire("string")] = ""
    topics: Annotated[list[DescribeShareGroupOffsetsResponseTopic], Wire("[]struct")] = field(
        default_factory=list
    )
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None


class DescribeShareGroupOffsetsResponse(Message):
    """API 90, response: versions 0-1, flexible."""

    meta: ClassVar[Api] = Api("DescribeShareGroupOffsetsResponse", 90, "response", valid="0-1", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    groups: Annotated[list[DescribeShareGroupOffsetsResponseGroup], Wire("[]struct")] = field(
        default_factory=list
    )
