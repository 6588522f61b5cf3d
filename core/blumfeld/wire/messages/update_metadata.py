# Written by tools/convert_messages.py from the message schemas of Apache Kafka 3.9.2; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""UpdateMetadata, API key 6: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class UpdateMetadataPartitionState(Struct):
    """Part of UpdateMetadataRequest."""

    topic_name: Annotated[str, Wire("string", versions="0-4", ignorable=True)] = ""
    partition_index: Annotated[int, Wire("int32")] = 0
    controller_epoch: Annotated[int, Wire("int32")] = 0
    leader: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = 0
    isr: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)
    zk_version: Annotated[int, Wire("int32")] = 0
    replicas: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)
    offline_replicas: Annotated[list[int], Wire("[]int32", versions="4+", ignorable=True)] = field(
        default_factory=list
    )


class UpdateMetadataTopicState(Struct):
    """Part of UpdateMetadataRequest."""

    topic_name: Annotated[str, Wire("string", versions="5+")] = ""
    topic_id: Annotated[bytes, Wire("uuid", versions="7+", ignorable=True)] = ZERO_UUID
    partition_states: Annotated[list[UpdateMetadataPartitionState], Wire("[]struct", versions="5+")] = field(
        default_factory=list
    )


class UpdateMetadataEndpoint(Struct):
    """Part of UpdateMetadataRequest."""

    port: Annotated[int, Wire("int32", versions="1+")] = 0
    host: Annotated[str, Wire("string", versions="1+")] = ""
    listener: Annotated[str, Wire("string", versions="3+", ignorable=True)] = ""
    security_protocol: Annotated[int, Wire("int16", versions="1+")] = 0


class UpdateMetadataBroker(Struct):
    """Part of UpdateMetadataRequest."""

    id: Annotated[int, Wire("int32")] = 0
    v0_host: Annotated[str, Wire("string", versions="0", ignorable=True)] = ""
    v0_port: Annotated[int, Wire("int32", versions="0", ignorable=True)] = 0
    endpoints: Annotated[list[UpdateMetadataEndpoint], Wire("[]struct", versions="1+", ignorable=True)] = (
        field(default_factory=list)
    )
    rack: Annotated[str | None, Wire("string", versions="2+", nullable="0+", ignorable=True)] = ""


class UpdateMetadataRequest(Message):
    """A ZooKeeper cluster's controller tells a broker what to answer Metadata with. Versions 0-8, flexible
    from 6.

    ``live_brokers`` is the whole list each time; the partitions are those that changed. A partition with
    ``leader`` -2 is deleted. ``type`` (version 8) is 0 unknown, 1 incremental, 2 full.
    """

    meta: ClassVar[Api] = Api("UpdateMetadataRequest", 6, "request", valid="0-8", flexible="6+")

    controller_id: Annotated[int, Wire("int32")] = 0
    is_kraft_controller: Annotated[bool, Wire("bool", versions="8+", name="isKRaftController")] = False
    type: Annotated[int, Wire("int8", versions="8+", tag=0, tagged="8+")] = 0
    controller_epoch: Annotated[int, Wire("int32")] = 0
    broker_epoch: Annotated[int, Wire("int64", versions="5+", ignorable=True)] = -1
    ungrouped_partition_states: Annotated[
        list[UpdateMetadataPartitionState], Wire("[]struct", versions="0-4")
    ] = field(default_factory=list)
    topic_states: Annotated[list[UpdateMetadataTopicState], Wire("[]struct", versions="5+")] = field(
        default_factory=list
    )
    live_brokers: Annotated[list[UpdateMetadataBroker], Wire("[]struct")] = field(default_factory=list)


class UpdateMetadataResponse(Message):
    """A broker's answer to UpdateMetadata. Versions 0-8, flexible from 6."""

    meta: ClassVar[Api] = Api("UpdateMetadataResponse", 6, "response", valid="0-8", flexible="6+")

    error_code: Annotated[int, Wire("int16")] = 0
