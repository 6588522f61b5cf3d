# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""The records of __share_group_state: keys by record type, values by version."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class ShareSnapshotKey(Message):
    """Key of record type 0: version 0, never flexible."""

    meta: ClassVar[Api] = Api("ShareSnapshotKey", 0, "coordinator-key", valid="0", flexible="none")

    group_id: Annotated[str, Wire("string", versions="0")] = ""
    topic_id: Annotated[bytes, Wire("uuid", versions="0")] = ZERO_UUID
    partition: Annotated[int, Wire("int32", versions="0")] = 0


class ShareUpdateKey(Message):
    """Key of record type 1: version 0, never flexible."""

    meta: ClassVar[Api] = Api("ShareUpdateKey", 1, "coordinator-key", valid="0", flexible="none")

    group_id: Annotated[str, Wire("string", versions="0")] = ""
    topic_id: Annotated[bytes, Wire("uuid", versions="0")] = ZERO_UUID
    partition: Annotated[int, Wire("int32", versions="0")] = 0


class StateBatch(Struct):
    """Part of ShareSnapshotValue, ShareUpdateValue."""

    first_offset: Annotated[int, Wire("int64")] = 0
    last_offset: Annotated[int, Wire("int64")] = 0
    delivery_state: Annotated[int, Wire("int8")] = 0
    delivery_count: Annotated[int, Wire("int16")] = 0


class ShareSnapshotValue(Message):
    """Value of record type 0: version 0, flexible."""

    meta: ClassVar[Api] = Api("ShareSnapshotValue", 0, "coordinator-value", valid="0", flexible="0+")

    snapshot_epoch: Annotated[int, Wire("int32")] = 0
    state_epoch: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = 0
    start_offset: Annotated[int, Wire("int64")] = 0
    delivery_complete_count: Annotated[int, Wire("int32", tag=0, tagged="0+")] = -1
    create_timestamp: Annotated[int, Wire("int64")] = 0
    write_timestamp: Annotated[int, Wire("int64")] = 0
    state_batches: Annotated[list[StateBatch], Wire("[]struct")] = field(default_factory=list)


class ShareUpdateValue(Message):
    """Value of record type 1: version 0, flexible."""

    meta: ClassVar[Api] = Api("ShareUpdateValue", 1, "coordinator-value", valid="0", flexible="0+")

    snapshot_epoch: Annotated[int, Wire("int32")] = 0
    leader_epoch: Annotated[int, Wire("int32")] = 0
    start_offset: Annotated[int, Wire("int64")] = 0
    delivery_complete_count: Annotated[int, Wire("int32", tag=0, tagged="0+")] = -1
    state_batches: Annotated[list[StateBatch], Wire("[]struct")] = field(default_factory=list)


KEY_TYPES: dict[int, type[Message]] = {
    0: ShareSnapshotKey,
    1: ShareUpdateKey,
}
"""The class of each key, by record type."""

VALUE_TYPES: dict[int, type[Message]] = {
    0: ShareSnapshotValue,
    1: ShareUpdateValue,
}
"""The class of each value, by the record type of its key."""
