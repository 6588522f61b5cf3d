# Written by tools/convert_messages.py from the message schemas of Apache Kafka 3.9.2; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""StopReplica, API key 5: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class StopReplicaPartitionV0(Struct):
    """Part of StopReplicaRequest."""

    topic_name: Annotated[str, Wire("string", versions="0")] = ""
    partition_index: Annotated[int, Wire("int32", versions="0")] = 0


class StopReplicaTopicV1(Struct):
    """Part of StopReplicaRequest."""

    name: Annotated[str, Wire("string", versions="1-2")] = ""
    partition_indexes: Annotated[list[int], Wire("[]int32", versions="1-2")] = field(default_factory=list)


class StopReplicaPartitionState(Struct):
    """Part of StopReplicaRequest."""

    partition_index: Annotated[int, Wire("int32", versions="3+")] = 0
    leader_epoch: Annotated[int, Wire("int32", versions="3+")] = -1
    delete_partition: Annotated[bool, Wire("bool", versions="3+")] = False


class StopReplicaTopicState(Struct):
    """Part of StopReplicaRequest."""

    topic_name: Annotated[str, Wire("string", versions="3+")] = ""
    partition_states: Annotated[list[StopReplicaPartitionState], Wire("[]struct", versions="3+")] = field(
        default_factory=list
    )


class StopReplicaRequest(Message):
    """A ZooKeeper cluster's controller tells a broker to host partitions no more. Versions 0-4, flexible from
    2.

    From version 3 each partition says whether to delete it, and its leader epoch fences: -1 isn't checked, -2
    is a topic's deletion.
    """

    meta: ClassVar[Api] = Api("StopReplicaRequest", 5, "request", valid="0-4", flexible="2+")

    controller_id: Annotated[int, Wire("int32")] = 0
    is_kraft_controller: Annotated[bool, Wire("bool", versions="4+", name="isKRaftController")] = False
    controller_epoch: Annotated[int, Wire("int32")] = 0
    broker_epoch: Annotated[int, Wire("int64", versions="1+", ignorable=True)] = -1
    delete_partitions: Annotated[bool, Wire("bool", versions="0-2")] = False
    ungrouped_partitions: Annotated[list[StopReplicaPartitionV0], Wire("[]struct", versions="0")] = field(
        default_factory=list
    )
    topics: Annotated[list[StopReplicaTopicV1], Wire("[]struct", versions="1-2")] = field(
        default_factory=list
    )
    topic_states: Annotated[list[StopReplicaTopicState], Wire("[]struct", versions="3+")] = field(
        default_factory=list
    )


class StopReplicaPartitionError(Struct):
    """Part of StopReplicaResponse."""

    topic_name: Annotated[str, Wire("string")] = ""
    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0


class StopReplicaResponse(Message):
    """A broker's answer to StopReplica: an error for all, or one for each partition. Versions 0-4, flexible
    from 2.
    """

    meta: ClassVar[Api] = Api("StopReplicaResponse", 5, "response", valid="0-4", flexible="2+")

    error_code: Annotated[int, Wire("int16")] = 0
    partition_errors: Annotated[list[StopReplicaPartitionError], Wire("[]struct")] = field(
        default_factory=list
    )
