# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""The quorum-state file, which is this message in JSON."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class Voter(Struct):
    """Part of QuorumStateData."""

    voter_id: Annotated[int, Wire("int32", versions="0")] = 0


class QuorumStateData(Message):
    """Data: versions 0-1, flexible."""

    meta: ClassVar[Api] = Api("QuorumStateData", None, "data", valid="0-1", flexible="0+")

    cluster_id: Annotated[str, Wire("string", versions="0")] = ""
    leader_id: Annotated[int, Wire("int32")] = -1
    leader_epoch: Annotated[int, Wire("int32")] = -1
    voted_id: Annotated[int, Wire("int32")] = -1
    voted_directory_id: Annotated[bytes, Wire("uuid", versions="1+")] = ZERO_UUID
    applied_offset: Annotated[int, Wire("int64", versions="0")] = 0
    current_voters: Annotated[list[Voter] | None, Wire("[]struct", versions="0", nullable="0")] = field(
        default_factory=list
    )
