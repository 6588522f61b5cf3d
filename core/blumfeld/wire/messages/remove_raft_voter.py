# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""RemoveRaftVoter, API key 81: request and response."""

from typing import Annotated, ClassVar

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Wire


class RemoveRaftVoterRequest(Message):
    """API 81, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("RemoveRaftVoterRequest", 81, "request", valid="0", flexible="0+")

    cluster_id: Annotated[str | None, Wire("string", nullable="0+")] = ""
    voter_id: Annotated[int, Wire("int32")] = 0
    voter_directory_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID


class RemoveRaftVoterResponse(Message):
    """API 81, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("RemoveRaftVoterResponse", 81, "response", valid="0", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+", ignorable=True)] = ""
