# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""SyncGroup, API key 14: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class SyncGroupRequestAssignment(Struct):
    """Part of SyncGroupRequest."""

    member_id: Annotated[str, Wire("string")] = ""
    assignment: Annotated[bytes, Wire("bytes")] = b""


class SyncGroupRequest(Message):
    """Hand in (the leader) and ask for (everyone) the assignment of a generation. Versions 0-5, flexible from
    4.

    ``protocol_type`` and ``protocol_name`` are checked where version 5 sends them (KIP-559).
    """

    meta: ClassVar[Api] = Api("SyncGroupRequest", 14, "request", valid="0-5", flexible="4+")

    group_id: Annotated[str, Wire("string")] = ""
    generation_id: Annotated[int, Wire("int32")] = 0
    member_id: Annotated[str, Wire("string")] = ""
    group_instance_id: Annotated[str | None, Wire("string", versions="3+", nullable="3+")] = None
    protocol_type: Annotated[str | None, Wire("string", versions="5+", nullable="5+", ignorable=True)] = None
    protocol_name: Annotated[str | None, Wire("string", versions="5+", nullable="5+", ignorable=True)] = None
    assignments: Annotated[list[SyncGroupRequestAssignment], Wire("[]struct")] = field(default_factory=list)


class SyncGroupResponse(Message):
    """A member's assignment: the bytes that the leader wrote for it, empty if it wrote none. Versions 0-5,
    flexible from 4.
    """

    meta: ClassVar[Api] = Api("SyncGroupResponse", 14, "response", valid="0-5", flexible="4+")

    throttle_time_ms: Annotated[int, Wire("int32", versions="1+", ignorable=True)] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    protocol_type: Annotated[str | None, Wire("string", versions="5+", nullable="5+", ignorable=True)] = None
    protocol_name: Annotated[str | None, Wire("string", versions="5+", nullable="5+", ignorable=True)] = None
    assignment: Annotated[bytes, Wire("bytes")] = b""
