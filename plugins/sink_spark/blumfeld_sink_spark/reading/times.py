"""Converts times between the text that people write and ns since the epoch."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from blumfeld_sink_spark.errors import SettingsError

_ISO = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:?\d\d)?")
_DIGITS = {10: 10**9, 13: 10**6, 16: 10**3, 19: 1}
"""Factor to ns by the number of digits: a bare number is s, ms, µs or ns (right for the years 2001 to 2286)."""


def ns_of(text: str | None) -> int | None:
    """Parses ``2024-08-09``, ``2024-08-09T00:01:02.123456789Z`` (UTC without an offset), or s, ms, µs or ns as digits.
    None stays None.

    :raises SettingsError: it is none of these
    """
    if text is None:
        return None
    if text.isdigit() and len(text) in _DIGITS:
        return int(text) * _DIGITS[len(text)]
    match = _ISO.fullmatch(text)
    if match is None:
        raise SettingsError(
            f"time {text!r}; allowed: 2024-08-09, 2024-08-09T12:30:00.5Z, or s, ms, µs, ns as digits"
        )
    try:
        whole = datetime.fromisoformat(f"{match[1]}T{match[2] or '00:00'}{match[4] or ''}")
    except ValueError as error:
        raise SettingsError(f"time {text!r}: {error}") from error
    if whole.tzinfo is None:
        whole = whole.replace(tzinfo=UTC)
    return int(whole.timestamp()) * 10**9 + int((match[3] or "").ljust(9, "0"))


def iso_of(ns: int) -> str:
    """Returns a time as ``2024-08-09T00:00:00.123456789Z``."""
    seconds, rest = divmod(ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
