"""Zigzag varints, as records use them: small numbers of either sign take one byte.

Seven bits a byte, the least significant group first; five bytes at most for 32 bits, ten for 64.
"""

from __future__ import annotations


class BadVarintError(ValueError):
    """A varint has more bytes or bits than a number of its size can have."""


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Read a 32-bit number.

    :return: the number, and the position after it
    :raises BadVarintError: it does not end, or does not fit into 32 bits
    :raises IndexError: the data end inside of it
    """
    byte = data[at]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), at + 1
    raw = byte & 0x7F
    for shift in (7, 14, 21, 28):
        at += 1
        byte = data[at]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw > 0xFFFFFFFF:
                raise BadVarintError("a varint of more than 32 bits")
            return raw >> 1 ^ -(raw & 1), at + 1
    raise BadVarintError("a varint of more than 5 bytes")


def read_varlong(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Read a 64-bit number; otherwise as :func:`read_varint`."""
    byte = data[at]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), at + 1
    raw = byte & 0x7F
    for shift in range(7, 64, 7):
        at += 1
        byte = data[at]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw > 0xFFFFFFFFFFFFFFFF:
                raise BadVarintError("a varlong of more than 64 bits")
            return raw >> 1 ^ -(raw & 1), at + 1
    raise BadVarintError("a varlong of more than 10 bytes")


def append_varint(out: bytearray, number: int) -> None:
    """Append a signed number of up to 64 bits."""
    if 0 <= number < 64:
        out.append(number << 1)
        return
    raw = number << 1 ^ number >> 63
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
