# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""ElectLeaders, API key 43: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class TopicPartitions(Struct):
    """Part of ElectLeadersRequest."""

    topic: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class ElectLeadersRequest(Message):
    """API 43, request: versions 0-2, flexible from 2."""

    meta: ClassVar[Api] = Api("ElectLeadersRequest", 43, "request", valid="0-2", flexible="2+")

    election_type: Annotated[int, Wire("int8", versions="1+")] = 0
    topic_partitions: Annotated[list[TopicPartitions] | None, Wire("[]struct", nullable="0+")] = field(
        default_factory=list
    )
    timeout_ms: Annotated[int, Wire("int32")] = 60000


class PartitionResult(Struct):
    """Part of ElectLeadersResponse."""

    partition_id: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""


class ReplicaElectionResult(Struct):
    """Part of ElectLeadersResponse."""

    topic: Annotated[str, Wire("string")] = ""
    partition_result: Annotated[list[PartitionResult], Wire("[]struct")] = field(default_factory=list)


class ElectLeadersResponse(Message):
    """API 43, response: versions 0-2, flexible from 2."""

    meta: ClassVar[Api] = Api("ElectLeadersResponse", 43, "response", valid="0-2", flexible="2+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16", versions="1+")] = 0
    replica_election_results: Annotated[list[ReplicaElectionResult], Wire("[]struct")] = field(
        default_factory=list
    )
