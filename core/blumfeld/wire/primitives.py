"""Shared parts of both codecs: errors, limits, varints, uuids, and the values of a ``records`` field.

Sizes follow Kafka's protocol guide: integers are big-endian, a compact length is an unsigned varint of the
length plus one, null is -1 (classic) or 0 (compact).
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from typing import Protocol, TypeAlias

STRING_BYTES_MAX = 32767
"""Limit of a string in either form. A compact length could express more, but Kafka refuses it in both directions."""
ARRAY_LENGTH_MAX = 1 << 20
"""Limit of elements in one array. Each element must fit into the frame anyway, but that alone would let a
frame of 100 MB ask for a list of 100 million empty strings.
"""
NESTING_DEPTH_MAX = 8
"""Limit of nested structs; the deepest message of Kafka 4.3 has five levels."""
TAGS_MAX = 1024
"""Limit of tagged fields in one struct, known and unknown; Kafka's own messages have at most four."""
SMALL_PART_BYTES = 1024
"""A ``records`` value up to this size is copied into the bytes around it; a larger one is a part of its own."""

ZERO_UUID = bytes(16)
"""The uuid that means "none"."""


class DecodeError(ValueError):
    """The bytes are not this message: truncated, a length out of bounds, a forbidden null, bad UTF-8.

    It is the only exception of decoding. A broker closes the connection on it, as Kafka does.
    """


class EncodeError(ValueError):
    """The message has no form in this version: a defect here, never the peer's fault.

    Causes: a value that the version does not know and that may not be ignored, a forbidden null, an integer
    out of range, a string that is too long.
    """


class SizedPart(Protocol):
    """Bytes of a known size that are elsewhere: a region of a file, sent without being read into memory."""

    size_bytes: int


Part: TypeAlias = bytes | bytearray | memoryview | SizedPart
"""One piece of an encoded message."""
Records: TypeAlias = bytes | bytearray | memoryview | SizedPart | list[Part]
"""Value of a ``records`` field for encoding; a list is the concatenation of its parts.

Decoded, it is always a ``memoryview`` of the frame, not copied.
"""


def uuid_text(uuid: bytes) -> str:
    """Returns Kafka's text of a uuid: 22 characters of URL-safe base64 without padding."""
    return urlsafe_b64encode(uuid)[:22].decode()


def uuid_bytes(text: str) -> bytes:
    """Returns the 16 bytes of a uuid's text.

    :raises ValueError: not 22 characters of URL-safe base64
    """
    if len(text) != 22:
        raise ValueError(f"{text!r} is not a uuid: it must have 22 characters")
    return b64decode(text + "==", altchars=b"-_", validate=True)


def uvarint(buf: memoryview, pos: int) -> tuple[int, int]:
    """Read the unsigned varint of up to 32 bits at ``pos``. Returns it and the position after it.

    :raises DecodeError: longer than five bytes, more than 32 bits, or the buffer ends
    """
    value = shift = 0
    try:
        while True:
            byte = buf[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise DecodeError("a varint of more than five bytes")
    except IndexError:
        raise DecodeError("the bytes end within a varint") from None
    if value > 0xFFFFFFFF:
        raise DecodeError("a varint of more than 32 bits")
    return value, pos


def put_uvarint(value: int) -> bytes:
    """Returns ``value`` as an unsigned varint, least significant group first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(buf: memoryview, pos: int, end: int, known: str = "") -> int:
    """Returns the position after a section of tagged fields that this version does not know.

    :raises DecodeError: too many tags, or one that reaches beyond ``end``
    """
    count, pos = uvarint(buf, pos)
    if count > TAGS_MAX:
        raise DecodeError(f"{count} tagged fields in one struct{known}, more than {TAGS_MAX}")
    for _ in range(count):
        _, pos = uvarint(buf, pos)
        size, pos = uvarint(buf, pos)
        pos += size
        if pos > end:
            raise DecodeError("a tagged field reaches beyond the end")
    return pos


def records_size(value: Records) -> int:
    """Returns the size of a ``records`` value with all its parts, in bytes."""
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    if isinstance(value, memoryview):
        return value.nbytes
    if isinstance(value, list):
        return sum(records_size(part) for part in value)
    return value.size_bytes


def put_records(value: Records, out: list[bytes], parts: list[Part]) -> None:
    """Append a ``records`` value: copied into ``out`` if it is small, else as parts of its own.

    ``out`` is what was written since the last part. It is closed into ``parts`` before a part follows.
    """
    if isinstance(value, list):
        for part in value:
            put_records(part, out, parts)
        return
    if isinstance(value, (bytes, bytearray, memoryview)) and records_size(value) <= SMALL_PART_BYTES:
        out.append(bytes(value))
        return
    if out:
        parts.append(b"".join(out))
        out.clear()
    parts.append(value)
