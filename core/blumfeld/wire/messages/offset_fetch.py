# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""OffsetFetch, API key 9: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class OffsetFetchRequestTopic(Struct):
    """Part of OffsetFetchRequest."""

    name: Annotated[str, Wire("string", versions="0-7")] = ""
    partition_indexes: Annotated[list[int], Wire("[]int32", versions="0-7")] = field(default_factory=list)


class OffsetFetchRequestTopics(Struct):
    """Part of OffsetFetchRequest."""

    name: Annotated[str, Wire("string", versions="8-9", ignorable=True)] = ""
    topic_id: Annotated[bytes, Wire("uuid", versions="10+", ignorable=True)] = ZERO_UUID
    partition_indexes: Annotated[list[int], Wire("[]int32", versions="8+")] = field(default_factory=list)


class OffsetFetchRequestGroup(Struct):
    """Part of OffsetFetchRequest."""

    group_id: Annotated[str, Wire("string", versions="8+")] = ""
    member_id: Annotated[str | None, Wire("string", versions="9+", nullable="9+", ignorable=True)] = None
    member_epoch: Annotated[int, Wire("int32", versions="9+", ignorable=True)] = -1
    topics: Annotated[
        list[OffsetFetchRequestTopics] | None, Wire("[]struct", versions="8+", nullable="8+")
    ] = field(default_factory=list)


class OffsetFetchRequest(Message):
    """Read committed offsets. Versions 1-10, flexible from 6.

    Up to version 7 one group (``group_id``, ``topics``), from 8 on several (``groups``). Topics null (version
    2) is all of them. ``require_stable`` (7) answers UNSTABLE_OFFSET_COMMIT while a transaction's offsets are
    pending (KIP-447).
    """

    meta: ClassVar[Api] = Api("OffsetFetchRequest", 9, "request", valid="1-10", flexible="6+")

    group_id: Annotated[str, Wire("string", versions="0-7")] = ""
    topics: Annotated[
        list[OffsetFetchRequestTopic] | None, Wire("[]struct", versions="0-7", nullable="2-7")
    ] = field(default_factory=list)
    groups: Annotated[list[OffsetFetchRequestGroup], Wire("[]struct", versions="8+")] = field(
        default_factory=list
    )
    require_stable: Annotated[bool, Wire("bool", versions="7+")] = False


class OffsetFetchResponsePartition(Struct):
    """Part of OffsetFetchResponse."""

    partition_index: Annotated[int, Wire("int32", versions="0-7")] = 0
    committed_offset: Annotated[int, Wire("int64", versions="0-7")] = 0
    committed_leader_epoch: Annotated[int, Wire("int32", versions="5-7", ignorable=True)] = -1
    metadata: Annotated[str | None, Wire("string", versions="0-7", nullable="0-7")] = ""
    error_code: Annotated[int, Wire("int16", versions="0-7")] = 0


class OffsetFetchResponseTopic(Struct):
    """Part of OffsetFetchResponse."""

    name: Annotated[str, Wire("string", versions="0-7")] = ""
    partitions: Annotated[list[OffsetFetchResponsePartition], Wire("[]struct", versions="0-7")] = field(
        default_factory=list
    )


class OffsetFetchResponsePartitions(Struct):
    """Part of OffsetFetchResponse."""

    partition_index: Annotated[int, Wire("int32", versions="8+")] = 0
    committed_offset: Annotated[int, Wire("int64", versions="8+")] = 0
    committed_leader_epoch: Annotated[int, Wire("int32", versions="8+", ignorable=True)] = -1
    metadata: Annotated[str | None, Wire("string", versions="8+", nullable="8+")] = ""
    error_code: Annotated[int, Wire("int16", versions="8+")] = 0


class OffsetFetchResponseTopics(Struct):
    """Part of OffsetFetchResponse."""

    name: Annotated[str, Wire("string", versions="8-9", ignorable=True)] = ""
    topic_id: Annotated[bytes, Wire("uuid", versions="10+", ignorable=True)] = ZERO_UUID
    partitions: Annotated[list[OffsetFetchResponsePartitions], Wire("[]struct", versions="8+")] = field(
        default_factory=list
    )


class OffsetFetchResponseGroup(Struct):
    """Part of OffsetFetchResponse."""

    group_id: Annotated[str, Wire("string", versions="8+")] = ""
    topics: Annotated[list[OffsetFetchResponseTopics], Wire("[]struct", versions="8+")] = field(
        default_factory=list
    )
    error_code: Annotated[int, Wire("int16", versions="8+")] = 0


class OffsetFetchResponse(Message):
    """Committed offsets. Versions 1-10, flexible from 6.

    No offset is -1 with leader epoch -1, metadata "" and no error; also for a group that does not exist. From
    version 8 all is in ``groups``.
    """

    meta: ClassVar[Api] = Api("OffsetFetchResponse", 9, "response", valid="1-10", flexible="6+")

    throttle_time_ms: Annotated[int, Wire("int32", versions="3+", ignorable=True)] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], Wire("[]struct", versions="0-7")] = field(
        default_factory=list
    )
    error_code: Annotated[int, Wire("int16", versions="2-7", ignorable=True)] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], Wire("[]struct", versions="8+")] = field(
        default_factory=list
    )
