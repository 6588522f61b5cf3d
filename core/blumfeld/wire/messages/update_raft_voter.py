# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""UpdateRaftVoter, API key 82: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class Listener(Struct):
    """Part of UpdateRaftVoterRequest."""

    name: Annotated[str, Wire("string")] = ""
    host: Annotated[str, Wire("string")] = ""
    port: Annotated[int, Wire("uint16")] = 0


class KRaftVersionFeature(Struct):
    """Part of UpdateRaftVoterRequest."""

    min_supported_version: Annotated[int, Wire("int16")] = 0
    max_supported_version: Annotated[int, Wire("int16")] = 0


class UpdateRaftVoterRequest(Message):
    """API 82, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("UpdateRaftVoterRequest", 82, "request", valid="0", flexible="0+")

    cluster_id: Annotated[str | None, Wire("string", nullable="0+")] = ""
    current_leader_epoch: Annotated[int, Wire("int32")] = 0
    voter_id: Annotated[int, Wire("int32")] = 0
    voter_directory_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    listeners: Annotated[list[Listener], Wire("[]struct")] = field(default_factory=list)
    kraft_version_feature: Annotated[KRaftVersionFeature, Wire("struct", name="kRaftVersionFeature")] = field(
        default_factory=KRaftVersionFeature
    )


class CurrentLeader(Struct):
    """Part of UpdateRaftVoterResponse."""

    leader_id: Annotated[int, Wire("int32")] = -1
    leader_epoch: Annotated[int, Wire("int32")] = -1
    host: Annotated[str, Wire("string")] = ""
    port: Annotated[int, Wire("int32")] = 0


class UpdateRaftVoterResponse(Message):
    """API 82, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("UpdateRaftVoterResponse", 82, "response", valid="0", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    current_leader: Annotated[CurrentLeader, Wire("struct", tag=0, tagged="0+")] = field(
        default_factory=CurrentLeader
    )
