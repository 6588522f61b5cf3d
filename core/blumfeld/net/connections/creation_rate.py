"""The limit on new connections: ``max.connection.creation.rate``, for a broker or one listener. Pure."""

from __future__ import annotations

WINDOW_S = 10
"""Kafka counts over ten samples of a second each. So after a silence the connections of ten seconds may come at
once."""


class CreationRate:
    """A token bucket that holds the connections of :data:`WINDOW_S` seconds, and fills as time passes."""

    def __init__(self, connections_per_s: float, now_ms: float) -> None:
        self._per_s = connections_per_s
        self._left = connections_per_s * WINDOW_S
        self._since_ms = now_ms

    def limit(self, connections_per_s: float, now_ms: float) -> None:
        """Use another rate from now on. Connections that were accepted before still count."""
        if connections_per_s != self._per_s:
            used = self._per_s * WINDOW_S - self._refilled(now_ms)
            self._per_s = connections_per_s
            self._left = connections_per_s * WINDOW_S - used

    def took(self, now_ms: float) -> None:
        """Count an accepted connection. One that came too early makes the next ones wait longer."""
        self._left = self._refilled(now_ms) - 1

    def wait_ms(self, now_ms: float) -> float:
        """Returns the time until one more connection may come; 0 for now, infinity for a rate of 0."""
        missing = 1 - self._refilled(now_ms)
        if missing <= 0:
            return 0.0
        return missing / self._per_s * 1_000 if self._per_s else float("inf")

    def _refilled(self, now_ms: float) -> float:
        passed_s = (now_ms - self._since_ms) / 1_000
        self._since_ms = now_ms
        self._left = min(self._left + passed_s * self._per_s, self._per_s * WINDOW_S)
        return self._left
