"""The bytes of a metadata record in the log: frame version, type and version as varints, then the message
(Kafka's ``AbstractApiMessageSerde``, KIP-631). ``__cluster_metadata`` and ``__remote_log_metadata`` have them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from blumfeld.wire.codec import decode as decode_message
from blumfeld.wire.codec import encode as encode_message
from blumfeld.wire.messages.metadata_records import RECORD_TYPES, BrokerRegistrationChangeRecord
from blumfeld.wire.primitives import DecodeError, put_uvarint, uvarint
from blumfeld.wire.schema import Message

FRAME_VERSION = 1
METADATA_VERSION = 30
"""Level 4.3-IV0: Apache Kafka 4.3.1 formats with it, and records are written for this level only."""


def record_version(record: Message) -> int:
    """Returns the version in which a record is written at ``metadata.version`` 30: the newest, as in Kafka.

    BrokerRegistrationChangeRecord is the exception: Kafka writes the oldest version that can hold its
    content.
    """
    if isinstance(record, BrokerRegistrationChangeRecord):
        if record.cordoned_log_dirs is not None:
            return 3
        if record.log_dirs:
            return 2
        return 1 if record.in_controlled_shutdown else 0
    return record.meta.valid.last


def encode_record(record: Message) -> bytes:
    """Returns the value of the log record; its key is null."""
    key = record.meta.key
    assert key is not None
    version = record_version(record)
    prefix = put_uvarint(FRAME_VERSION) + put_uvarint(key) + put_uvarint(version)
    return prefix + encode_message(record, version)


def decode_record(data: bytes | memoryview, types: Mapping[int, type[Message]] = RECORD_TYPES) -> Message:
    """The record in the value of a log's record.

    :param types: the class of each record type: those of ``__cluster_metadata``
    :raises DecodeError: another frame version, a type or version that this build does not know, or bytes that are
        not what they say
    """
    view = memoryview(data)
    # Hot path: each of the three numbers takes one byte.
    if len(view) > 3 and view[0] == FRAME_VERSION and view[1] < 0x80 and view[2] < 0x80:
        known = types.get(view[1])
        if known is not None:
            return decode_message(known, view, view[2], 3)
    frame_version, at = uvarint(view, 0)
    if frame_version != FRAME_VERSION:
        raise DecodeError(f"unknown frame version {frame_version} of a metadata record: only 1 is allowed")
    key, at = uvarint(view, at)
    version, at = uvarint(view, at)
    record_class = types.get(key)
    if record_class is None:
        raise DecodeError(f"unknown metadata record type {key}")
    return decode_message(record_class, view, version, at)
