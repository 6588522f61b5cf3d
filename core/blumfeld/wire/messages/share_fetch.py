# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""ShareFetch, API key 78: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID, Records
from blumfeld.wire.schema import Api, Message, Struct, Wire


class AcknowledgementBatch(Struct):
    """Part of ShareFetchRequest."""

    first_offset: Annotated[int, Wire("int64")] = 0
    last_offset: Annotated[int, Wire("int64")] = 0
    acknowledge_types: Annotated[list[int], Wire("[]int8")] = field(default_factory=list)


class FetchPartition(Struct):
    """Part of ShareFetchRequest."""

    partition_index: Annotated[int, Wire("int32")] = 0
    partition_max_bytes: Annotated[int, Wire("int32", versions="0")] = 0
    acknowledgement_batches: Annotated[list[AcknowledgementBatch], Wire("[]struct")] = field(
        default_factory=list
    )


class FetchTopic(Struct):
    """Part of ShareFetchRequest."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[FetchPartition], Wire("[]struct")] = field(default_factory=list)


class ForgottenTopic(Struct):
    """Part of ShareFetchRequest."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class ShareFetchRequest(Message):
    """API 78, request: versions 1-2, flexible from 0."""

    meta: ClassVar[Api] = Api("ShareFetchRequest", 78, "request", valid="1-2", flexible="0+")

    group_id: Annotated[str | None, Wire("string", nullable="0+")] = None
    member_id: Annotated[str | None, Wire("string", nullable="0+")] = ""
    share_session_epoch: Annotated[int, Wire("int32")] = 0
    max_wait_ms: Annotated[int, Wire("int32")] = 0
    min_bytes: Annotated[int, Wire("int32")] = 0
    max_bytes: Annotated[int, Wire("int32")] = 2**31 - 1
    max_records: Annotated[int, Wire("int32", versions="1+")] = 0
    batch_size: Annotated[int, Wire("int32", versions="1+")] = 0
    share_acquire_mode: Annotated[int, Wire("int8", versions="2+", ignorable=True)] = 0
    is_renew_ack: Annotated[bool, Wire("bool", versions="2+")] = False
    topics: Annotated[list[FetchTopic], Wire("[]struct")] = field(default_factory=list)
    forgotten_topics_data: Annotated[list[ForgottenTopic], Wire("[]struct")] = field(default_factory=list)


class LeaderIdAndEpoch(Struct):
    """Part of ShareFetchResponse."""

    leader_id: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = 0


class AcquiredRecords(Struct):
    """Part of ShareFetchResponse."""

    first_offset: Annotated[int, Wire("int64")] = 0
    last_offset: Annotated[int, Wire("int64")] = 0
    delivery_count: Annotated[int, Wire("int16")] = 0


class PartitionData(Struct):
    """Part of ShareFetchResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None
    acknowledge_error_code: Annotated[int, Wire("int16")] = 0
    acknowledge_error_message: Annotated[str | None, Wire("string", nullable="0+")] = None
    current_leader: Annotated[LeaderIdAndEpoch, Wire("struct")] = field(default_factory=LeaderIdAndEpoch)
    records: Annotated[Records | None, Wire("records", nullable="0")] = None
    acquired_records: Annotated[list[AcquiredRecords], Wire("[]struct")] = field(default_factory=list)


class ShareFetchableTopicResponse(Struct):
    """Part of ShareFetchResponse."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[PartitionData], Wire("[]struct")] = field(default_factory=list)


class NodeEndpoint(Struct):
    """Part of ShareFetchResponse."""

    node_id: Annotated[int, Wire("int32")] = 0
    host: Annotated[str, Wire("string")] = ""
    port: Annotated[int, Wire("int32")] = 0
    rack: Annotated[str | None, Wire("string", nullable="0+")] = None


class ShareFetchResponse(Message):
    """API 78, response: versions 1-2, flexible from 0."""

    meta: ClassVar[Api] = Api("ShareFetchResponse", 78, "response", valid="1-2", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None
    acquisition_lock_timeout_ms: Annotated[int, Wire("int32", versions="1+")] = 0
    responses: Annotated[list[ShareFetchableTopicResponse], Wire("[]struct")] = field(default_factory=list)
    node_endpoints: Annotated[list[NodeEndpoint], Wire("[]struct")] = field(default_factory=list)
