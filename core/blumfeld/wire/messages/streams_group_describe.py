# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""StreamsGroupDescribe, API key 89: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class StreamsGroupDescribeRequest(Message):
    """API 89, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("StreamsGroupDescribeRequest", 89, "request", valid="0", flexible="0+")

    group_ids: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
    include_authorized_operations: Annotated[bool, Wire("bool")] = False


class KeyValue(Struct):
    """Part of StreamsGroupDescribeResponse."""

    key: Annotated[str, Wire("string")] = ""
    value: Annotated[str, Wire("string")] = ""


class TopicInfo(Struct):
    """Part of StreamsGroupDescribeResponse."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[int, Wire("int32")] = 0
    replication_factor: Annotated[int, Wire("int16")] = 0
    topic_configs: Annotated[list[KeyValue], Wire("[]struct")] = field(default_factory=list)


class Subtopology(Struct):
    """Part of StreamsGroupDescribeResponse."""

    subtopology_id: Annotated[str, Wire("string")] = ""
    source_topics: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
    repartition_sink_topics: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
    state_changelog_topics: Annotated[list[TopicInfo], Wire("[]struct")] = field(default_factory=list)
    repartition_source_topics: Annotated[list[TopicInfo], Wire("[]struct")] = field(default_factory=list)


class Topology(Struct):
    """Part of StreamsGroupDescribeResponse."""

    epoch: Annotated[int, Wire("int32")] = 0
    subtopologies: Annotated[list[Subtopology] | None, Wire("[]struct", nullable="0+")] = None


class Endpoint(Struct):
    """Part of StreamsGroupDescribeResponse."""

    host: Annotated[str, Wire("string")] = ""
    port: Annotated[int, Wire("uint16")] = 0


class TaskOffset(Struct):
    """Part of StreamsGroupDescribeResponse."""

    subtopology_id: Annotated[str, Wire("string")] = ""
    partition: Annotated[int, Wire("int32")] = 0
    offset: Annotated[int, Wire("int64")] = 0


class TaskIds(Struct):
    """Part of StreamsGroupDescribeResponse."""

    subtopology_id: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class Assignment(Struct):
    """Part of StreamsGroupDescribeResponse."""

    active_tasks: Annotated[list[TaskIds], Wire("[]struct")] = field(default_factory=list)
    standby_tasks: Annotated[list[TaskIds], Wire("[]struct")] = field(default_factory=list)
    warmup_tasks: Annotated[list[TaskIds], Wire("[]struct")] = field(default_factory=list)


class Member(Struct):
    """Part of StreamsGroupDescribeResponse."""

    member_id: Annotated[str, Wire("string")] = ""
    member_epoch: Annotated[int, Wire("int32")] = 0
    instance_id: Annotated[str | None, Wire("string", nullable="0+")] = None
    rack_id: Annotated[str | None, Wire("string", nullable="0+")] = None
    client_id: Annotated[str, Wire("string")] = ""
    client_host: Annotated[str, Wire("string")] = ""
    topology_epoch: Annotated[int, Wire("int32")] = 0
    process_id: Annotated[str, Wire("string")] = ""
    user_endpoint: Annotated[Endpoint | None, Wire("struct", nullable="0+")] = None
    client_tags: Annotated[list[KeyValue], Wire("[]struct")] = field(default_factory=list)
    task_offsets: Annotated[list[TaskOffset], Wire("[]struct")] = field(default_factory=list)
    task_end_offsets: Annotated[list[TaskOffset], Wire("[]struct")] = field(default_factory=list)
    assignment: Annotated[Assignment, Wire("struct")] = field(default_factory=Assignment)
    target_assignment: Annotated[Assignment, Wire("struct")] = field(default_factory=Assignment)
    is_classic: Annotated[bool, Wire("bool")] = False


class DescribedGroup(Struct):
    """Part of StreamsGroupDescribeResponse."""

    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None
    group_id: Annotated[str, Wire("string")] = ""
    group_state: Annotated[str, Wire("string")] = ""
    group_epoch: Annotated[int, Wire("int32")] = 0
    assignment_epoch: Annotated[int, Wire("int32")] = 0
    topology: Annotated[Topology | None, Wire("struct", nullable="0+")] = None
    members: Annotated[list[Member], Wire("[]struct")] = field(default_factory=list)
    authorized_operations: Annotated[int, Wire("int32")] = -(2**31)


class StreamsGroupDescribeResponse(Message):
    """API 89, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("StreamsGroupDescribeResponse", 89, "response", valid="0", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    groups: Annotated[list[DescribedGroup], Wire("[]struct")] = field(default_factory=list)
