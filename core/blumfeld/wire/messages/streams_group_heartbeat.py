# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""StreamsGroupHeartbeat, API key 88: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class KeyValue(Struct):
    """Part of StreamsGroupHeartbeatRequest."""

    key: Annotated[str, Wire("string")] = ""
    value: Annotated[str, Wire("string")] = ""


class TopicInfo(Struct):
    """Part of StreamsGroupHeartbeatRequest."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[int, Wire("int32")] = 0
    replication_factor: Annotated[int, Wire("int16")] = 0
    topic_configs: Annotated[list[KeyValue], Wire("[]struct")] = field(default_factory=list)


class CopartitionGroup(Struct):
    """Part of StreamsGroupHeartbeatRequest."""

    source_topics: Annotated[list[int], Wire("[]int16")] = field(default_factory=list)
    source_topic_regex: Annotated[list[int], Wire("[]int16")] = field(default_factory=list)
    repartition_source_topics: Annotated[list[int], Wire("[]int16")] = field(default_factory=list)


class Subtopology(Struct):
    """Part of StreamsGroupHeartbeatRequest."""

    subtopology_id: Annotated[str, Wire("string")] = ""
    source_topics: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
    source_topic_regex: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
    state_changelog_topics: Annotated[list[TopicInfo], Wire("[]struct")] = field(default_factory=list)
    repartition_sink_topics: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
    repartition_source_topics: Annotated[list[TopicInfo], Wire("[]struct")] = field(default_factory=list)
    copartition_groups: Annotated[list[CopartitionGroup], Wire("[]struct")] = field(default_factory=list)


class Topology(Struct):
    """Part of StreamsGroupHeartbeatRequest."""

    epoch: Annotated[int, Wire("int32")] = 0
    subtopologies: Annotated[list[Subtopology], Wire("[]struct")] = field(default_factory=list)


class TaskIds(Struct):
    """Part of StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse."""

    subtopology_id: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class Endpoint(Struct):
    """Part of StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse."""

    host: Annotated[str, Wire("string")] = ""
    port: Annotated[int, Wire("uint16")] = 0


class TaskOffset(Struct):
    """Part of StreamsGroupHeartbeatRequest."""

    subtopology_id: Annotated[str, Wire("string")] = ""
    partition: Annotated[int, Wire("int32")] = 0
    offset: Annotated[int, Wire("int64")] = 0


class StreamsGroupHeartbeatRequest(Message):
    """API 88, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("StreamsGroupHeartbeatRequest", 88, "request", valid="0", flexible="0+")

    group_id: Annotated[str, Wire("string")] = ""
    member_id: Annotated[str, Wire("string")] = ""
    member_epoch: Annotated[int, Wire("int32")] = 0
    endpoint_information_epoch: Annotated[int, Wire("int32")] = 0
    instance_id: Annotated[str | None, Wire("string", nullable="0+")] = None
    rack_id: Annotated[str | None, Wire("string", nullable="0+")] = None
    rebalance_timeout_ms: Annotated[int, Wire("int32")] = -1
    topology: Annotated[Topology | None, Wire("struct", nullable="0+")] = None
    active_tasks: Annotated[list[TaskIds] | None, Wire("[]struct", nullable="0+")] = None
    standby_tasks: Annotated[list[TaskIds] | None, Wire("[]struct", nullable="0+")] = None
    warmup_tasks: Annotated[list[TaskIds] | None, Wire("[]struct", nullable="0+")] = None
    process_id: Annotated[str | None, Wire("string", nullable="0+")] = None
    user_endpoint: Annotated[Endpoint | None, Wire("struct", nullable="0+")] = None
    client_tags: Annotated[list[KeyValue] | None, Wire("[]struct", nullable="0+")] = None
    task_offsets: Annotated[list[TaskOffset] | None, Wire("[]struct", nullable="0+")] = None
    task_end_offsets: Annotated[list[TaskOffset] | None, Wire("[]struct", nullable="0+")] = None
    shutdown_application: Annotated[bool, Wire("bool")] = False


class Status(Struct):
    """Part of StreamsGroupHeartbeatResponse."""

    status_code: Annotated[int, Wire("int8")] = 0
    status_detail: Annotated[str, Wire("string")] = ""


class TopicPartition(Struct):
    """Part of StreamsGroupHeartbeatResponse."""

    topic: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class EndpointToPartitions(Struct):
    """Part of StreamsGroupHeartbeatResponse."""

    user_endpoint: Annotated[Endpoint, Wire("struct")] = field(default_factory=Endpoint)
    active_partitions: Annotated[list[TopicPartition], Wire("[]struct")] = field(default_factory=list)
    standby_partitions: Annotated[list[TopicPartition], Wire("[]struct")] = field(default_factory=list)


class StreamsGroupHeartbeatResponse(Message):
    """API 88, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("StreamsGroupHeartbeatResponse", 88, "response", valid="0", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None
    member_id: Annotated[str, Wire("string")] = ""
    member_epoch: Annotated[int, Wire("int32")] = 0
    heartbeat_interval_ms: Annotated[int, Wire("int32")] = 0
    acceptable_recovery_lag: Annotated[int, Wire("int32")] = 0
    task_offset_interval_ms: Annotated[int, Wire("int32")] = 0
    status: Annotated[list[Status] | None, Wire("[]struct", nullable="0+")] = field(default_factory=list)
    active_tasks: Annotated[list[TaskIds] | None, Wire("[]struct", nullable="0+")] = None
    standby_tasks: Annotated[list[TaskIds] | None, Wire("[]struct", nullable="0+")] = None
    warmup_tasks: Annotated[list[TaskIds] | None, Wire("[]struct", nullable="0+")] = None
    endpoint_information_epoch: Annotated[int, Wire("int32")] = 0
    partitions_by_user_endpoint: Annotated[
        list[EndpointToPartitions] | None, Wire("[]struct", nullable="0+")
    ] = None
