"""Decimal numbers out of text: exactly, or not at all.

Arrow's own cast is exact only while its intermediate value fits. It multiplies the digits by ten to the scale in 128
bits, and looks at the digits of the product afterwards: ``123456789012345678901234567890`` becomes
``46509284486016680345.83…`` as ``decimal128(38, 18)``, without an error. So a text is cast only where no product can
leave its words; every other one goes through Python's ``Decimal``.
"""

from __future__ import annotations

import re
from decimal import Decimal, DecimalException
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DECIMAL = pa.decimal128(38, 18)
"""The type of prices and sizes in decoded tables. A message whose number doesn't fit goes to quarantine."""
JSON_NUMBER = pa.decimal256(38, 18)
"""The type that Arrow's JSON parser reads numbers as. A text of 38 digits times ten to 18 stays in 256 bits, and the
parser refuses longer texts, so it is exact where ``decimal128`` would wrap. ``narrowed`` makes a ``DECIMAL`` of it.
Hold the JSON against ``hold_exponents`` first.
"""
_WIDE_DIGITS = 76
"""Decimal digits that 256 bits hold."""
NUMBER_TEXT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""A text that is a number, whole."""
_DEEP = r"[:,\[][ \t\r\n]*-?[0-9][0-9.]*[eE]-0*(5[6-9]|[6-9][0-9]|[1-9][0-9]{2,})"
"""A JSON number with an exponent below -55, as far as a look at the text can tell it from the inside of a string."""
_LOWER_CASE, _E = 0x20, 0x65


def exact(texts: Any, kind: Any = DECIMAL) -> Any:
    """The decimals that strings stand for; null stays null.

    :raises pyarrow.ArrowInvalid: one is no number, or ``kind`` can't hold it to its last digit
    """
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if not _has_exponents(texts):
        if longest <= kind.precision - kind.scale:  # as many digits before the point as fit, at most
            return texts.cast(kind)
        if longest <= _WIDE_DIGITS - kind.scale:
            return texts.cast(pa.decimal256(_WIDE_DIGITS, kind.scale)).cast(kind)
    return pa.array([None if text is None else _decimal(text, kind) for text in texts.to_pylist()], kind)


def hold_exponents(values: Any) -> None:
    """Hold that JSON texts have no number that Arrow's parser can't scale to ``JSON_NUMBER``.

    The parser takes the power of ten from a table without looking at the table's end: ``0e-999999999`` ends the
    process. The smallest exponent with which a number of 38 digits can still have 18 places is -55.

    :raises pyarrow.ArrowInvalid: one has
    """
    if pc.any(pc.match_substring_regex(values, _DEEP)).as_py():
        raise pa.ArrowInvalid("a number has an exponent below -55")


def narrowed(numbers: Any) -> Any:
    """``JSON_NUMBER`` as ``DECIMAL``; null stays null.

    :raises pyarrow.ArrowInvalid: one doesn't fit
    """
    return numbers.cast(DECIMAL)


def _has_exponents(texts: Any) -> bool:
    """Whether an ``e`` or ``E`` is in one of these strings."""
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return False
    places = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    used = np.frombuffer(data, np.uint8)[places[0] : places[-1]]
    return bool(((used | _LOWER_CASE) == _E).any())


def _decimal(text: str, kind: Any) -> Decimal:
    """One number, without trailing zeros.

    :raises pyarrow.ArrowInvalid: as ``exact``
    """
    if not NUMBER_TEXT.fullmatch(text):
        raise pa.ArrowInvalid(f"{text[:60]!r} is not a decimal number")
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except DecimalException as error:
        raise pa.ArrowInvalid(f"{text[:60]!r} does not fit {kind}") from error
    kept = len(digits)
    while kept and digits[kept - 1] == 0:
        kept -= 1
    if not kept:
        return Decimal(0)
    exponent = int(exponent) + len(digits) - kept
    if exponent < -kind.scale or kept + exponent > kind.precision - kind.scale:
        raise pa.ArrowInvalid(f"{text[:60]!r} does not fit {kind}")
    return Decimal((sign, digits[:kept], exponent))
