# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""TxnOffsetCommit, API key 28: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class TxnOffsetCommitRequestPartition(Struct):
    """Part of TxnOffsetCommitRequest."""

    partition_index: Annotated[int, Wire("int32")] = 0
    committed_offset: Annotated[int, Wire("int64")] = 0
    committed_leader_epoch: Annotated[int, Wire("int32", versions="2+", ignorable=True)] = -1
    committed_metadata: Annotated[str | None, Wire("string", nullable="0+")] = ""


class TxnOffsetCommitRequestTopic(Struct):
    """Part of TxnOffsetCommitRequest."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[TxnOffsetCommitRequestPartition], Wire("[]struct")] = field(
        default_factory=list
    )


class TxnOffsetCommitRequest(Message):
    """API 28, request: versions 0-5, flexible from 3."""

    meta: ClassVar[Api] = Api("TxnOffsetCommitRequest", 28, "request", valid="0-5", flexible="3+")

    transactional_id: Annotated[str, Wire("string")] = ""
    group_id: Annotated[str, Wire("string")] = ""
    producer_id: Annotated[int, Wire("int64")] = 0
    producer_epoch: Annotated[int, Wire("int16")] = 0
    generation_id: Annotated[int, Wire("int32", versions="3+")] = -1
    member_id: Annotated[str, Wire("string", versions="3+")] = ""
    group_instance_id: Annotated[str | None, Wire("string", versions="3+", nullable="3+")] = None
    topics: Annotated[list[TxnOffsetCommitRequestTopic], Wire("[]struct")] = field(default_factory=list)


class TxnOffsetCommitResponsePartition(Struct):
    """Part of TxnOffsetCommitResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0


class TxnOffsetCommitResponseTopic(Struct):
    """Part of TxnOffsetCommitResponse."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[TxnOffsetCommitResponsePartition], Wire("[]struct")] = field(
        default_factory=list
    )


class TxnOffsetCommitResponse(Message):
    """API 28, response: versions 0-5, flexible from 3."""

    meta: ClassVar[Api] = Api("TxnOffsetCommitResponse", 28, "response", valid="0-5", flexible="3+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    topics: Annotated[list[TxnOffsetCommitResponseTopic], Wire("[]struct")] = field(default_factory=list)
