"""The pace of sending: by the records' timestamps, by a rate, or as fast as possible."""

from __future__ import annotations

import time
from collections.abc import Callable

from blumfeld_sink_spark.errors import SettingsError

LONGEST_WAIT_S = 0.2
"""Longest pause between two calls of the producer's poll, which handles acknowledgements while we wait."""


class Pace:
    """Computes the wait before each record.

    :param speed: 2.0 is twice as fast as the timestamps; 0 ignores them
    :param rate: records a second at most; 0 is no limit
    """

    def __init__(
        self, speed: float = 0.0, rate: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._speed = speed
        self._rate = rate
        self._clock = clock
        self._begun: float | None = None
        self._sent = 0
        self._first_ms: int | None = None

    @property
    def is_flat_out(self) -> bool:
        """Whether no record ever waits."""
        return not self._speed and not self._rate

    def wait_s(self, timestamp_ms: int) -> float:
        """Returns the seconds until a record of this timestamp is due; 0 if it is.

        A record with an older timestamp than one before it is due at once.
        """
        now = self._clock()
        if self._first_ms is None or self._begun is None:
            self._first_ms, self._begun = timestamp_ms, now
        due = 0.0
        if self._speed:
            due = (timestamp_ms - self._first_ms) / 1000 / self._speed
        if self._rate:
            due = max(due, self._sent / self._rate)
        return max(0.0, self._begun + due - now)

    def sent(self) -> None:
        """Counts a record that was sent."""
        self._sent += 1


def speed_of(text: str) -> float:
    """Parses a speed: ``10`` or ``10x`` is ten times the original pace, ``max`` or ``0`` as fast as possible.

    :raises SettingsError: it is neither
    """
    if text == "max":
        return 0.0
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = -1.0
    if not 0 <= speed < float("inf"):
        raise SettingsError(f"speed: {text!r}; allowed: max, or a factor such as 1.0 or 10")
    return speed
