"""Spans of time as people write them."""

from __future__ import annotations

import re

from blumfeld_sink_spark.errors import SettingsError

DAY_NS = 86_400 * 10**9
_UNITS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": DAY_NS}
_SPAN = re.compile(r"([1-9]\d{0,8})(ms|s|m|h|d)")


def interval_ns(text: str) -> int:
    """``250ms``, ``1s``, ``5m``, ``1h``, ``1d`` in ns: spans that a day is a multiple of, so that none goes over
    midnight.

    :raises SettingsError: it is none of these
    """
    found = _SPAN.fullmatch(text)
    span = int(found[1]) * _UNITS[found[2]] if found else 0
    if not span or DAY_NS % span:
        raise SettingsError(f"interval {text!r}; allowed: what divides a day, as 250ms, 1s, 1m, 15m, 1h, 1d")
    return span


def name_of(span_ns: int) -> str:
    """As ``interval_ns`` reads it, in the greatest unit that fits."""
    for unit, size in sorted(_UNITS.items(), key=lambda item: -item[1]):
        if span_ns % size == 0:
            return f"{span_ns // size}{unit}"
    raise ValueError(f"{span_ns} ns is no whole ms")
