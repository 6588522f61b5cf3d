# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""DescribeLogDirs, API key 35: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class DescribableLogDirTopic(Struct):
    """Part of DescribeLogDirsRequest."""

    topic: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class DescribeLogDirsRequest(Message):
    """API 35, request: versions 1-5, flexible from 2."""

    meta: ClassVar[Api] = Api("DescribeLogDirsRequest", 35, "request", valid="1-5", flexible="2+")

    topics: Annotated[list[DescribableLogDirTopic] | None, Wire("[]struct", nullable="0+")] = field(
        default_factory=list
    )


class DescribeLogDirsPartition(Struct):
    """Part of DescribeLogDirsResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    partition_size: Annotated[int, Wire("int64")] = 0
    offset_lag: Annotated[int, Wire("int64")] = 0
    is_future_key: Annotated[bool, Wire("bool")] = False


class DescribeLogDirsTopic(Struct):
    """Part of DescribeLogDirsResponse."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[DescribeLogDirsPartition], Wire("[]struct")] = field(default_factory=list)


class DescribeLogDirsResult(Struct):
    """Part of DescribeLogDirsResponse."""

    error_code: Annotated[int, Wire("int16")] = 0
    log_dir: Annotated[str, Wire("string")] = ""
    topics: Annotated[list[DescribeLogDirsTopic], Wire("[]struct")] = field(default_factory=list)
    total_bytes: Annotated[int, Wire("int64", versions="4+", ignorable=True)] = -1
    usable_bytes: Annotated[int, Wire("int64", versions="4+", ignorable=True)] = -1
    is_cordoned: Annotated[bool, Wire("bool", versions="5+", ignorable=True)] = False


class DescribeLogDirsResponse(Message):
    """API 35, response: versions 1-5, flexible from 2."""

    meta: ClassVar[Api] = Api("DescribeLogDirsResponse", 35, "response", valid="1-5", flexible="2+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16", versions="3+", ignorable=True)] = 0
    results: Annotated[list[DescribeLogDirsResult], Wire("[]struct")] = field(default_factory=list)
