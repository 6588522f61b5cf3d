"""At what pace records go out again: by their own timestamps, so many a second, or as fast as they can."""

from __future__ import annotations

import time
from collections.abc import Callable

from blumfeld_sink_spark.errors import SettingsError

LONGEST_WAIT_S = 0.2
"""Between two looks at the clients, which have work to do while we wait."""


class Pace:
    """Says how long to wait before the next record.

    :param speed: 2.0 is twice as fast as the timestamps say; 0 doesn't look at them
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
        """Whether nothing ever waits."""
        return not self._speed and not self._rate

    def wait_s(self, timestamp_ms: int) -> float:
        """Seconds until a record of this timestamp is due; 0 if it is. Records out of order are due at once."""
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
        """One more went out."""
        self._sent += 1


def speed_of(text: str) -> float:
    """``max`` or ``0`` is flat out, ``10`` or ``10x`` ten times the original.

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
