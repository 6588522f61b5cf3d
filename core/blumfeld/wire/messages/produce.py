# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""Produce, API key 0: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID, Records
from blumfeld.wire.schema import Api, Message, Struct, Wire


class PartitionProduceData(Struct):
    """One partition's batch: exactly one of format 2, decoded as a view of the frame. Null is INVALID_RECORD."""

    index: Annotated[int, Wire("int32")] = 0
    records: Annotated[Records | None, Wire("records", nullable="0+")] = None


class TopicProduceData(Struct):
    """Part of ProduceRequest."""

    name: Annotated[str, Wire("string", versions="0-12", ignorable=True)] = ""
    topic_id: Annotated[bytes, Wire("uuid", versions="13+", ignorable=True)] = ZERO_UUID
    partition_data: Annotated[list[PartitionProduceData], Wire("[]struct")] = field(default_factory=list)


class ProduceRequest(Message):
    """Append batches to partitions. Versions 3-13, flexible from 9.

    From version 13 topics are named by id, before by name. ``acks`` is 0 (no answer is sent at all), 1 or -1
    (all in the ISR); ``timeout_ms`` bounds the wait for the ISR only. ``transactional_id`` must be there if
    any batch has the transactional bit (KIP-98). zstd needs version 7 (KIP-110).
    """

    meta: ClassVar[Api] = Api("ProduceRequest", 0, "request", valid="3-13", flexible="9+")

    transactional_id: Annotated[str | None, Wire("string", versions="3+", nullable="3+")] = None
    acks: Annotated[int, Wire("int16")] = 0
    timeout_ms: Annotated[int, Wire("int32")] = 0
    topic_data: Annotated[list[TopicProduceData], Wire("[]struct")] = field(default_factory=list)


class BatchIndexAndErrorMessage(Struct):
    """Part of ProduceResponse."""

    batch_index: Annotated[int, Wire("int32", versions="8+")] = 0
    batch_index_error_message: Annotated[str | None, Wire("string", versions="8+", nullable="8+")] = None


class LeaderIdAndEpoch(Struct):
    """Part of ProduceResponse."""

    leader_id: Annotated[int, Wire("int32", versions="10+")] = -1
    leader_epoch: Annotated[int, Wire("int32", versions="10+")] = -1


class PartitionProduceResponse(Struct):
    """One partition's outcome.

    ``base_offset`` is -1 after an error, for a duplicate the offset of the original. ``log_append_time_ms``
    is -1 unless the topic wants LogAppendTime.
    """

    index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    base_offset: Annotated[int, Wire("int64")] = 0
    log_append_time_ms: Annotated[int, Wire("int64", versions="2+", ignorable=True)] = -1
    log_start_offset: Annotated[int, Wire("int64", versions="5+", ignorable=True)] = -1
    record_errors: Annotated[
        list[BatchIndexAndErrorMessage], Wire("[]struct", versions="8+", ignorable=True)
    ] = field(default_factory=list)
    error_message: Annotated[str | None, Wire("string", versions="8+", nullable="8+", ignorable=True)] = None
    current_leader: Annotated[LeaderIdAndEpoch, Wire("struct", versions="10+", tag=0, tagged="10+")] = field(
        default_factory=LeaderIdAndEpoch
    )


class TopicProduceResponse(Struct):
    """Part of ProduceResponse."""

    name: Annotated[str, Wire("string", versions="0-12", ignorable=True)] = ""
    topic_id: Annotated[bytes, Wire("uuid", versions="13+", ignorable=True)] = ZERO_UUID
    partition_responses: Annotated[list[PartitionProduceResponse], Wire("[]struct")] = field(
        default_factory=list
    )


class NodeEndpoint(Struct):
    """Part of ProduceResponse."""

    node_id: Annotated[int, Wire("int32", versions="10+")] = 0
    host: Annotated[str, Wire("string", versions="10+")] = ""
    port: Annotated[int, Wire("int32", versions="10+")] = 0
    rack: Annotated[str | None, Wire("string", versions="10+", nullable="10+")] = None


class ProduceResponse(Message):
    """The outcome of each batch. Versions 3-13, flexible from 9.

    From version 10 ``current_leader`` and ``node_endpoints`` tell a client where to go when the error is
    NOT_LEADER_OR_FOLLOWER (KIP-951). From version 8 ``record_errors`` name the records that were refused
    (KIP-467).
    """

    meta: ClassVar[Api] = Api("ProduceResponse", 0, "response", valid="3-13", flexible="9+")

    responses: Annotated[list[TopicProduceResponse], Wire("[]struct")] = field(default_factory=list)
    throttle_time_ms: Annotated[int, Wire("int32", versions="1+", ignorable=True)] = 0
    node_endpoints: Annotated[list[NodeEndpoint], Wire("[]struct", versions="10+", tag=0, tagged="10+")] = (
        field(default_factory=list)
    )
