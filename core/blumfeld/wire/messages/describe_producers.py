# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""DescribeProducers, API key 61: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class TopicRequest(Struct):
    """Part of DescribeProducersRequest."""

    name: Annotated[str, Wire("string")] = ""
    partition_indexes: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class DescribeProducersRequest(Message):
    """API 61, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("DescribeProducersRequest", 61, "request", valid="0", flexible="0+")

    topics: Annotated[list[TopicRequest], Wire("[]struct")] = field(default_factory=list)


class ProducerState(Struct):
    """Part of DescribeProducersResponse."""

    producer_id: Annotated[int, Wire("int64")] = 0
    producer_epoch: Annotated[int, Wire("int32")] = 0
    last_sequence: Annotated[int, Wire("int32")] = -1
    last_timestamp: Annotated[int, Wire("int64")] = -1
    coordinator_epoch: Annotated[int, Wire("int32")] = 0
    current_txn_start_offset: Annotated[int, Wire("int64")] = -1


class PartitionResponse(Struct):
    """Part of DescribeProducersResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None
    active_producers: Annotated[list[ProducerState], Wire("[]struct")] = field(default_factory=list)


class TopicResponse(Struct):
    """Part of DescribeProducersResponse."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[PartitionResponse], Wire("[]struct")] = field(default_factory=list)


class DescribeProducersResponse(Message):
    """API 61, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("DescribeProducersResponse", 61, "response", valid="0", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    topics: Annotated[list[TopicResponse], Wire("[]struct")] = field(default_factory=list)
