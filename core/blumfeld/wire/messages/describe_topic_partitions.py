# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""DescribeTopicPartitions, API key 75: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class TopicRequest(Struct):
    """Part of DescribeTopicPartitionsRequest."""

    name: Annotated[str, Wire("string")] = ""


class Cursor(Struct):
    """Part of DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse."""

    topic_name: Annotated[str, Wire("string")] = ""
    partition_index: Annotated[int, Wire("int32")] = 0


class DescribeTopicPartitionsRequest(Message):
    """API 75, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("DescribeTopicPartitionsRequest", 75, "request", valid="0", flexible="0+")

    topics: Annotated[list[TopicRequest], Wire("[]struct")] = field(default_factory=list)
    response_partition_limit: Annotated[int, Wire("int32")] = 2000
    cursor: Annotated[Cursor | None, Wire("struct", nullable="0+")] = None


class DescribeTopicPartitionsResponsePartition(Struct):
    """Part of DescribeTopicPartitionsResponse."""

    error_code: Annotated[int, Wire("int16")] = 0
    partition_index: Annotated[int, Wire("int32")] = 0
    leader_id: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32", ignorable=True)] = -1
    replica_nodes: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)
    isr_nodes: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)
    eligible_leader_replicas: Annotated[list[int] | None, Wire("[]int32", nullable="0+")] = None
    last_known_elr: Annotated[list[int] | None, Wire("[]int32", nullable="0+")] = None
    offline_replicas: Annotated[list[int], Wire("[]int32", ignorable=True)] = field(default_factory=list)


class DescribeTopicPartitionsResponseTopic(Struct):
    """Part of DescribeTopicPartitionsResponse."""

    error_code: Annotated[int, Wire("int16")] = 0
    name: Annotated[str | None, Wire("string", nullable="0+")] = ""
    topic_id: Annotated[bytes, Wire("uuid", ignorable=True)] = ZERO_UUID
    is_internal: Annotated[bool, Wire("bool", ignorable=True)] = False
    partitions: Annotated[list[DescribeTopicPartitionsResponsePartition], Wire("[]struct")] = field(
        default_factory=list
    )
    topic_authorized_operations: Annotated[int, Wire("int32")] = -(2**31)


class DescribeTopicPartitionsResponse(Message):
    """API 75, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("DescribeTopicPartitionsResponse", 75, "response", valid="0", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32", ignorable=True)] = 0
    topics: Annotated[list[DescribeTopicPartitionsResponseTopic], Wire("[]struct")] = field(
        default_factory=list
    )
    next_cursor: Annotated[Cursor | None, Wire("struct", nullable="0+")] = None
