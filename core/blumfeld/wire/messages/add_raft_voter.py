# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""AddRaftVoter, API key 80: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class Listener(Struct):
    """Part of AddRaftVoterRequest."""

    name: Annotated[str, Wire("string")] = ""
    host: Annotated[str, Wire("string")] = ""
    port: Annotated[int, Wire("uint16")] = 0


class AddRaftVoterRequest(Message):
    """API 80, request: versions 0-1, flexible."""

    meta: ClassVar[Api] = Api("AddRaftVoterRequest", 80, "request", valid="0-1", flexible="0+")

    cluster_id: Annotated[str | None, Wire("string", nullable="0+")] = ""
    timeout_ms: Annotated[int, Wire("int32")] = 0
    voter_id: Annotated[int, Wire("int32")] = 0
    voter_directory_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    listeners: Annotated[list[Listener], Wire("[]struct")] = field(default_factory=list)
    ack_when_committed: Annotated[bool, Wire("bool", versions="1+")] = True


class AddRaftVoterResponse(Message):
    """API 80, response: versions 0-1, flexible."""

    meta: ClassVar[Api] = Api("AddRaftVoterResponse", 80, "response", valid="0-1", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+", ignorable=True)] = ""
