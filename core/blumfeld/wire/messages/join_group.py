"""JoinGroup, API key 11: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class JoinGroupRequestProtocol(Struct):
    """Part of JoinGroupRequest."""

    name: Annotated[str, Wire("string")] = ""
    metadata: Annotated[bytes, Wire("bytes")] = b""


class JoinGroupRequest(Message):
    """API 11, request: versions 0-9, flexible from 6."""

    meta: ClassVar[Api] = Api("JoinGroupRequest", 11, "request", valid="0-9", flexible="6+")

    group_id: Annotated[str, Wire("string")] = ""
    session_timeout_ms: Annotated[int, Wire("int32")] = 0
    rebalance_timeout_ms: Annotated[int, Wire("int32", versions="1+", ignorable=True)] = -1
    member_id: Annotated[str, Wire("string")] = ""
    group_instance_id: Annotated[str | None, Wire("string", versions="5+", nullable="5+")] = None
    protocol_type: Annotated[str, Wire("string")] = ""
    protocols: Annotated[list[JoinGroupRequestProtocol], Wire("[]struct")] = field(default_factory=list)
    reason: Annotated[str | None, Wire("string", versions="8+", nullable="8+", ignorable=True)] = None


class JoinGroupResponseMember(Struct):
    """Part of JoinGroupResponse."""

    member_id: Annotated[str, Wire("string")] = ""
    group_instance_id: Annotated[str | None, Wire("string", versions="5+", nullable="5+", ignorable=True)] = (
        None
    )
    metadata: Annotated[bytes, Wire("bytes")] = b""


class JoinGroupResponse(Message):
    """API 11, response: versions 0-9, flexible from 6."""

    meta: ClassVar[Api] = Api("JoinGroupResponse", 11, "response", valid="0-9", flexible="6+")

    throttle_time_ms: Annotated[int, Wire("int32", versions="2+", ignorable=True)] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    generation_id: Annotated[int, Wire("int32")] = -1
    protocol_type: Annotated[str | None, Wire("string", versions="7+", nullable="7+", ignorable=True)] = None
    protocol_name: Annotated[str | None, Wire("string", nullable="7+")] = ""
    leader: Annotated[str, Wire("string")] = ""
    skip_assignment: Annotated[bool, Wire("bool", versions="9+")] = False
    member_id: Annotated[str, Wire("string")] = ""
    members: Annotated[list[JoinGroupResponseMember], Wire("[]struct")] = field(default_factory=list)
