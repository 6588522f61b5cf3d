# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""ShareGroupDescribe, API key 77: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class ShareGroupDescribeRequest(Message):
    """API 77, request: version 1, flexible from 0."""

    meta: ClassVar[Api] = Api("ShareGroupDescribeRequest", 77, "request", valid="1", flexible="0+")

    group_ids: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
    include_authorized_operations: Annotated[bool, Wire("bool")] = False


class TopicPartitions(Struct):
    """Part of ShareGroupDescribeResponse."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    topic_name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class Assignment(Struct):
    """Part of ShareGroupDescribeResponse."""

    topic_partitions: Annotated[list[TopicPartitions], Wire("[]struct")] = field(default_factory=list)


class Member(Struct):
    """Part of ShareGroupDescribeResponse."""

    member_id: Annotated[str, Wire("string")] = ""
    rack_id: Annotated[str | None, Wire("string", nullable="0+")] = None
    member_epoch: Annotated[int, Wire("int32")] = 0
    client_id: Annotated[str, Wire("string")] = ""
    client_host: Annotated[str, Wire("string")] = ""
    subscribed_topic_names: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
    assignment: Annotated[Assignment, Wire("struct")] = field(default_factory=Assignment)


class DescribedGroup(Struct):
    """Part of ShareGroupDescribeResponse."""

    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None
    group_id: Annotated[str, Wire("string")] = ""
    group_state: Annotated[str, Wire("string")] = ""
    group_epoch: Annotated[int, Wire("int32")] = 0
    assignment_epoch: Annotated[int, Wire("int32")] = 0
    assignor_name: Annotated[str, Wire("string")] = ""
    members: Annotated[list[Member], Wire("[]struct")] = field(default_factory=list)
    authorized_operations: Annotated[int, Wire("int32")] = -(2**31)


class ShareGroupDescribeResponse(Message):
    """API 77, response: version 1, flexible from 0."""

    meta: ClassVar[Api] = Api("ShareGroupDescribeResponse", 77, "response", valid="1", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    groups: Annotated[list[DescribedGroup], Wire("[]struct")] = field(default_factory=list)
