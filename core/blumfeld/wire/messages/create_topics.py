# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""CreateTopics, API key 19: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class CreatableReplicaAssignment(Struct):
    """Part of CreateTopicsRequest."""

    partition_index: Annotated[int, Wire("int32")] = 0
    broker_ids: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class CreatableTopicConfig(Struct):
    """Part of CreateTopicsRequest."""

    name: Annotated[str, Wire("string")] = ""
    value: Annotated[str | None, Wire("string", nullable="0+")] = ""


class CreatableTopic(Struct):
    """A topic to create.

    ``num_partitions`` and ``replication_factor`` of -1 mean the cluster's default (version 4, KIP-464) or,
    with ``assignments``, what these say.
    """

    name: Annotated[str, Wire("string")] = ""
    num_partitions: Annotated[int, Wire("int32")] = 0
    replication_factor: Annotated[int, Wire("int16")] = 0
    assignments: Annotated[list[CreatableReplicaAssignment], Wire("[]struct")] = field(default_factory=list)
    configs: Annotated[list[CreatableTopicConfig], Wire("[]struct")] = field(default_factory=list)


class CreateTopicsRequest(Message):
    """Create topics. Versions 2-7, flexible from 5. ``validate_only`` changes nothing."""

    meta: ClassVar[Api] = Api("CreateTopicsRequest", 19, "request", valid="2-7", flexible="5+")

    topics: Annotated[list[CreatableTopic], Wire("[]struct")] = field(default_factory=list)
    timeout_ms: Annotated[int, Wire("int32")] = 60000
    validate_only: Annotated[bool, Wire("bool", versions="1+")] = False


class CreatableTopicConfigs(Struct):
    """Part of CreateTopicsResponse."""

    name: Annotated[str, Wire("string", versions="5+")] = ""
    value: Annotated[str | None, Wire("string", versions="5+", nullable="5+")] = ""
    read_only: Annotated[bool, Wire("bool", versions="5+")] = False
    config_source: Annotated[int, Wire("int8", versions="5+", ignorable=True)] = -1
    is_sensitive: Annotated[bool, Wire("bool", versions="5+")] = False


class CreatableTopicResult(Struct):
    """Part of CreateTopicsResponse."""

    name: Annotated[str, Wire("string")] = ""
    topic_id: Annotated[bytes, Wire("uuid", versions="7+", ignorable=True)] = ZERO_UUID
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", versions="1+", nullable="0+", ignorable=True)] = ""
    topic_config_error_code: Annotated[
        int, Wire("int16", versions="5+", tag=0, tagged="5+", ignorable=True)
    ] = 0
    num_partitions: Annotated[int, Wire("int32", versions="5+", ignorable=True)] = -1
    replication_factor: Annotated[int, Wire("int16", versions="5+", ignorable=True)] = -1
    configs: Annotated[
        list[CreatableTopicConfigs] | None, Wire("[]struct", versions="5+", nullable="5+", ignorable=True)
    ] = field(default_factory=list)


class CreateTopicsResponse(Message):
    """The outcome of each topic. Versions 2-7, flexible from 5.

    Set ``error_message`` to None for success: its default is "". Configs and counts are told from version 5
    on (KIP-525), the id from 7. ``topic_config_error_code`` says that the caller may not see the configs.
    """

    meta: ClassVar[Api] = Api("CreateTopicsResponse", 19, "response", valid="2-7", flexible="5+")

    throttle_time_ms: Annotated[int, Wire("int32", versions="2+", ignorable=True)] = 0
    topics: Annotated[list[CreatableTopicResult], Wire("[]struct")] = field(default_factory=list)
