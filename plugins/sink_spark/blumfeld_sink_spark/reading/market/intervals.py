"""Converts intervals between text (``15m``) and ns."""

from __future__ import annotations

import re

from blumfeld_sink_spark.errors import SettingsError

DAY_NS = 86_400 * 10**9
_UNITS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": DAY_NS}
_SPAN = re.compile(r"([1-9]\d{0,8})(ms|s|m|h|d)")


def interval_ns(text: str) -> int:
    """Parses an interval such as ``250ms``, ``1s``, ``5m``, ``1h`` or ``1d`` to ns. It must divide a day, so that no
    interval crosses midnight.

    :raises SettingsError: it is no interval, or doesn't divide a day
    """
    match = _SPAN.fullmatch(text)
    span = int(match[1]) * _UNITS[match[2]] if match else 0
    if not span or DAY_NS % span:
        raise SettingsError(
            f"interval {text!r}; allowed: an interval that divides a day: 250ms, 1s, 1m, 15m, 1h, 1d"
        )
    return span


def name_of(span_ns: int) -> str:
    """Returns the text of an interval in the greatest unit that fits.

    :raises ValueError: it is no whole number of ms
    """
    for unit, size in sorted(_UNITS.items(), key=lambda item: -item[1]):
        if span_ns % size == 0:
            return f"{span_ns // size}{unit}"
    raise ValueError(f"{span_ns} ns is no whole number of ms")
