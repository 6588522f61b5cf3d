# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""Metadata, API key 3: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class MetadataRequestTopic(Struct):
    """Part of MetadataRequest."""

    topic_id: Annotated[bytes, Wire("uuid", versions="10+", ignorable=True)] = ZERO_UUID
    name: Annotated[str | None, Wire("string", nullable="10+")] = ""


class MetadataRequest(Message):
    """Ask for brokers, topics, leaders. Versions 0-13, flexible from 9.

    ``topics`` null is all of them, empty none; but in version 0, where null can't be said, empty is all. From
    version 12 a topic may be named by id with a null name. ``allow_auto_topic_creation`` is true before
    version 4.
    """

    meta: ClassVar[Api] = Api("MetadataRequest", 3, "request", valid="0-13", flexible="9+")

    topics: Annotated[list[MetadataRequestTopic] | None, Wire("[]struct", nullable="1+")] = field(
        default_factory=list
    )
    allow_auto_topic_creation: Annotated[bool, Wire("bool", versions="4+")] = True
    include_cluster_authorized_operations: Annotated[bool, Wire("bool", versions="8-10")] = False
    include_topic_authorized_operations: Annotated[bool, Wire("bool", versions="8+")] = False


class MetadataResponseBroker(Struct):
    """Part of MetadataResponse."""

    node_id: Annotated[int, Wire("int32")] = 0
    host: Annotated[str, Wire("string")] = ""
    port: Annotated[int, Wire("int32")] = 0
    rack: Annotated[str | None, Wire("string", versions="1+", nullable="1+", ignorable=True)] = None


class MetadataResponsePartition(Struct):
    """Part of MetadataResponse."""

    error_code: Annotated[int, Wire("int16")] = 0
    partition_index: Annotated[int, Wire("int32")] = 0
    leader_id: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32", versions="7+", ignorable=True)] = -1
    replica_nodes: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)
    isr_nodes: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)
    offline_replicas: Annotated[list[int], Wire("[]int32", versions="5+", ignorable=True)] = field(
        default_factory=list
    )


class MetadataResponseTopic(Struct):
    """Part of MetadataResponse."""

    error_code: Annotated[int, Wire("int16")] = 0
    name: Annotated[str | None, Wire("string", nullable="12+")] = ""
    topic_id: Annotated[bytes, Wire("uuid", versions="10+", ignorable=True)] = ZERO_UUID
    is_internal: Annotated[bool, Wire("bool", versions="1+", ignorable=True)] = False
    partitions: Annotated[list[MetadataResponsePartition], Wire("[]struct")] = field(default_factory=list)
    topic_authorized_operations: Annotated[int, Wire("int32", versions="8+")] = -(2**31)


class MetadataResponse(Message):
    """The cluster as this broker sees it. Versions 0-13, flexible from 9.

    Hosts and ports are what clients dial next, so those of the listener that was asked. Authorized operations
    stay at their default where nobody asked for them. A topic asked for by an unknown id has a null name.
    """

    meta: ClassVar[Api] = Api("MetadataResponse", 3, "response", valid="0-13", flexible="9+")

    throttle_time_ms: Annotated[int, Wire("int32", versions="3+", ignorable=True)] = 0
    brokers: Annotated[list[MetadataResponseBroker], Wire("[]struct")] = field(default_factory=list)
    cluster_id: Annotated[str | None, Wire("string", versions="2+", nullable="2+", ignorable=True)] = None
    controller_id: Annotated[int, Wire("int32", versions="1+", ignorable=True)] = -1
    topics: Annotated[list[MetadataResponseTopic], Wire("[]struct")] = field(default_factory=list)
    cluster_authorized_operations: Annotated[int, Wire("int32", versions="8-10")] = -(2**31)
    error_code: Annotated[int, Wire("int16", versions="13+", ignorable=True)] = 0
