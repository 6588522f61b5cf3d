"""Encodes and decodes coordinator records: a key begins with an int16 type, a value with an int16 version.

As Kafka's ``CoordinatorRecordSerde``.
"""

from __future__ import annotations

from collections.abc import Mapping

from blumfeld.spi.groups import CoordinatorRecord
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.messages.group_coordinator_records import GroupMetadataKey
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message

RecordTypes = Mapping[int, tuple[type[Message], type[Message]]]
"""Record type → the message classes of its key and value."""

GROUP_KEY_TYPES = (b"\x00\x02", b"\x00\x03")
"""First bytes of the keys whose tombstones end a group: a classic group or one without a type, and a KIP-848 group."""


def record(key: Message, value: Message | None, value_version: int = 0) -> CoordinatorRecord:
    """Returns a record to append. A ``value`` of ``None`` makes a tombstone."""
    key_type = key.meta.key
    assert key_type is not None
    encoded = None if value is None else value_version.to_bytes(2) + encode(value, value_version)
    return CoordinatorRecord(key_type.to_bytes(2) + encode(key, 0), encoded)


def record_type(key: bytes) -> int:
    """Returns the type of a record, from its key.

    :raises DecodeError: the key is shorter than its type
    """
    if len(key) < 2:
        raise DecodeError(f"a coordinator record's key has {len(key)} bytes, 2 are needed for its type")
    return int.from_bytes(key[:2])


def decode_record(types: RecordTypes, item: CoordinatorRecord) -> tuple[int, Message, Message | None] | None:
    """Returns (type, key, value) of a record; ``None`` if no loaded plug-in knows the type.

    Such a record stays in the log and is not replayed.

    :raises DecodeError: the bytes don't fit their type and version
    """
    number = record_type(item.key)
    classes = types.get(number)
    if classes is None:
        return None
    key = decode(classes[0], item.key, 0, 2)
    if item.value is None:
        return number, key, None
    return number, key, decode(classes[1], item.value, int.from_bytes(item.value[:2]), 2)


def group_of(key: bytes) -> str:
    """Returns the group that a tombstone with this key ends. The key has one of :data:`GROUP_KEY_TYPES`, which have the
    same layout.

    :raises DecodeError: the bytes don't fit their type
    """
    return decode(GroupMetadataKey, key, 0, 2).group
