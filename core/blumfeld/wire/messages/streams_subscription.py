# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""The user data of Kafka Streams' classic consumers."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class TaskId(Struct):
    """Part of SubscriptionInfoData."""

    topic_group_id: Annotated[int, Wire("int32", versions="1-6")] = 0
    partition: Annotated[int, Wire("int32", versions="1-6")] = 0


class PartitionToOffsetSum(Struct):
    """Part of SubscriptionInfoData."""

    partition: Annotated[int, Wire("int32", versions="7-9")] = 0
    offset_sum: Annotated[int, Wire("int64", versions="7-9")] = 0


class TaskOffsetSum(Struct):
    """Part of SubscriptionInfoData."""

    topic_group_id: Annotated[int, Wire("int32", versions="7+")] = 0
    partition: Annotated[int, Wire("int32", versions="10+")] = 0
    offset_sum: Annotated[int, Wire("int64", versions="10+")] = 0
    named_topology: Annotated[str | None, Wire("string", versions="10+", nullable="10+")] = ""
    partition_to_offset_sum: Annotated[list[PartitionToOffsetSum], Wire("[]struct", versions="7-9")] = field(
        default_factory=list
    )


class ClientTag(Struct):
    """Part of SubscriptionInfoData."""

    key: Annotated[bytes, Wire("bytes", versions="11+")] = b""
    value: Annotated[bytes, Wire("bytes", versions="11+")] = b""


class SubscriptionInfoData(Message):
    """Data: versions 1-11, never flexible."""

    meta: ClassVar[Api] = Api("SubscriptionInfoData", None, "data", valid="1-11", flexible="none")

    version: Annotated[int, Wire("int32", versions="1+")] = 0
    latest_supported_version: Annotated[int, Wire("int32", versions="3+")] = -1
    process_id: Annotated[bytes, Wire("uuid", versions="1+")] = ZERO_UUID
    prev_tasks: Annotated[list[TaskId], Wire("[]struct", versions="1-6")] = field(default_factory=list)
    standby_tasks: Annotated[list[TaskId], Wire("[]struct", versions="1-6")] = field(default_factory=list)
    user_end_point: Annotated[bytes, Wire("bytes", versions="2+")] = b""
    task_offset_sums: Annotated[list[TaskOffsetSum], Wire("[]struct", versions="7+")] = field(
        default_factory=list
    )
    unique_field: Annotated[int, Wire("int8", versions="8+")] = 0
    error_code: Annotated[int, Wire("int32", versions="9+")] = 0
    client_tags: Annotated[list[ClientTag], Wire("[]struct", versions="11+")] = field(default_factory=list)
