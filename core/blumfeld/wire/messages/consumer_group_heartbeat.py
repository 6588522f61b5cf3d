# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""ConsumerGroupHeartbeat, API key 68: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class TopicPartitions(Struct):
    """Part of ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class ConsumerGroupHeartbeatRequest(Message):
    """API 68, request: versions 0-1, flexible."""

    meta: ClassVar[Api] = Api("ConsumerGroupHeartbeatRequest", 68, "request", valid="0-1", flexible="0+")

    group_id: Annotated[str, Wire("string")] = ""
    member_id: Annotated[str, Wire("string")] = ""
    member_epoch: Annotated[int, Wire("int32")] = 0
    instance_id: Annotated[str | None, Wire("string", nullable="0+")] = None
    rack_id: Annotated[str | None, Wire("string", nullable="0+")] = None
    rebalance_timeout_ms: Annotated[int, Wire("int32")] = -1
    subscribed_topic_names: Annotated[list[str] | None, Wire("[]string", nullable="0+")] = None
    subscribed_topic_regex: Annotated[str | None, Wire("string", versions="1+", nullable="1+")] = None
    server_assignor: Annotated[str | None, Wire("string", nullable="0+")] = None
    topic_partitions: Annotated[list[TopicPartitions] | None, Wire("[]struct", nullable="0+")] = None


class Assignment(Struct):
    """Part of ConsumerGroupHeartbeatResponse."""

    topic_partitions: Annotated[list[TopicPartitions], Wire("[]struct")] = field(default_factory=list)


class ConsumerGroupHeartbeatResponse(Message):
    """API 68, response: versions 0-1, flexible."""

    meta: ClassVar[Api] = Api("ConsumerGroupHeartbeatResponse", 68, "response", valid="0-1", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None
    member_id: Annotated[str | None, Wire("string", nullable="0+")] = None
    member_epoch: Annotated[int, Wire("int32")] = 0
    heartbeat_interval_ms: Annotated[int, Wire("int32")] = 0
    assignment: Annotated[Assignment | None, Wire("struct", nullable="0+")] = None
