# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""DeleteGroups, API key 42: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class DeleteGroupsRequest(Message):
    """API 42, request: versions 0-2, flexible from 2."""

    meta: ClassVar[Api] = Api("DeleteGroupsRequest", 42, "request", valid="0-2", flexible="2+")

    groups_names: Annotated[list[str], Wire("[]string")] = field(default_factory=list)


class DeletableGroupResult(Struct):
    """Part of DeleteGroupsResponse."""

    group_id: Annotated[str, Wire("string")] = ""
    error_code: Annotated[int, Wire("int16")] = 0


class DeleteGroupsResponse(Message):
    """API 42, response: versions 0-2, flexible from 2."""

    meta: ClassVar[Api] = Api("DeleteGroupsResponse", 42, "response", valid="0-2", flexible="2+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    results: Annotated[list[DeletableGroupResult], Wire("[]struct")] = field(default_factory=list)
