# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""The records of __consumer_offsets: keys by record type, values by version."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class LegacyOffsetCommitKey(Message):
    """Key of record type 0: version 0, never flexible."""

    meta: ClassVar[Api] = Api("LegacyOffsetCommitKey", 0, "coordinator-key", valid="0", flexible="none")

    group: Annotated[str, Wire("string", versions="0")] = ""
    topic: Annotated[str, Wire("string", versions="0")] = ""
    partition: Annotated[int, Wire("int32", versions="0")] = 0


class OffsetCommitKey(Message):
    """Key of record type 1: version 0, never flexible."""

    meta: ClassVar[Api] = Api("OffsetCommitKey", 1, "coordinator-key", valid="0", flexible="none")

    group: Annotated[str, Wire("string", versions="0")] = ""
    topic: Annotated[str, Wire("string", versions="0")] = ""
    partition: Annotated[int, Wire("int32", versions="0")] = 0


class GroupMetadataKey(Message):
    """Key of record type 2: version 0, never flexible."""

    meta: ClassVar[Api] = Api("GroupMetadataKey", 2, "coordinator-key", valid="0", flexible="none")

    group: Annotated[str, Wire("string", versions="0")] = ""


class ConsumerGroupMetadataKey(Message):
    """Key of record type 3: version 0, never flexible."""

    meta: ClassVar[Api] = Api("ConsumerGroupMetadataKey", 3, "coordinator-key", valid="0", flexible="none")

    group_id: Annotated[str, Wire("string", versions="0")] = ""


class ConsumerGroupPartitionMetadataKey(Message):
    """Key of record type 4: version 0, never flexible."""

    meta: ClassVar[Api] = Api(
        "ConsumerGroupPartitionMetadataKey", 4, "coordinator-key", valid="0", flexible="none"
    )

    group_id: Annotated[str, Wire("string", versions="0")] = ""


class ConsumerGroupMemberMetadataKey(Message):
    """Key of record type 5: version 0, never flexible."""

    meta: ClassVar[Api] = Api(
        "ConsumerGroupMemberMetadataKey", 5, "coordinator-key", valid="0", flexible="none"
    )

    group_id: Annotated[str, Wire("string", versions="0")] = ""
    member_id: Annotated[str, Wire("string", versions="0")] = ""


class ConsumerGroupTargetAssignmentMetadataKey(Message):
    """Key of record type 6: version 0, never flexible."""

    meta: ClassVar[Api] = Api(
        "ConsumerGroupTargetAssignmentMetadataKey", 6, "coordinator-key", valid="0", flexible="none"
    )

    group_id: Annotated[str, Wire("string", versions="0")] = ""


class ConsumerGroupTargetAssignmentMemberKey(Message):
    """Key of record type 7: version 0, never flexible."""

    meta: ClassVar[Api] = Api(
        "ConsumerGroupTargetAssignmentMemberKey", 7, "coordinator-key", valid="0", flexible="none"
    )

    group_id: Annotated[str, Wire("string", versions="0")] = ""
    member_id: Annotated[str, Wire("string", versions="0")] = ""


class ConsumerGroupCurrentMemberAssignmentKey(Message):
    """Key of record type 8: version 0, never flexible."""

    meta: ClassVar[Api] = Api(
        "ConsumerGroupCurrentMemberAssignmentKey", 8, "coordinator-key", valid="0", flexible="none"
    )

    group_id: Annotated[str, Wire("string", versions="0")] = ""
    member_id: Annotated[str, Wire("string", versions="0")] = ""


class ShareGroupMemberMetadataKey(Message):
    """Key of record type 10: version 0, never flexible."""

    meta: ClassVar[Api] = Api(
        "ShareGroupMemberMetadataKey", 10, "coordinator-key", valid="0", flexible="none"
    )

    group_id: Annotated[str, Wire("string", versions="0")] = ""
    member_id: Annotated[str, Wire("string", versions="0")] = ""


class ShareGroupMetadataKey(Message):
    """Key of record type 11: version 0, never flexible."""

    meta: ClassVar[Api] = Api("ShareGroupMetadataKey", 11, "coordinator-key", valid="0", flexible="none")

    group_id: Annotated[str, Wire("string", versions="0")] = ""


class ShareGroupTargetAssignmentMetadataKey(Message):
    """Key of record type 12: version 0, never flexible."""

    meta: ClassVar[Api] = Api(
        "ShareGroupTargetAssignmentMetadataKey", 12, "coordinator-key", valid="0", flexible="none"
    )

    group_id: Annotated[str, Wire("string", versions="0")] = ""


class ShareGroupTargetAssignmentMemberKey(Message):
    """Key of record type 13: version 0, never flexible."""

    meta: ClassVar[Api] = Api(
        "ShareGroupTargetAssignmentMemberKey", 13, "coordinator-key", valid="0", flexible="none"
    )

    group_id: Annotated[str, Wire("string", versions="0")] = ""
    member_id: Annotated[str, Wire("string", versions="0")] = ""


class ShareGroupCurrentMemberAssignmentKey(Message):
    """Key of record type 14: version 0, never flexible."""

    meta: ClassVar[Api] = Api(
        "ShareGroupCurrentMemberAssignmentKey", 14, "coordinator-key", valid="0", flexible="none"
    )

    group_id: Annotated[str, Wire("string", versions="0")] = ""
    member_id: Annotated[str, Wire("string", versions="0")] = ""


class ShareGroupStatePartitionMetadataKey(Message):
    """Key of record type 15: version 0, never flexible."""

    meta: ClassVar[Api] = Api(
        "ShareGroupStatePartitionMetadataKey", 15, "coordinator-key", valid="0", flexible="none"
    )

    group_id: Annotated[str, Wire("string", versions="0")] = ""


class ConsumerGroupRegularExpressionKey(Message):
    """Key of record type 16: version 0, never flexible."""

    meta: ClassVar[Api] = Api(
        "ConsumerGroupRegularExpressionKey", 16, "coordinator-key", valid="0", flexible="none"
    )

    group_id: Annotated[str, Wire("string", versions="0")] = ""
    regular_expression: Annotated[str, Wire("string", versions="0")] = ""


class StreamsGroupMetadataKey(Message):
    """Key of record type 17: version 0, never flexible."""

    meta: ClassVar[Api] = Api("StreamsGroupMetadataKey", 17, "coordinator-key", valid="0", flexible="none")

    group_id: Annotated[str, Wire("string", versions="0")] = ""


class StreamsGroupMemberMetadataKey(Message):
    """Key of record type 19: version 0, never flexible."""

    meta: ClassVar[Api] = Api(
        "StreamsGroupMemberMetadataKey", 19, "coordinator-key", valid="0", flexible="none"
    )

    group_id: Annotated[str, Wire("string", versions="0")] = ""
    member_id: Annotated[str, Wire("string", versions="0")] = ""


class StreamsGroupTargetAssignmentMetadataKey(Message):
    """Key of record type 20: version 0, never flexible."""

    meta: ClassVar[Api] = Api(
        "StreamsGroupTargetAssignmentMetadataKey", 20, "coordinator-key", valid="0", flexible="none"
    )

    group_id: Annotated[str, Wire("string", versions="0")] = ""


class StreamsGroupTargetAssignmentMemberKey(Message):
    """Key of record type 21: version 0, never flexible."""

    meta: ClassVar[Api] = Api(
        "StreamsGroupTargetAssignmentMemberKey", 21, "coordinator-key", valid="0", flexible="none"
    )

    group_id: Annotated[str, Wire("string", versions="0")] = ""
    member_id: Annotated[str, Wire("string", versions="0")] = ""


class StreamsGroupCurrentMemberAssignmentKey(Message):
    """Key of record type 22: version 0, never flexible."""

    meta: ClassVar[Api] = Api(
        "StreamsGroupCurrentMemberAssignmentKey", 22, "coordinator-key", valid="0", flexible="none"
    )

    group_id: Annotated[str, Wire("string", versions="0")] = ""
    member_id: Annotated[str, Wire("string", versions="0")] = ""


class StreamsGroupTopologyKey(Message):
    """Key of record type 23: version 0, never flexible."""

    meta: ClassVar[Api] = Api("StreamsGroupTopologyKey", 23, "coordinator-key", valid="0", flexible="none")

    group_id: Annotated[str, Wire("string", versions="0")] = ""


class LegacyOffsetCommitValue(Message):
    """Value of record type 0: version 0, never flexible."""

    meta: ClassVar[Api] = Api("LegacyOffsetCommitValue", 0, "coordinator-value", valid="0", flexible="none")

    offset: Annotated[int, Wire("int64", versions="0")] = 0
    metadata: Annotated[str, Wire("string", versions="0")] = ""
    commit_timestamp: Annotated[int, Wire("int64", versions="0")] = 0


class OffsetCommitValue(Message):
    """A committed offset. Value of record type 1, versions 0-4, flexible from 4.

    ``expire_timestamp`` exists in version 1 only, ``leader_epoch`` from 3 on; ``topic_id`` is a tag of
    version 4.
    """

    meta: ClassVar[Api] = Api("OffsetCommitValue", 1, "coordinator-value", valid="0-4", flexible="4+")

    offset: Annotated[int, Wire("int64")] = 0
    leader_epoch: Annotated[int, Wire("int32", versions="3+", ignorable=True)] = -1
    metadata: Annotated[str, Wire("string")] = ""
    commit_timestamp: Annotated[int, Wire("int64")] = 0
    expire_timestamp: Annotated[int, Wire("int64", versions="1", ignorable=True)] = -1
    topic_id: Annotated[bytes, Wire("uuid", versions="4+", tag=0, tagged="4+", ignorable=True)] = ZERO_UUID


class MemberMetadata(Struct):
    """Part of GroupMetadataValue."""

    member_id: Annotated[str, Wire("string")] = ""
    group_instance_id: Annotated[str | None, Wire("string", versions="3+", nullable="3+", ignorable=True)] = (
        None
    )
    client_id: Annotated[str, Wire("string")] = ""
    client_host: Annotated[str, Wire("string")] = ""
    rebalance_timeout: Annotated[int, Wire("int32", versions="1+", ignorable=True)] = -1
    session_timeout: Annotated[int, Wire("int32")] = 0
    subscription: Annotated[bytes, Wire("bytes")] = b""
    assignment: Annotated[bytes, Wire("bytes")] = b""


class GroupMetadataValue(Message):
    """A classic group at the end of a rebalance. Value of record type 2, versions 0-4, flexible from 4."""

    meta: ClassVar[Api] = Api("GroupMetadataValue", 2, "coordinator-value", valid="0-4", flexible="4+")

    protocol_type: Annotated[str, Wire("string")] = ""
    generation: Annotated[int, Wire("int32")] = 0
    protocol: Annotated[str | None, Wire("string", nullable="0+")] = ""
    leader: Annotated[str | None, Wire("string", nullable="0+")] = ""
    current_state_timestamp: Annotated[int, Wire("int64", versions="2+", ignorable=True)] = -1
    members: Annotated[list[MemberMetadata], Wire("[]struct")] = field(default_factory=list)


class ConsumerGroupMetadataValue(Message):
    """Value of record type 3: version 0, flexible."""

    meta: ClassVar[Api] = Api("ConsumerGroupMetadataValue", 3, "coordinator-value", valid="0", flexible="0+")

    epoch: Annotated[int, Wire("int32")] = 0
    metadata_hash: Annotated[int, Wire("int64", tag=0, tagged="0+")] = 0


class PartitionMetadata(Struct):
    """Part of ConsumerGroupPartitionMetadataValue."""

    partition: Annotated[int, Wire("int32")] = 0
    racks: Annotated[list[str], Wire("[]string")] = field(default_factory=list)


class TopicMetadata(Struct):
    """Part of ConsumerGroupPartitionMetadataValue."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    topic_name: Annotated[str, Wire("string")] = ""
    num_partitions: Annotated[int, Wire("int32")] = 0
    partition_metadata: Annotated[list[PartitionMetadata], Wire("[]struct")] = field(default_factory=list)


class ConsumerGroupPartitionMetadataValue(Message):
    """Value of record type 4: version 0, flexible."""

    meta: ClassVar[Api] = Api(
        "ConsumerGroupPartitionMetadataValue", 4, "coordinator-value", valid="0", flexible="0+"
    )

    topics: Annotated[list[TopicMetadata], Wire("[]struct")] = field(default_factory=list)


class ClassicProtocol(Struct):
    """Part of ConsumerGroupMemberMetadataValue."""

    name: Annotated[str, Wire("string")] = ""
    metadata: Annotated[bytes, Wire("bytes")] = b""


class ClassicMemberMetadata(Struct):
    """Part of ConsumerGroupMemberMetadataValue."""

    session_timeout_ms: Annotated[int, Wire("int32")] = 0
    supported_protocols: Annotated[list[ClassicProtocol], Wire("[]struct")] = field(default_factory=list)


class ConsumerGroupMemberMetadataValue(Message):
    """Value of record type 5: version 0, flexible."""

    meta: ClassVar[Api] = Api(
        "ConsumerGroupMemberMetadataValue", 5, "coordinator-value", valid="0", flexible="0+"
    )

    instance_id: Annotated[str | None, Wire("string", nullable="0+")] = ""
    rack_id: Annotated[str | None, Wire("string", nullable="0+")] = ""
    client_id: Annotated[str, Wire("string")] = ""
    client_host: Annotated[str, Wire("string")] = ""
    subscribed_topic_names: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
    subscribed_topic_regex: Annotated[str | None, Wire("string", nullable="0+")] = ""
    rebalance_timeout_ms: Annotated[int, Wire("int32")] = -1
    server_assignor: Annotated[str | None, Wire("string", nullable="0+")] = ""
    classic_member_metadata: Annotated[
        ClassicMemberMetadata | None, Wire("struct", nullable="0+", tag=0, tagged="0+")
    ] = field(default_factory=ClassicMemberMetadata)


class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """Value of record type 6: version 0, flexible."""

    meta: ClassVar[Api] = Api(
        "ConsumerGroupTargetAssignmentMetadataValue", 6, "coordinator-value", valid="0", flexible="0+"
    )

    assignment_epoch: Annotated[int, Wire("int32")] = 0
    assignment_timestamp: Annotated[int, Wire("int64", tag=0, tagged="0+", ignorable=True)] = 0


class TopicPartition(Struct):
    """Part of ConsumerGroupTargetAssignmentMemberValue, ShareGroupTargetAssignmentMemberValue."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class ConsumerGroupTargetAssignmentMemberValue(Message):
    """Value of record type 7: version 0, flexible."""

    meta: ClassVar[Api] = Api(
        "ConsumerGroupTargetAssignmentMemberValue", 7, "coordinator-value", valid="0", flexible="0+"
    )

    topic_partitions: Annotated[list[TopicPartition], Wire("[]struct")] = field(default_factory=list)


class ConsumerGroupCurrentMemberAssignmentValueTopicPartitions(Struct):
    """Part of ConsumerGroupCurrentMemberAssignmentValue."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)
    assignment_epochs: Annotated[list[int] | None, Wire("[]int32", nullable="0+", tag=0, tagged="0+")] = (
        field(default_factory=list)
    )


class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """Value of record type 8: version 0, flexible."""

    meta: ClassVar[Api] = Api(
        "ConsumerGroupCurrentMemberAssignmentValue", 8, "coordinator-value", valid="0", flexible="0+"
    )

    member_epoch: Annotated[int, Wire("int32")] = 0
    previous_member_epoch: Annotated[int, Wire("int32")] = 0
    state: Annotated[int, Wire("int8")] = 0
    assigned_partitions: Annotated[
        list[ConsumerGroupCurrentMemberAssignmentValueTopicPartitions], Wire("[]struct")
    ] = field(default_factory=list)
    partitions_pending_revocation: Annotated[
        list[ConsumerGroupCurrentMemberAssignmentValueTopicPartitions], Wire("[]struct")
    ] = field(default_factory=list)


class ShareGroupMemberMetadataValue(Message):
    """Value of record type 10: version 0, flexible."""

    meta: ClassVar[Api] = Api(
        "ShareGroupMemberMetadataValue", 10, "coordinator-value", valid="0", flexible="0+"
    )

    rack_id: Annotated[str | None, Wire("string", nullable="0+")] = ""
    client_id: Annotated[str, Wire("string")] = ""
    client_host: Annotated[str, Wire("string")] = ""
    subscribed_topic_names: Annotated[list[str], Wire("[]string")] = field(default_factory=list)


class ShareGroupMetadataValue(Message):
    """Value of record type 11: version 0, flexible."""

    meta: ClassVar[Api] = Api("ShareGroupMetadataValue", 11, "coordinator-value", valid="0", flexible="0+")

    epoch: Annotated[int, Wire("int32")] = 0
    metadata_hash: Annotated[int, Wire("int64")] = 0


class ShareGroupTargetAssignmentMetadataValue(Message):
    """Value of record type 12: version 0, flexible."""

    meta: ClassVar[Api] = Api(
        "ShareGroupTargetAssignmentMetadataValue", 12, "coordinator-value", valid="0", flexible="0+"
    )

    assignment_epoch: Annotated[int, Wire("int32")] = 0
    assignment_timestamp: Annotated[int, Wire("int64", tag=0, tagged="0+", ignorable=True)] = 0


class ShareGroupTargetAssignmentMemberValue(Message):
    """Value of record type 13: version 0, flexible."""

    meta: ClassVar[Api] = Api(
        "ShareGroupTargetAssignmentMemberValue", 13, "coordinator-value", valid="0", flexible="0+"
    )

    topic_partitions: Annotated[list[TopicPartition], Wire("[]struct")] = field(default_factory=list)


class ShareGroupCurrentMemberAssignmentValueTopicPartitions(Struct):
    """Part of ShareGroupCurrentMemberAssignmentValue."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class ShareGroupCurrentMemberAssignmentValue(Message):
    """Value of record type 14: version 0, flexible."""

    meta: ClassVar[Api] = Api(
        "ShareGroupCurrentMemberAssignmentValue", 14, "coordinator-value", valid="0", flexible="0+"
    )

    member_epoch: Annotated[int, Wire("int32")] = 0
    previous_member_epoch: Annotated[int, Wire("int32")] = 0
    state: Annotated[int, Wire("int8")] = 0
    assigned_partitions: Annotated[
        list[ShareGroupCurrentMemberAssignmentValueTopicPartitions], Wire("[]struct")
    ] = field(default_factory=list)


class TopicPartitionsInfo(Struct):
    """Part of ShareGroupStatePartitionMetadataValue."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    topic_name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class ShareGroupStatePartitionMetadataValueTopicInfo(Struct):
    """Part of ShareGroupStatePartitionMetadataValue."""

    topic_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    topic_name: Annotated[str, Wire("string")] = ""


class ShareGroupStatePartitionMetadataValue(Message):
    """Value of record type 15: version 0, flexible."""

    meta: ClassVar[Api] = Api(
        "ShareGroupStatePartitionMetadataValue", 15, "coordinator-value", valid="0", flexible="0+"
    )

    initializing_topics: Annotated[list[TopicPartitionsInfo], Wire("[]struct")] = field(default_factory=list)
    initialized_topics: Annotated[list[TopicPartitionsInfo], Wire("[]struct")] = field(default_factory=list)
    deleting_topics: Annotated[list[ShareGroupStatePartitionMetadataValueTopicInfo], Wire("[]struct")] = (
        field(default_factory=list)
    )


class ConsumerGroupRegularExpressionValue(Message):
    """Value of record type 16: version 0, flexible."""

    meta: ClassVar[Api] = Api(
        "ConsumerGroupRegularExpressionValue", 16, "coordinator-value", valid="0", flexible="0+"
    )

    topics: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
    version: Annotated[int, Wire("int64")] = 0
    timestamp: Annotated[int, Wire("int64")] = 0


class LastAssignmentConfig(Struct):
    """Part of StreamsGroupMetadataValue."""

    key: Annotated[str, Wire("string")] = ""
    value: Annotated[str, Wire("string")] = ""


class StreamsGroupMetadataValue(Message):
    """Value of record type 17: version 0, flexible."""

    meta: ClassVar[Api] = Api("StreamsGroupMetadataValue", 17, "coordinator-value", valid="0", flexible="0+")

    epoch: Annotated[int, Wire("int32")] = 0
    metadata_hash: Annotated[int, Wire("int64")] = 0
    validated_topology_epoch: Annotated[int, Wire("int32", tag=0, tagged="0+")] = -1
    last_assignment_configs: Annotated[
        list[LastAssignmentConfig] | None, Wire("[]struct", nullable="0+", tag=1, tagged="0+")
    ] = field(default_factory=list)


class Endpoint(Struct):
    """Part of StreamsGroupMemberMetadataValue."""

    host: Annotated[str, Wire("string")] = ""
    port: Annotated[int, Wire("uint16")] = 0


class KeyValue(Struct):
    """Part of StreamsGroupMemberMetadataValue."""

    key: Annotated[str, Wire("string")] = ""
    value: Annotated[str, Wire("string")] = ""


class StreamsGroupMemberMetadataValue(Message):
    """Value of record type 19: version 0, flexible."""

    meta: ClassVar[Api] = Api(
        "StreamsGroupMemberMetadataValue", 19, "coordinator-value", valid="0", flexible="0+"
    )

    instance_id: Annotated[str | None, Wire("string", nullable="0+")] = ""
    rack_id: Annotated[str | None, Wire("string", nullable="0+")] = ""
    client_id: Annotated[str, Wire("string")] = ""
    client_host: Annotated[str, Wire("string")] = ""
    rebalance_timeout_ms: Annotated[int, Wire("int32")] = -1
    topology_epoch: Annotated[int, Wire("int32")] = 0
    process_id: Annotated[str, Wire("string")] = ""
    user_endpoint: Annotated[Endpoint | None, Wire("struct", nullable="0+")] = None
    client_tags: Annotated[list[KeyValue], Wire("[]struct")] = field(default_factory=list)


class StreamsGroupTargetAssignmentMetadataValue(Message):
    """Value of record type 20: version 0, flexible."""

    meta: ClassVar[Api] = Api(
        "StreamsGroupTargetAssignmentMetadataValue", 20, "coordinator-value", valid="0", flexible="0+"
    )

    assignment_epoch: Annotated[int, Wire("int32")] = 0
    assignment_timestamp: Annotated[int, Wire("int64", tag=0, tagged="0+", ignorable=True)] = 0


class StreamsGroupTargetAssignmentMemberValueTaskIds(Struct):
    """Part of StreamsGroupTargetAssignmentMemberValue."""

    subtopology_id: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class StreamsGroupTargetAssignmentMemberValue(Message):
    """Value of record type 21: version 0, flexible."""

    meta: ClassVar[Api] = Api(
        "StreamsGroupTargetAssignmentMemberValue", 21, "coordinator-value", valid="0", flexible="0+"
    )

    active_tasks: Annotated[list[StreamsGroupTargetAssignmentMemberValueTaskIds], Wire("[]struct")] = field(
        default_factory=list
    )
    standby_tasks: Annotated[list[StreamsGroupTargetAssignmentMemberValueTaskIds], Wire("[]struct")] = field(
        default_factory=list
    )
    warmup_tasks: Annotated[list[StreamsGroupTargetAssignmentMemberValueTaskIds], Wire("[]struct")] = field(
        default_factory=list
    )


class StreamsGroupCurrentMemberAssignmentValueTaskIds(Struct):
    """Part of StreamsGroupCurrentMemberAssignmentValue."""

    subtopology_id: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)
    assignment_epochs: Annotated[list[int] | None, Wire("[]int32", nullable="0+", tag=0, tagged="0+")] = (
        field(default_factory=list)
    )


class StreamsGroupCurrentMemberAssignmentValue(Message):
    """Value of record type 22: version 0, flexible."""

    meta: ClassVar[Api] = Api(
        "StreamsGroupCurrentMemberAssignmentValue", 22, "coordinator-value", valid="0", flexible="0+"
    )

    member_epoch: Annotated[int, Wire("int32")] = 0
    previous_member_epoch: Annotated[int, Wire("int32")] = 0
    state: Annotated[int, Wire("int8")] = 0
    active_tasks: Annotated[list[StreamsGroupCurrentMemberAssignmentValueTaskIds], Wire("[]struct")] = field(
        default_factory=list
    )
    standby_tasks: Annotated[list[StreamsGroupCurrentMemberAssignmentValueTaskIds], Wire("[]struct")] = field(
        default_factory=list
    )
    warmup_tasks: Annotated[list[StreamsGroupCurrentMemberAssignmentValueTaskIds], Wire("[]struct")] = field(
        default_factory=list
    )
    active_tasks_pending_revocation: Annotated[
        list[StreamsGroupCurrentMemberAssignmentValueTaskIds], Wire("[]struct")
    ] = field(default_factory=list)
    standby_tasks_pending_revocation: Annotated[
        list[StreamsGroupCurrentMemberAssignmentValueTaskIds], Wire("[]struct")
    ] = field(default_factory=list)
    warmup_tasks_pending_revocation: Annotated[
        list[StreamsGroupCurrentMemberAssignmentValueTaskIds], Wire("[]struct")
    ] = field(default_factory=list)


class TopicConfig(Struct):
    """Part of StreamsGroupTopologyValue."""

    key: Annotated[str, Wire("string")] = ""
    value: Annotated[str, Wire("string")] = ""


class StreamsGroupTopologyValueTopicInfo(Struct):
    """Part of StreamsGroupTopologyValue."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[int, Wire("int32")] = 0
    replication_factor: Annotated[int, Wire("int16")] = 0
    topic_configs: Annotated[list[TopicConfig], Wire("[]struct")] = field(default_factory=list)


class CopartitionGroup(Struct):
    """Part of StreamsGroupTopologyValue."""

    source_topics: Annotated[list[int], Wire("[]int16")] = field(default_factory=list)
    source_topic_regex: Annotated[list[int], Wire("[]int16")] = field(default_factory=list)
    repartition_source_topics: Annotated[list[int], Wire("[]int16")] = field(default_factory=list)


class Subtopology(Struct):
    """Part of StreamsGroupTopologyValue."""

    subtopology_id: Annotated[str, Wire("string")] = ""
    source_topics: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
    source_topic_regex: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
    state_changelog_topics: Annotated[list[StreamsGroupTopologyValueTopicInfo], Wire("[]struct")] = field(
        default_factory=list
    )
    repartition_sink_topics: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
    repartition_source_topics: Annotated[list[StreamsGroupTopologyValueTopicInfo], Wire("[]struct")] = field(
        default_factory=list
    )
    copartition_groups: Annotated[list[CopartitionGroup], Wire("[]struct")] = field(default_factory=list)


class StreamsGroupTopologyValue(Message):
    """Value of record type 23: version 0, flexible."""

    meta: ClassVar[Api] = Api("StreamsGroupTopologyValue", 23, "coordinator-value", valid="0", flexible="0+")

    epoch: Annotated[int, Wire("int32")] = 0
    subtopologies: Annotated[list[Subtopology], Wire("[]struct")] = field(default_factory=list)


KEY_TYPES: dict[int, type[Message]] = {
    0: LegacyOffsetCommitKey,
    1: OffsetCommitKey,
    2: GroupMetadataKey,
    3: ConsumerGroupMetadataKey,
    4: ConsumerGroupPartitionMetadataKey,
    5: ConsumerGroupMemberMetadataKey,
    6: ConsumerGroupTargetAssignmentMetadataKey,
    7: ConsumerGroupTargetAssignmentMemberKey,
    8: ConsumerGroupCurrentMemberAssignmentKey,
    10: ShareGroupMemberMetadataKey,
    11: ShareGroupMetadataKey,
    12: ShareGroupTargetAssignmentMetadataKey,
    13: ShareGroupTargetAssignmentMemberKey,
    14: ShareGroupCurrentMemberAssignmentKey,
    15: ShareGroupStatePartitionMetadataKey,
    16: ConsumerGroupRegularExpressionKey,
    17: StreamsGroupMetadataKey,
    19: StreamsGroupMemberMetadataKey,
    20: StreamsGroupTargetAssignmentMetadataKey,
    21: StreamsGroupTargetAssignmentMemberKey,
    22: StreamsGroupCurrentMemberAssignmentKey,
    23: StreamsGroupTopologyKey,
}
"""The class of each key, by record type."""

VALUE_TYPES: dict[int, type[Message]] = {
    0: LegacyOffsetCommitValue,
    1: OffsetCommitValue,
    2: GroupMetadataValue,
    3: ConsumerGroupMetadataValue,
    4: ConsumerGroupPartitionMetadataValue,
    5: ConsumerGroupMemberMetadataValue,
    6: ConsumerGroupTargetAssignmentMetadataValue,
    7: ConsumerGroupTargetAssignmentMemberValue,
    8: ConsumerGroupCurrentMemberAssignmentValue,
    10: ShareGroupMemberMetadataValue,
    11: ShareGroupMetadataValue,
    12: ShareGroupTargetAssignmentMetadataValue,
    13: ShareGroupTargetAssignmentMemberValue,
    14: ShareGroupCurrentMemberAssignmentValue,
    15: ShareGroupStatePartitionMetadataValue,
    16: ConsumerGroupRegularExpressionValue,
    17: StreamsGroupMetadataValue,
    19: StreamsGroupMemberMetadataValue,
    20: StreamsGroupTargetAssignmentMetadataValue,
    21: StreamsGroupTargetAssignmentMemberValue,
    22: StreamsGroupCurrentMemberAssignmentValue,
    23: StreamsGroupTopologyValue,
}
"""The class of each value, by the record type of its key."""
