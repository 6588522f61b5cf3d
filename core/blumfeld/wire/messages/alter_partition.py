# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""AlterPartition, API key 56: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class BrokerState(Struct):
    """Part of AlterPartitionRequest."""

    broker_id: Annotated[int, Wire("int32", versions="3+")] = 0
    broker_epoch: Annotated[int, Wire("int64", versions="3+")] = -1


class RequestPartitionData(Struct):
    """Part of AlterPartitionRequest."""

    partition_index: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = 0
    new_isr: Annotated[list[int], Wire("[]int32", versions="0-2")] = field(default_factory=list)
    new_isr_with_epochs: Annotated[list[BrokerState], Wire("[]struct", versions="3+")] = field(
        default_factory=list
    )
    leader_recovery_state: Annotated[int, Wire("int8", versions="1+")] = 0
    partition_epoch: Annotated[int, Wire("int32")] = 0


class RequestTopicData(Struct):
    """Part of AlterPartitionRequest."""

    topic_id: Annotated[bytes, Wire("uuid", versions="2+", ignorable=True)] = ZERO_UUID
    partitions: Annotated[list[RequestPartitionData], Wire("[]struct")] = field(default_factory=list)


class AlterPartitionRequest(Message):
    """API 56, request: versions 2-3, flexible from 0."""

    meta: ClassVar[Api] = Api("AlterPartitionRequest", 56, "request", valid="2-3", flexible="0+")

    broker_id: Annotated[int, Wire("int32")] = 0
    broker_epoch: Annotated[int, Wire("int64")] = -1
    topics: Annotated[list[RequestTopicData], Wire("[]struct")] = field(default_factory=list)


class ResponsePartitionData(Struct):
    """Part of AlterPartitionResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    leader_id: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = 0
    isr: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)
    leader_recovery_state: Annotated[int, Wire("int8", versions="1+", ignorable=True)] = 0
    partition_epoch: Annotated[int, Wire("int32")] = 0


class ResponseTopicData(Struct):
    """Part of AlterPartitionResponse."""

    topic_id: Annotated[bytes, Wire("uuid", versions="2+", ignorable=True)] = ZERO_UUID
    partitions: Annotated[list[ResponsePartitionData], Wire("[]struct")] = field(default_factory=list)


class AlterPartitionResponse(Message):
    """API 56, response: versions 2-3, flexible from 0."""

    meta: ClassVar[Api] = Api("AlterPartitionResponse", 56, "response", valid="2-3", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    topics: Annotated[list[ResponseTopicData], Wire("[]struct")] = field(default_factory=list)
