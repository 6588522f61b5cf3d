"""What both codecs share: the errors, the limits, varints, uuids, and the values of a ``records`` field.

Sizes follow Kafka's protocol guide: integers are big-endian, a compact length is an unsigned varint of
the length plus one, null is -1 (classic) or 0 (compact).
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from typing import Protocol, TypeAlias

STRING_BYTES_MAX = 32767
"""The longest string in either form; a compact length could say more, Kafka refuses it on both sides."""
ARRAY_LENGTH_MAX = 1 << 20
"""The most elements of one array. Beyond the rule that each element must still fit into the frame, which
alone lets a frame of 100 MB ask for a list of 100 million empty strings."""
NESTING_DEPTH_MAX = 8
"""How deep structs may lie in structs; the deepest message of Kafka 4.3 has five levels."""
TAGS_MAX = 1024
"""The most tagged fields of one struct, known and unknown; Kafka's own messages have at most four."""
SMALL_PART_BYTES = 1024
"""A ``records`` value up to this size is copied into the bytes around it; a larger one is a part."""

ZERO_UUID = bytes(16)
"""The uuid that means "none"."""


class DecodeError(ValueError):
    """The bytes are not this message: truncated, a length out of bounds, null where none may stand, bad UTF-8.

    The only exception that decoding raises. A broker closes the connection on it (Kafka does the same).
    """


class EncodeError(ValueError):
    """The message has no form in this version: our mistake, never the peer's.

    A field with a value that the version does not know and that may not be ignored, null where none may
    stand, an integer out of range, a string too long.
    """


class SizedPart(Protocol):
    """Bytes that are somewhere else, of a known size: a region of a file, sent without being read."""

    size_bytes: int


Part: TypeAlias = bytes | bytearray | memoryview | SizedPart
"""One piece of an encoded message."""
Records: TypeAlias = bytes | bytearray | memoryview | SizedPart | list[Part]
"""What a ``records`` field may hold for encoding; a list stands for its parts one after the other.

Decoded, it is always a ``memoryview`` of the frame, not copied.
"""


def uuid_text(uuid: bytes) -> str:
    """Kafka's text of a uuid: 22 characters of URL-safe base64 without padding."""
    return urlsafe_b64encode(uuid)[:22].decode()


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of a uuid's text.

    :raises ValueError: not 22 characters of URL-safe base64
    """
    if len(text) != 22:
        raise ValueError(f"{text!r} is no uuid: it must have 22 characters")
    return b64decode(text + "==", altchars=b"-_", validate=True)


def uvarint(buf: memoryview, pos: int) -> tuple[int, int]:
    """The unsigned varint of up to 32 bits at ``pos``, and the position behind it.

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
    """``value`` as an unsigned varint, least significant group first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(buf: memoryview, pos: int, end: int, known: str = "") -> int:
    """The position behind a section of tagged fields, none of which this version knows.

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
    """The bytes of a ``records`` value, all its parts together."""
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    if isinstance(value, memoryview):
        return value.nbytes
    if isinstance(value, list):
        return sum(records_size(part) for part in value)
    return value.size_bytes


def put_records(value: Records, out: list[bytes], parts: list[Part]) -> None:
    """Append a ``records`` value: copied into ``out`` when it is small, else as parts of its own.

    ``out`` is what was written since the last part; it is closed into ``parts`` before a part follows.
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
