# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""ListOffsets, API key 2: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class ListOffsetsPartition(Struct):
    """Part of ListOffsetsRequest."""

    partition_index: Annotated[int, Wire("int32")] = 0
    current_leader_epoch: Annotated[int, Wire("int32", versions="4+", ignorable=True)] = -1
    timestamp: Annotated[int, Wire("int64")] = 0


class ListOffsetsTopic(Struct):
    """Part of ListOffsetsRequest."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[ListOffsetsPartition], Wire("[]struct")] = field(default_factory=list)


class ListOffsetsRequest(Message):
    """Look offsets up by time. Versions 1-11, flexible from 6.

    Beside times from 0 on, a partition may ask for -1 latest, -2 earliest, -3 the greatest timestamp (version
    7), -4 earliest local (8), -5 latest tiered (9), -6 earliest not yet tiered (11). Latest is bounded by
    ``isolation_level``.
    """

    meta: ClassVar[Api] = Api("ListOffsetsRequest", 2, "request", valid="1-11", flexible="6+")

    replica_id: Annotated[int, Wire("int32")] = 0
    isolation_level: Annotated[int, Wire("int8", versions="2+")] = 0
    topics: Annotated[list[ListOffsetsTopic], Wire("[]struct")] = field(default_factory=list)
    timeout_ms: Annotated[int, Wire("int32", versions="10+", ignorable=True)] = 0


class ListOffsetsPartitionResponse(Struct):
    """Part of ListOffsetsResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    timestamp: Annotated[int, Wire("int64", versions="1+")] = -1
    offset: Annotated[int, Wire("int64", versions="1+")] = -1
    leader_epoch: Annotated[int, Wire("int32", versions="4+")] = -1


class ListOffsetsTopicResponse(Struct):
    """Part of ListOffsetsResponse."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[ListOffsetsPartitionResponse], Wire("[]struct")] = field(default_factory=list)


class ListOffsetsResponse(Message):
    """The offsets found, by partition. Versions 1-11, flexible from 6.

    Nothing found is offset -1 with timestamp -1 and no error; latest and earliest answer timestamp -1 as
    well.
    """

    meta: ClassVar[Api] = Api("ListOffsetsResponse", 2, "response", valid="1-11", flexible="6+")

    throttle_time_ms: Annotated[int, Wire("int32", versions="2+", ignorable=True)] = 0
    topics: Annotated[list[ListOffsetsTopicResponse], Wire("[]struct")] = field(default_factory=list)
