"""Pauses at random, so that voters don't stand for election at the same moment again and again."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld_consensus_kraft.raft.settings import Settings

BACKOFF_BASE_MS = 50
"""Pauses after a lost election are at random below this, doubled with each loss in a row."""

FIRST_PAUSE, FIRST_PAUSE_RANDOM = 0.03, 0.1
"""Parts of the election timeout: see :meth:`Pauses.first_ms`."""


class Pauses:
    """Draws pauses.

    :param random_below: a random number from 0 up to its argument
    """

    def __init__(self, settings: Settings, random_below: Callable[[float], float]) -> None:
        self.losses = 0
        """Elections and pre-votes in a row that this replica lost."""
        self._settings = settings
        self._random_below = random_below

    def election_ms(self) -> float:
        """Until a voter without a leader stands, or an election without a winner ends."""
        timeout_ms = self._settings.election_timeout_ms
        return timeout_ms + self._random_below(timeout_ms)

    def backoff_ms(self) -> float:
        """Until a voter that lost tries again."""
        return self._random_below(self._doubled(BACKOFF_BASE_MS))

    def first_ms(self) -> float:
        """Until a voter that has just started becomes prospective, when no other voter knows a leader.

        Voters that start together would else all stand, and none would win. So the draw is much longer than a round
        trip; the one that was up first asks the others again and again meanwhile, and has won when their pauses end.
        """
        timeout_ms = self._settings.election_timeout_ms
        return timeout_ms * FIRST_PAUSE + self._random_below(timeout_ms * FIRST_PAUSE_RANDOM)

    def successor_ms(self, place: int) -> float:
        """Until a voter stands whose leader resigned, by its place among the successors."""
        return place * BACKOFF_BASE_MS + self.backoff_ms() if place else 0

    def refused_ms(self) -> float:
        """Until a voter whose leader's port refuses connections becomes prospective. A leader that the other voters
        still hear refuses one voter only, perhaps for long: so this is a backoff, too."""
        return self._random_below(self._doubled(self._settings.refused_jitter_ms))

    def _doubled(self, base_ms: int) -> int:
        return min(base_ms << min(self.losses, 20), self._settings.election_backoff_max_ms)
