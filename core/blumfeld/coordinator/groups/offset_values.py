"""Keys and values of offset records, encoded and decoded by hand.

A coordinator may replay a million of them before its first answer, and writes one for each partition of each commit.
The general codec takes six times as long. It still decodes values in old versions and with tags of a newer build, so
every value that Kafka ever wrote can be read.
"""

from __future__ import annotations

from struct import Struct, error

import msgspec

from blumfeld.wire.codec import decode
from blumfeld.wire.messages.group_coordinator_records import OffsetCommitValue
from blumfeld.wire.primitives import ZERO_UUID, DecodeError, EncodeError

OFFSET_KEY_TYPES = (b"\x00\x01", b"\x00\x00")
"""First bytes of an offset record's key: the type that is written, and the one that Kafka wrote before 0.9."""
VALUE_VERSION = 4
"""The version that Kafka 4.3.1 writes: flexible, with the topic id."""
VALUE_VERSION_WITH_RETENTION = 1
"""The version for an offset whose request had a retention (OffsetCommit v2–4)."""
VALUE_VERSIONS = frozenset(version.to_bytes(2) for version in range(VALUE_VERSION + 1))
"""First bytes of the values that can be read: their versions."""
RETENTION_OF_THE_BROKER = -1
STRING_BYTES_MAX = 0x7FFF

_INT32 = Struct(">i")
_HEAD = Struct(">hqi")
"""Version, offset and leader epoch of versions 3 and 4."""
_TIME = Struct(">q")
_WITH_RETENTION = Struct(">qq")
_VERSION_AND_OFFSET = Struct(">hq")
_TOPIC_ID_TAG = b"\x01\x00\x10"
"""Start of the tag section: one tagged field, number 0, 16 bytes."""
_NO_TAGS = b"\x00"

Place = tuple[str, int]
"""Topic and partition."""


class CommittedOffset(msgspec.Struct, frozen=True, gc=False):
    """The offset that a group committed for one partition. ``expire_timestamp_ms`` -1: the broker's retention holds."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: bytes


def encode_key(group_id: str, topic: str, partition: int) -> bytes:
    """Returns the key of an offset's record, type 1.

    :raises EncodeError: a name has more than 32,767 bytes
    """
    return b"\x00\x01" + _string(group_id) + _string(topic) + _INT32.pack(partition)


def encode_value(committed: CommittedOffset) -> bytes:
    """Returns the value of an offset's record as Kafka 4.3.1 writes it: version 4, or 1 if it has its own retention.

    :raises EncodeError: the metadata has more than 32,767 bytes
    """
    if committed.expire_timestamp_ms != RETENTION_OF_THE_BROKER:
        return b"".join(
            (
                _VERSION_AND_OFFSET.pack(VALUE_VERSION_WITH_RETENTION, committed.offset),
                _string(committed.metadata),
                _WITH_RETENTION.pack(committed.commit_timestamp_ms, committed.expire_timestamp_ms),
            )
        )
    metadata = committed.metadata.encode()
    has_id = committed.topic_id != ZERO_UUID
    return b"".join(
        (
            _HEAD.pack(VALUE_VERSION, committed.offset, committed.leader_epoch),
            _compact_length(len(metadata)),
            metadata,
            _TIME.pack(committed.commit_timestamp_ms),
            _TOPIC_ID_TAG + committed.topic_id if has_id else _NO_TAGS,
        )
    )


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > STRING_BYTES_MAX:
        raise EncodeError(f"a string of {len(data)} bytes, {STRING_BYTES_MAX} are allowed")
    return len(data).to_bytes(2) + data


def _compact_length(length: int) -> bytes:
    if length > STRING_BYTES_MAX:
        raise EncodeError(f"a string of {length} bytes, {STRING_BYTES_MAX} are allowed")
    number, out = length + 1, bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def decode_key(key: bytes) -> tuple[str, Place]:
    """Returns (group, (topic, partition)) of an offset's key.

    :raises DecodeError: the bytes are no such key
    """
    group_id, at = decode_group(key)
    return group_id, decode_place(key, at)


def decode_group(key: bytes) -> tuple[str, int]:
    """Returns the group of an offset's key, and the position of the topic behind it.

    :raises DecodeError: the bytes are no such key
    """
    stop = 4 + int.from_bytes(key[2:4])
    if key[:2] not in OFFSET_KEY_TYPES or stop > len(key):
        raise DecodeError(f"an offset's key of {len(key)} bytes without a group")
    try:
        return key[4:stop].decode(), stop
    except UnicodeDecodeError as bad:
        raise DecodeError(f"a group that is not UTF-8: {bad}") from None


def decode_place(key: bytes, at: int) -> Place:
    """Returns (topic, partition), which fill an offset's key from ``at`` to its end.

    :raises DecodeError: the bytes there are something else
    """
    start = at + 2
    stop = start + int.from_bytes(key[at:start])
    if stop + 4 != len(key):
        raise DecodeError(f"a topic and a partition in {len(key) - at} bytes")
    try:
        return key[start:stop].decode(), _INT32.unpack_from(key, stop)[0]
    except UnicodeDecodeError as bad:
        raise DecodeError(f"a topic that is not UTF-8: {bad}") from None


def decode_value(value: bytes) -> CommittedOffset:
    """Returns the offset of a record's value, in any version from 0 to 4.

    :raises DecodeError: the bytes don't fit their version
    """
    try:
        version, offset, leader_epoch = _HEAD.unpack_from(value)
        length = value[14]
        if version == VALUE_VERSION and 0 < length < 0x80:
            stop = 14 + length
            tags = value[stop + 8 :]
            if tags == _NO_TAGS or (len(tags) == 19 and tags[:3] == _TOPIC_ID_TAG):
                return CommittedOffset(
                    offset,
                    leader_epoch,
                    value[15:stop].decode(),
                    _TIME.unpack_from(value, stop)[0],
                    RETENTION_OF_THE_BROKER,
                    tags[3:] or ZERO_UUID,
                )
    except (error, IndexError, UnicodeDecodeError):
        pass  # the general codec says what is wrong
    return _decode_any(value)


def _decode_any(value: bytes) -> CommittedOffset:
    decoded = decode(OffsetCommitValue, value, int.from_bytes(value[:2]), 2)
    return committed_of(decoded)


def committed_of(value: OffsetCommitValue) -> CommittedOffset:
    """Returns the offset of a value that the general codec has decoded."""
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )
