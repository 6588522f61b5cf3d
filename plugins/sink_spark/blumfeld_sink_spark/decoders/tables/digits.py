"""Decimal numbers of a few digits out of text, eight digits at a time: three times as fast as a cast, and exact.

Eight ASCII digits are loaded as one word and added up by three multiplications; the 128-bit value of a
``decimal128(38, 18)`` is put together from 32-bit halves. All is integer arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_CHUNK = 16_384
"""Numbers at a time: their intermediate values stay in the processor's cache."""
_DIGITS = 8
_DOT = 0x2E


def _word(byte: int) -> Any:
    return np.uint64(int.from_bytes(bytes([byte]) * 8, "little"))


_ZEROS, _PAST_NINE, _HIGH = _word(0x30), _word(0x76), _word(0x80)
_LAST = np.array([0, *((1 << 64) - (1 << 64 - 8 * n) for n in range(1, 9))], np.uint64)
"""Mask of the last n of eight bytes."""
_PAIRS, _UPPER, _LOWER = (
    np.uint64(0x000000FF000000FF),
    np.uint64(0x000F424000000064),
    np.uint64(0x0000271000000001),
)
_TEN, _8, _16, _32 = np.uint64(10), np.uint64(8), np.uint64(16), np.uint64(32)
_ONE_LOW, _ONE_HIGH = np.uint64(10**18 & 0xFFFFFFFF), np.uint64(10**18 >> 32)


class NotPlainError(Exception):
    """Some number isn't 1 to 8 digits, and at most a point and up to 8 digits more."""


def plain_decimals(data: Any, words: Any, begins: Any, ends: Any) -> Any:
    """(n, 2) int64: the low and high words of ``decimal128(38, 18)`` for the texts between these places.

    ``data`` are bytes, ``words`` the eight bytes from each place on; eight bytes before each text can be read.

    :raises NotPlainError: one isn't plain: a sign, an exponent, too many digits, no number at all
    """
    made = np.empty((len(begins), 2), np.uint64)
    for at in range(0, len(begins), _CHUNK):
        part = slice(at, at + _CHUNK)
        _chunk(data, words, begins[part], ends[part], made[part])
    return made.view(np.int64)


def plain_integers(words: Any, begins: Any, ends: Any) -> Any:
    """int64 of the texts between these places; sixteen bytes before each text can be read.

    :raises NotPlainError: one isn't 1 to 16 digits
    """
    size = ends - begins
    if size.min() < 1 or size.max() > 2 * _DIGITS:
        raise NotPlainError
    if size.max() <= _DIGITS:
        return _sum(words[ends - _DIGITS], _LAST[size]).view(np.int64)
    upper = _sum(words[ends - 2 * _DIGITS], _LAST[np.maximum(size - _DIGITS, 0)])
    lower = _sum(words[ends - _DIGITS], _LAST[np.minimum(size, _DIGITS)])
    return (upper * np.uint64(10**_DIGITS) + lower).view(np.int64)


def _chunk(data: Any, words: Any, begins: Any, ends: Any, made: Any) -> None:
    size = ends - begins
    if size.min() < 1:
        raise NotPlainError
    places = _decimals_of(data[begins[0] : ends[0]].tobytes())
    if places >= 0 and (data[ends - 1 - places] == _DOT).all():
        _same(words, ends, size, places, made)
        return
    digits = np.full(len(size), -1)
    for places in range(_DIGITS + 1):
        digits[(digits < 0) & (size > places) & (data[ends - 1 - places] == _DOT)] = places
    for places in np.unique(digits).tolist():
        mine = np.flatnonzero(digits == places)
        these = np.empty((len(mine), 2), np.uint64)
        _same(words, ends[mine], size[mine], places, these)
        made[mine] = these


def _decimals_of(text: bytes) -> int:
    """Returns the number of digits after the point; -1 without a point, and where they are too many."""
    _, point, after = text.partition(b".")
    return len(after) if point and len(after) <= _DIGITS else -1


def _same(words: Any, ends: Any, size: Any, places: int, made: Any) -> None:
    """Reads the numbers of texts that all have ``places`` digits after the point; -1: they have no point."""
    whole_size = size - (places + 1)
    if whole_size.min() < 1 or whole_size.max() > _DIGITS:
        raise NotPlainError
    whole = _sum(words[ends - (places + 1 + _DIGITS)], _LAST[whole_size])
    low = whole * _ONE_LOW
    high = whole * _ONE_HIGH + (low >> _32)
    lower = low & np.uint64(0xFFFFFFFF) | high << _32
    if places > 0:
        made[:, 0] = lower + _sum(words[ends - _DIGITS], _LAST[places]) * np.uint64(10 ** (18 - places))
        made[:, 1] = (high >> _32) + (made[:, 0] < lower)
    else:
        made[:, 0], made[:, 1] = lower, high >> _32


def _sum(texts: Any, mask: Any) -> Any:
    """Returns the value of the ASCII digits in each eight-byte word. Only the bytes under the mask count.

    :raises NotPlainError: a byte under the mask is no digit
    """
    digits = (texts ^ _ZEROS) & mask
    if ((digits + _PAST_NINE) & _HIGH).any():
        raise NotPlainError
    digits = digits * _TEN + (digits >> _8)
    return ((digits & _PAIRS) * _UPPER + (digits >> _16 & _PAIRS) * _LOWER) >> _32
