"""Coordinator records and their bytes: an int16 type before a key, an int16 version before a value.

Kafka's ``CoordinatorRecordSerde``.
"""

from __future__ import annotations

from collections.abc import Mapping

from blumfeld.spi.groups import CoordinatorRecord
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.messages.group_coordinator_records import GroupMetadataKey
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message

RecordTypes = Mapping[int, tuple[type[Message], type[Message]]]
"""Record type → classes of its key and value."""

GROUP_KEY_TYPES = (b"\x00\x02", b"\x00\x03")
"""How the keys of records begin whose tombstones end a group: a classic one's or one's without a type, a KIP-848
one's."""


def record(key: Message, value: Message | None, value_version: int = 0) -> CoordinatorRecord:
    """A record to append; ``value`` ``None`` is a tombstone."""
    key_type = key.meta.key
    assert key_type is not None
    encoded = None if value is None else value_version.to_bytes(2) + encode(value, value_version)
    return CoordinatorRecord(key_type.to_bytes(2) + encode(key, 0), encoded)


def record_type(key: bytes) -> int:
    """The type of a record by its key.

    :raises DecodeError: the key is shorter than its type
    """
    if len(key) < 2:
        raise DecodeError(f"a coordinator record's key has {len(key)} bytes, 2 are needed for its type")
    return int.from_bytes(key[:2])


def decode_record(types: RecordTypes, item: CoordinatorRecord) -> tuple[int, Message, Message | None] | None:
    """(type, key, value) of a record, or ``None`` for a type that isn't loaded: it is kept in the log, and not
    replayed.

    :raises DecodeError: the bytes are not what their type and version say
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
    """Whose end a tombstone with this key is, one of ``GROUP_KEY_TYPES``: they are made alike.

    :raises DecodeError: the bytes are not what their type says
    """
    return decode(GroupMetadataKey, key, 0, 2).group
