# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""ListGroups, API key 16: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class ListGroupsRequest(Message):
    """API 16, request: versions 0-5, flexible from 3."""

    meta: ClassVar[Api] = Api("ListGroupsRequest", 16, "request", valid="0-5", flexible="3+")

    states_filter: Annotated[list[str], Wire("[]string", versions="4+")] = field(default_factory=list)
    types_filter: Annotated[list[str], Wire("[]string", versions="5+")] = field(default_factory=list)


class ListedGroup(Struct):
    """Part of ListGroupsResponse."""

    group_id: Annotated[str, Wire("string")] = ""
    protocol_type: Annotated[str, Wire("string")] = ""
    group_state: Annotated[str, Wire("string", versions="4+", ignorable=True)] = ""
    group_type: Annotated[str, Wire("string", versions="5+", ignorable=True)] = ""


class ListGroupsResponse(Message):
    """API 16, response: versions 0-5, flexible from 3."""

    meta: ClassVar[Api] = Api("ListGroupsResponse", 16, "response", valid="0-5", flexible="3+")

    throttle_time_ms: Annotated[int, Wire("int32", versions="1+", ignorable=True)] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    groups: Annotated[list[ListedGroup], Wire("[]struct")] = field(default_factory=list)
