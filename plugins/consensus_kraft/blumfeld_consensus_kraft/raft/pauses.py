"""Pauses at random, so that voters don't stand for election at the same moment again and again."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld_consensus_kraft.raft.settings import Settings

BACKOFF_BASE_MS = 50
"""Pauses after a lost election are at random below this, doubled with each loss in a row."""


class Pauses:
    """Draws pauses.

    :param random_below: a random number from 0 up to its argument
    """

    def __init__(self, settings: Settings, random_below: Callable[[float], float]) -> None:
        self.losses = 0
        """Elections in a row that this replica lost."""
        self._settings = settings
        self._random_below = random_below

    def election_ms(self) -> float:
        """Until a voter without a leader stands, or an election without a winner ends."""
        timeout_ms = self._settings.election_timeout_ms
        return timeout_ms + self._random_below(timeout_ms)

    def backoff_ms(self) -> float:
        """Until a voter that lost tries again."""
        limit_ms = min(BACKOFF_BASE_MS << min(self.losses, 20), self._settings.election_backoff_max_ms)
        return self._random_below(limit_ms)

    def refused_ms(self) -> float:
        """Until a voter whose leader's port refuses connections becomes prospective."""
        return self._random_below(self._settings.refused_jitter_ms)
