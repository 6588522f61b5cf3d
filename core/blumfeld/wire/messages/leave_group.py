# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""LeaveGroup, API key 13: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class MemberIdentity(Struct):
    """Part of LeaveGroupRequest."""

    member_id: Annotated[str, Wire("string", versions="3+")] = ""
    group_instance_id: Annotated[str | None, Wire("string", versions="3+", nullable="3+")] = None
    reason: Annotated[str | None, Wire("string", versions="5+", nullable="5+", ignorable=True)] = None


class LeaveGroupRequest(Message):
    """Members leave a classic group. Versions 0-5, flexible from 4.

    One ``member_id`` up to version 2, ``members`` from 3 on. An empty member id with an instance id is an
    operator who removes a static member.
    """

    meta: ClassVar[Api] = Api("LeaveGroupRequest", 13, "request", valid="0-5", flexible="4+")

    group_id: Annotated[str, Wire("string")] = ""
    member_id: Annotated[str, Wire("string", versions="0-2")] = ""
    members: Annotated[list[MemberIdentity], Wire("[]struct", versions="3+")] = field(default_factory=list)


class MemberResponse(Struct):
    """Part of LeaveGroupResponse."""

    member_id: Annotated[str, Wire("string", versions="3+")] = ""
    group_instance_id: Annotated[str | None, Wire("string", versions="3+", nullable="3+")] = ""
    error_code: Annotated[int, Wire("int16", versions="3+")] = 0


class LeaveGroupResponse(Message):
    """API 13, response: versions 0-5, flexible from 4."""

    meta: ClassVar[Api] = Api("LeaveGroupResponse", 13, "response", valid="0-5", flexible="4+")

    throttle_time_ms: Annotated[int, Wire("int32", versions="1+", ignorable=True)] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    members: Annotated[list[MemberResponse], Wire("[]struct", versions="3+")] = field(default_factory=list)
