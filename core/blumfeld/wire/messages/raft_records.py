# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""The values of KRaft's control records, written without a version before them."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class KRaftVersionRecord(Message):
    """Data: version 0, flexible."""

    meta: ClassVar[Api] = Api("KRaftVersionRecord", None, "data", valid="0", flexible="0+")

    version: Annotated[int, Wire("int16")] = 0
    kraft_version: Annotated[int, Wire("int16", name="kRaftVersion")] = 0


class LeaderChangeMessageVoter(Struct):
    """Part of LeaderChangeMessage."""

    voter_id: Annotated[int, Wire("int32")] = 0
    voter_directory_id: Annotated[bytes, Wire("uuid", versions="1+")] = ZERO_UUID


class LeaderChangeMessage(Message):
    """Data: versions 0-1, flexible."""

    meta: ClassVar[Api] = Api("LeaderChangeMessage", None, "data", valid="0-1", flexible="0+")

    version: Annotated[int, Wire("int16")] = 0
    leader_id: Annotated[int, Wire("int32")] = 0
    voters: Annotated[list[LeaderChangeMessageVoter], Wire("[]struct")] = field(default_factory=list)
    granting_voters: Annotated[list[LeaderChangeMessageVoter], Wire("[]struct")] = field(default_factory=list)


class SnapshotFooterRecord(Message):
    """Data: version 0, flexible."""

    meta: ClassVar[Api] = Api("SnapshotFooterRecord", None, "data", valid="0", flexible="0+")

    version: Annotated[int, Wire("int16")] = 0


class SnapshotHeaderRecord(Message):
    """Data: version 0, flexible."""

    meta: ClassVar[Api] = Api("SnapshotHeaderRecord", None, "data", valid="0", flexible="0+")

    version: Annotated[int, Wire("int16")] = 0
    last_contained_log_timestamp: Annotated[int, Wire("int64")] = 0


class Endpoint(Struct):
    """Part of VotersRecord."""

    name: Annotated[str, Wire("string")] = ""
    host: Annotated[str, Wire("string")] = ""
    port: Annotated[int, Wire("uint16")] = 0


class KRaftVersionFeature(Struct):
    """Part of VotersRecord."""

    min_supported_version: Annotated[int, Wire("int16")] = 0
    max_supported_version: Annotated[int, Wire("int16")] = 0


class VotersRecordVoter(Struct):
    """Part of VotersRecord."""

    voter_id: Annotated[int, Wire("int32")] = 0
    voter_directory_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    endpoints: Annotated[list[Endpoint], Wire("[]struct")] = field(default_factory=list)
    kraft_version_feature: Annotated[KRaftVersionFeature, Wire("struct", name="kRaftVersionFeature")] = field(
        default_factory=KRaftVersionFeature
    )


class VotersRecord(Message):
    """Data: version 0, flexible."""

    meta: ClassVar[Api] = Api("VotersRecord", None, "data", valid="0", flexible="0+")

    version: Annotated[int, Wire("int16")] = 0
    voters: Annotated[list[VotersRecordVoter], Wire("[]struct")] = field(default_factory=list)
