# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""Heartbeat, API key 12: request and response."""

from typing import Annotated, ClassVar

from blumfeld.wire.schema import Api, Message, Wire


class HeartbeatRequest(Message):
    """A classic member is alive. Versions 0-4, flexible from 4. ``group_instance_id`` fences a static member
    (3).
    """

    meta: ClassVar[Api] = Api("HeartbeatRequest", 12, "request", valid="0-4", flexible="4+")

    group_id: Annotated[str, Wire("string")] = ""
    generation_id: Annotated[int, Wire("int32")] = 0
    member_id: Annotated[str, Wire("string")] = ""
    group_instance_id: Annotated[str | None, Wire("string", versions="3+", nullable="3+")] = None


class HeartbeatResponse(Message):
    """API 12, response: versions 0-4, flexible from 4."""

    meta: ClassVar[Api] = Api("HeartbeatResponse", 12, "response", valid="0-4", flexible="4+")

    throttle_time_ms: Annotated[int, Wire("int32", versions="1+", ignorable=True)] = 0
    error_code: Annotated[int, Wire("int16")] = 0
