# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""The data that classic consumers put into JoinGroup and SyncGroup, behind an int16 version."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class ConsumerProtocolAssignmentTopicPartition(Struct):
    """Part of ConsumerProtocolAssignment."""

    topic: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class ConsumerProtocolAssignment(Message):
    """Data: versions 0-3, never flexible."""

    meta: ClassVar[Api] = Api("ConsumerProtocolAssignment", None, "data", valid="0-3", flexible="none")

    assigned_partitions: Annotated[list[ConsumerProtocolAssignmentTopicPartition], Wire("[]struct")] = field(
        default_factory=list
    )
    user_data: Annotated[bytes | None, Wire("bytes", nullable="0+")] = None


class ConsumerProtocolSubscriptionTopicPartition(Struct):
    """Part of ConsumerProtocolSubscription."""

    topic: Annotated[str, Wire("string", versions="1+")] = ""
    partitions: Annotated[list[int], Wire("[]int32", versions="1+")] = field(default_factory=list)


class ConsumerProtocolSubscription(Message):
    """Data: versions 0-3, never flexible."""

    meta: ClassVar[Api] = Api("ConsumerProtocolSubscription", None, "data", valid="0-3", flexible="none")

    topics: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
    user_data: Annotated[bytes | None, Wire("bytes", nullable="0+")] = None
    owned_partitions: Annotated[
        list[ConsumerProtocolSubscriptionTopicPartition], Wire("[]struct", versions="1+", ignorable=True)
    ] = field(default_factory=list)
    generation_id: Annotated[int, Wire("int32", versions="2+", ignorable=True)] = -1
    rack_id: Annotated[str | None, Wire("string", versions="3+", nullable="3+", ignorable=True)] = None
