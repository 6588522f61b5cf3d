# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""ShareAcknowledge, API key 79: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class AcknowledgementBatch(Struct):
    """Part of ShareAcknowledgeRequest."""

    first_offset: Annotated[int, Wire("int64")] = 0
    last_offset: Annotated[int, Wire("int64")] = 0
    acknowledge_types: Annotated[list[int], Wire("[]int8")] = field(default_factory=list)


class AcknowledgePartition(Struct):
    """Part of ShareAcknowledgeRequest."""

    partition_index: Annotated[int, Wire("int32")] = 0
    acknowledgement_batches: Annotated[list[AcknowledgementBatch], Wire("[]struct")] = field(
        default_factory=list
    )


class AcknowledgeTopic(Struct):
    """Part of ShareAcknowledgeRequest."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[AcknowledgePartition], Wire("[]struct")] = field(default_factory=list)


class ShareAcknowledgeRequest(Message):
    """API 79, request: versions 1-2, flexible from 0."""

    meta: ClassVar[Api] = Api("ShareAcknowledgeRequest", 79, "request", valid="1-2", flexible="0+")

    group_id: Annotated[str | None, Wire("string", nullable="0+")] = None
    member_id: Annotated[str | None, Wire("string", nullable="0+")] = ""
    share_session_epoch: Annotated[int, Wire("int32")] = 0
    is_renew_ack: Annotated[bool, Wire("bool", versions="2+")] = False
    topics: Annotated[list[AcknowledgeTopic], Wire("[]struct")] = field(default_factory=list)


class LeaderIdAndEpoch(Struct):
    """Part of ShareAcknowledgeResponse."""

    leader_id: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = 0


class PartitionData(Struct):
    """Part of ShareAcknowledgeResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None
    current_leader: Annotated[LeaderIdAndEpoch, Wire("struct")] = field(default_factory=LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Struct):
    """Part of ShareAcknowledgeResponse."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[PartitionData], Wire("[]struct")] = field(default_factory=list)


class NodeEndpoint(Struct):
    """Part of ShareAcknowledgeResponse."""

    node_id: Annotated[int, Wire("int32")] = 0
    host: Annotated[str, Wire("string")] = ""
    port: Annotated[int, Wire("int32")] = 0
    rack: Annotated[str | None, Wire("string", nullable="0+")] = None


class ShareAcknowledgeResponse(Message):
    """API 79, response: versions 1-2, flexible from 0."""

    meta: ClassVar[Api] = Api("ShareAcknowledgeResponse", 79, "response", valid="1-2", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None
    acquisition_lock_timeout_ms: Annotated[int, Wire("int32", versions="2+", ignorable=True)] = 0
    responses: Annotated[list[ShareAcknowledgeTopicResponse], Wire("[]struct")] = field(default_factory=list)
    node_endpoints: Annotated[list[NodeEndpoint], Wire("[]struct")] = field(default_factory=list)
