# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""DescribeGroups, API key 15: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class DescribeGroupsRequest(Message):
    """API 15, request: versions 0-6, flexible from 5."""

    meta: ClassVar[Api] = Api("DescribeGroupsRequest", 15, "request", valid="0-6", flexible="5+")

    groups: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
    include_authorized_operations: Annotated[bool, Wire("bool", versions="3+")] = False


class DescribedGroupMember(Struct):
    """Part of DescribeGroupsResponse."""

    member_id: Annotated[str, Wire("string")] = ""
    group_instance_id: Annotated[str | None, Wire("string", versions="4+", nullable="4+", ignorable=True)] = (
        None
    )
    client_id: Annotated[str, Wire("string")] = ""
    client_host: Annotated[str, Wire("string")] = ""
    member_metadata: Annotated[bytes, Wire("bytes")] = b""
    member_assignment: Annotated[bytes, Wire("bytes")] = b""


class DescribedGroup(Struct):
    """Part of DescribeGroupsResponse."""

    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", versions="6+", nullable="6+")] = None
    group_id: Annotated[str, Wire("string")] = ""
    group_state: Annotated[str, Wire("string")] = ""
    protocol_type: Annotated[str, Wire("string")] = ""
    protocol_data: Annotated[str, Wire("string")] = ""
    members: Annotated[list[DescribedGroupMember], Wire("[]struct")] = field(default_factory=list)
    authorized_operations: Annotated[int, Wire("int32", versions="3+")] = -(2**31)


class DescribeGroupsResponse(Message):
    """API 15, response: versions 0-6, flexible from 5."""

    meta: ClassVar[Api] = Api("DescribeGroupsResponse", 15, "response", valid="0-6", flexible="5+")

    throttle_time_ms: Annotated[int, Wire("int32", versions="1+", ignorable=True)] = 0
    groups: Annotated[list[DescribedGroup], Wire("[]struct")] = field(default_factory=list)
