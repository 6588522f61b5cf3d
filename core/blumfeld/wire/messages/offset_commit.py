# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""OffsetCommit, API key 8: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class OffsetCommitRequestPartition(Struct):
    """Part of OffsetCommitRequest."""

    partition_index: Annotated[int, Wire("int32")] = 0
    committed_offset: Annotated[int, Wire("int64")] = 0
    committed_leader_epoch: Annotated[int, Wire("int32", versions="6+", ignorable=True)] = -1
    committed_metadata: Annotated[str | None, Wire("string", nullable="0+")] = ""


class OffsetCommitRequestTopic(Struct):
    """Part of OffsetCommitRequest."""

    name: Annotated[str, Wire("string", versions="0-9", ignorable=True)] = ""
    topic_id: Annotated[bytes, Wire("uuid", versions="10+", ignorable=True)] = ZERO_UUID
    partitions: Annotated[list[OffsetCommitRequestPartition], Wire("[]struct")] = field(default_factory=list)


class OffsetCommitRequest(Message):
    """Commit a group's offsets. Versions 2-10, flexible from 8.

    ``generation_id_or_member_epoch`` is the classic generation or the KIP-848 epoch; -1 with an empty member
    id comes from a consumer outside of any group. ``retention_time_ms`` exists in versions 2-4. Topics by id
    from version 10.
    """

    meta: ClassVar[Api] = Api("OffsetCommitRequest", 8, "request", valid="2-10", flexible="8+")

    group_id: Annotated[str, Wire("string")] = ""
    generation_id_or_member_epoch: Annotated[int, Wire("int32", versions="1+", ignorable=True)] = -1
    member_id: Annotated[str, Wire("string", versions="1+", ignorable=True)] = ""
    group_instance_id: Annotated[str | None, Wire("string", versions="7+", nullable="7+")] = None
    retention_time_ms: Annotated[int, Wire("int64", versions="2-4", ignorable=True)] = -1
    topics: Annotated[list[OffsetCommitRequestTopic], Wire("[]struct")] = field(default_factory=list)


class OffsetCommitResponsePartition(Struct):
    """Part of OffsetCommitResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0


class OffsetCommitResponseTopic(Struct):
    """Part of OffsetCommitResponse."""

    name: Annotated[str, Wire("string", versions="0-9", ignorable=True)] = ""
    topic_id: Annotated[bytes, Wire("uuid", versions="10+", ignorable=True)] = ZERO_UUID
    partitions: Annotated[list[OffsetCommitResponsePartition], Wire("[]struct")] = field(default_factory=list)


class OffsetCommitResponse(Message):
    """API 8, response: versions 2-10, flexible from 8."""

    meta: ClassVar[Api] = Api("OffsetCommitResponse", 8, "response", valid="2-10", flexible="8+")

    throttle_time_ms: Annotated[int, Wire("int32", versions="3+", ignorable=True)] = 0
    topics: Annotated[list[OffsetCommitResponseTopic], Wire("[]struct")] = field(default_factory=list)
