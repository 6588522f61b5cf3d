# Written by tools/convert_messages.py from the message schemas of Apache Kafka 3.9.2; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""LeaderAndIsr, API key 4: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class LeaderAndIsrPartitionState(Struct):
    """The leader and replicas of one partition. ``is_new`` says that the replica may not be in a directory
    yet.

    ``leader`` is -1 for none, -2 for a topic that is being deleted. ``leader_recovery_state`` is 1 after an
    unclean election.
    """

    topic_name: Annotated[str, Wire("string", versions="0-1", ignorable=True)] = ""
    partition_index: Annotated[int, Wire("int32")] = 0
    controller_epoch: Annotated[int, Wire("int32")] = 0
    leader: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = 0
    isr: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)
    partition_epoch: Annotated[int, Wire("int32")] = 0
    replicas: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)
    adding_replicas: Annotated[list[int], Wire("[]int32", versions="3+", ignorable=True)] = field(
        default_factory=list
    )
    removing_replicas: Annotated[list[int], Wire("[]int32", versions="3+", ignorable=True)] = field(
        default_factory=list
    )
    is_new: Annotated[bool, Wire("bool", versions="1+", ignorable=True)] = False
    leader_recovery_state: Annotated[int, Wire("int8", versions="6+")] = 0


class LeaderAndIsrTopicState(Struct):
    """The partitions of one topic. ``topic_id`` is zero for a topic that has none."""

    topic_name: Annotated[str, Wire("string", versions="2+")] = ""
    topic_id: Annotated[bytes, Wire("uuid", versions="5+", ignorable=True)] = ZERO_UUID
    partition_states: Annotated[list[LeaderAndIsrPartitionState], Wire("[]struct", versions="2+")] = field(
        default_factory=list
    )


class LeaderAndIsrLiveLeader(Struct):
    """Part of LeaderAndIsrRequest."""

    broker_id: Annotated[int, Wire("int32")] = 0
    host_name: Annotated[str, Wire("string")] = ""
    port: Annotated[int, Wire("int32")] = 0


class LeaderAndIsrRequest(Message):
    """A ZooKeeper cluster's controller tells a broker which partitions it leads and follows. Versions 0-7,
    flexible from 4.

    ``type`` (version 5) is 0 unknown, 1 incremental, 2 full: a full one names every replica of the broker,
    and what it doesn't name is stray. ``partition_epoch`` is the version of the partition's state znode. A
    controller or broker epoch below the known one is refused whole: STALE_CONTROLLER_EPOCH,
    STALE_BROKER_EPOCH.
    """

    meta: ClassVar[Api] = Api("LeaderAndIsrRequest", 4, "request", valid="0-7", flexible="4+")

    controller_id: Annotated[int, Wire("int32")] = 0
    is_kraft_controller: Annotated[bool, Wire("bool", versions="7+", name="isKRaftController")] = False
    controller_epoch: Annotated[int, Wire("int32")] = 0
    broker_epoch: Annotated[int, Wire("int64", versions="2+", ignorable=True)] = -1
    type: Annotated[int, Wire("int8", versions="5+")] = 0
    ungrouped_partition_states: Annotated[
        list[LeaderAndIsrPartitionState], Wire("[]struct", versions="0-1")
    ] = field(default_factory=list)
    topic_states: Annotated[list[LeaderAndIsrTopicState], Wire("[]struct", versions="2+")] = field(
        default_factory=list
    )
    live_leaders: Annotated[list[LeaderAndIsrLiveLeader], Wire("[]struct")] = field(default_factory=list)


class LeaderAndIsrPartitionError(Struct):
    """Part of LeaderAndIsrResponse."""

    topic_name: Annotated[str, Wire("string", versions="0-4", ignorable=True)] = ""
    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0


class LeaderAndIsrTopicError(Struct):
    """Part of LeaderAndIsrResponse."""

    topic_id: Annotated[bytes, Wire("uuid", versions="5+")] = ZERO_UUID
    partition_errors: Annotated[list[LeaderAndIsrPartitionError], Wire("[]struct", versions="5+")] = field(
        default_factory=list
    )


class LeaderAndIsrResponse(Message):
    """A broker's answer: an error for all, or one for each partition. Versions 0-7, flexible from 4.

    KAFKA_STORAGE_ERROR at a partition tells the controller that this replica is offline.
    """

    meta: ClassVar[Api] = Api("LeaderAndIsrResponse", 4, "response", valid="0-7", flexible="4+")

    error_code: Annotated[int, Wire("int16")] = 0
    partition_errors: Annotated[list[LeaderAndIsrPartitionError], Wire("[]struct", versions="0-4")] = field(
        default_factory=list
    )
    topics: Annotated[list[LeaderAndIsrTopicError], Wire("[]struct", versions="5+")] = field(
        default_factory=list
    )
