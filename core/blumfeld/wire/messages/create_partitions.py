# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""CreatePartitions, API key 37: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class CreatePartitionsAssignment(Struct):
    """Part of CreatePartitionsRequest."""

    broker_ids: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class CreatePartitionsTopic(Struct):
    """Part of CreatePartitionsRequest."""

    name: Annotated[str, Wire("string")] = ""
    count: Annotated[int, Wire("int32")] = 0
    assignments: Annotated[list[CreatePartitionsAssignment] | None, Wire("[]struct", nullable="0+")] = field(
        default_factory=list
    )


class CreatePartitionsRequest(Message):
    """API 37, request: versions 0-3, flexible from 2."""

    meta: ClassVar[Api] = Api("CreatePartitionsRequest", 37, "request", valid="0-3", flexible="2+")

    topics: Annotated[list[CreatePartitionsTopic], Wire("[]struct")] = field(default_factory=list)
    timeout_ms: Annotated[int, Wire("int32")] = 0
    validate_only: Annotated[bool, Wire("bool")] = False


class CreatePartitionsTopicResult(Struct):
    """Part of CreatePartitionsResponse."""

    name: Annotated[str, Wire("string")] = ""
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = None


class CreatePartitionsResponse(Message):
    """API 37, response: versions 0-3, flexible from 2."""

    meta: ClassVar[Api] = Api("CreatePartitionsResponse", 37, "response", valid="0-3", flexible="2+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    results: Annotated[list[CreatePartitionsTopicResult], Wire("[]struct")] = field(default_factory=list)
