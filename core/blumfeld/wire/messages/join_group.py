# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""JoinGroup, API key 11: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class JoinGroupRequestProtocol(Struct):
    """Part of JoinGroupRequest."""

    name: Annotated[str, Wire("string")] = ""
    metadata: Annotated[bytes, Wire("bytes")] = b""


class JoinGroupRequest(Message):
    """Join a classic group, or come back to it. Versions 0-9, flexible from 6.

    An empty ``member_id`` asks for one: from version 4 it is given with MEMBER_ID_REQUIRED first (KIP-394),
    unless ``group_instance_id`` makes the member static (version 5, KIP-345). Before version 1 the session
    timeout serves as ``rebalance_timeout_ms``, which is -1 then.
    """

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
    """The new generation. Versions 0-9, flexible from 6.

    Only the leader gets ``members``. ``protocol_name`` is null after an error from version 7 on, "" before.
    ``skip_assignment`` (version 9) tells a static leader that came back that nothing is to be assigned
    (KIP-814).
    """

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
