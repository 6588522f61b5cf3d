# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""ShareGroupHeartbeat, API key 76: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class ShareGroupHeartbeatRequest(Message):
    """API 76, request: version 1, flexible from 0."""

    meta: ClassVar[Api] = Api("ShareGroupHeartbeatRequest", 76, "request", valid="1", flexible="0+")

    group_id: Annotated[str, Wire("string")] = ""
    member_id: Annotated[str, Wire("string")] = ""
    member_epoch: Annotated[int, Wire("int32")] = 0
    rack_id: Annotated[str | None, Wire("string", nullable="0+")] = None
    subscribed_topic_names: Annotated[list[str] | None, Wire("[]string", nullable="0+")] = None


class TopicPartitions(Struct):
    """Part of ShareGroupHeartbeatResponse."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class Assignment(Struct):
    """Part of ShareGroupHeartbeatResponse."""

    topic_partitions: Annotated[list[TopicPartitions], Wire("[]struct")] = field(default_factory=list)


class ShareGroupHeartbeatResponse(Message):
    """API 76, response: version 1, flexible from 0."""

    meta: ClassVar[Api] = Api("ShareGroupHeartbeatResponse", 76, "response", valid="1", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None
    member_id: Annotated[str | None, Wire("string", nullable="0+")] = None
    member_epoch: Annotated[int, Wire("int32")] = 0
    heartbeat_interval_ms: Annotated[int, Wire("int32")] = 0
    assignment: Annotated[Assignment | None, Wire("struct", nullable="0+")] = None
