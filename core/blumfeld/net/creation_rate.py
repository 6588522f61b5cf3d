"""How often connections may be made: ``max.connection.creation.rate``, of a broker or of one listener. Pure."""

from __future__ import annotations

WINDOW_S = 10
"""Kafka counts over ten full samples of a second: so many seconds' connections may come at once after silence."""


class CreationRate:
    """A bucket that holds :data:`WINDOW_S` seconds of connections and is filled as time passes."""

    def __init__(self, connections_per_s: float, now_ms: float) -> None:
        self._per_s = connections_per_s
        self._left = connections_per_s * WINDOW_S
        self._since_ms = now_ms

    def limit(self, connections_per_s: float, now_ms: float) -> None:
        """Take another rate from now on. What was accepted before still counts."""
        if connections_per_s != self._per_s:
            used = self._per_s * WINDOW_S - self._refilled(now_ms)
            self._per_s = connections_per_s
            self._left = connections_per_s * WINDOW_S - used

    def took(self, now_ms: float) -> None:
        """A connection was accepted. It counts although it came too early: the next ones wait for longer."""
        self._left = self._refilled(now_ms) - 1

    def wait_ms(self, now_ms: float) -> float:
        """How long until one more may come; 0 is now, infinite is never at this rate."""
        missing = 1 - self._refilled(now_ms)
        if missing <= 0:
            return 0.0
        return missing / self._per_s * 1_000 if self._per_s else float("inf")

    def _refilled(self, now_ms: float) -> float:
        passed_s = (now_ms - self._since_ms) / 1_000
        self._since_ms = now_ms
        self._left = min(self._left + passed_s * self._per_s, self._per_s * WINDOW_S)
        return self._left
