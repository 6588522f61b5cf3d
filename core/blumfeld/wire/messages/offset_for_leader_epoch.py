# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""OffsetForLeaderEpoch, API key 23: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class OffsetForLeaderPartition(Struct):
    """Part of OffsetForLeaderEpochRequest."""

    partition: Annotated[int, Wire("int32")] = 0
    current_leader_epoch: Annotated[int, Wire("int32", versions="2+", ignorable=True)] = -1
    leader_epoch: Annotated[int, Wire("int32")] = 0


class OffsetForLeaderTopic(Struct):
    """Part of OffsetForLeaderEpochRequest."""

    topic: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[OffsetForLeaderPartition], Wire("[]struct")] = field(default_factory=list)


class OffsetForLeaderEpochRequest(Message):
    """API 23, request: versions 2-4, flexible from 4."""

    meta: ClassVar[Api] = Api("OffsetForLeaderEpochRequest", 23, "request", valid="2-4", flexible="4+")

    replica_id: Annotated[int, Wire("int32", versions="3+", ignorable=True)] = -2
    topics: Annotated[list[OffsetForLeaderTopic], Wire("[]struct")] = field(default_factory=list)


class EpochEndOffset(Struct):
    """Part of OffsetForLeaderEpochResponse."""

    error_code: Annotated[int, Wire("int16")] = 0
    partition: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32", versions="1+", ignorable=True)] = -1
    end_offset: Annotated[int, Wire("int64")] = -1


class OffsetForLeaderTopicResult(Struct):
    """Part of OffsetForLeaderEpochResponse."""

    topic: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[EpochEndOffset], Wire("[]struct")] = field(default_factory=list)


class OffsetForLeaderEpochResponse(Message):
    """API 23, response: versions 2-4, flexible from 4."""

    meta: ClassVar[Api] = Api("OffsetForLeaderEpochResponse", 23, "response", valid="2-4", flexible="4+")

    throttle_time_ms: Annotated[int, Wire("int32", versions="2+", ignorable=True)] = 0
    topics: Annotated[list[OffsetForLeaderTopicResult], Wire("[]struct")] = field(default_factory=list)
