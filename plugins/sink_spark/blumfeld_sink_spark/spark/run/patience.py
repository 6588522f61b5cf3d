"""The retry backoff of a live archive while the broker is away. Pure: the caller passes the clock."""

from __future__ import annotations

import attrs

BACKOFF_S = 1.0
"""Pause before the first retry. It doubles with each that follows, up to ``BACKOFF_MAX_S``."""
BACKOFF_MAX_S = 30.0
FOREVER = -1
"""``reconnect_timeout_ms`` that never gives up."""


@attrs.define
class Patience:
    """The outage state of one run.

    The backoff has no jitter: one archive asks one cluster, so there is no crowd to spread out.

    :param timeout_ms: longest outage to wait for; 0 gives up at once, ``FOREVER`` never does
    """

    timeout_ms: int
    since_s: float | None = None
    """Begin of the outage, by the clock that the caller passes; None while the broker answers."""
    tries: int = 0

    def pause_s(self, now_s: float) -> float | None:
        """Notes a failed try and returns the pause before the next one; None to give up.

        The last pause is cut, so that the broker is asked once more when the time is up.
        """
        self.found_away(now_s)
        pause = min(BACKOFF_MAX_S, BACKOFF_S * 2 ** min(self.tries, 16))
        if self.timeout_ms != FOREVER:
            left = self.timeout_ms / 1000 - self.away_s(now_s)
            if left <= 0:
                return None
            pause = min(pause, left)
        self.tries += 1
        return pause

    def found_away(self, now_s: float) -> bool:
        """Notes that the broker didn't answer. Returns True where an outage begins with this."""
        begins = self.since_s is None
        if begins:
            self.since_s = now_s
        return begins

    def away_s(self, now_s: float) -> float:
        """Returns the length of the outage so far; 0 while the broker answers."""
        return now_s - self.since_s if self.since_s is not None else 0.0

    def worked(self, now_s: float) -> float | None:
        """Notes an answer, which ends the outage and resets the backoff.

        :returns: the length of the outage; None if there was none
        """
        if self.since_s is None:
            return None
        away_s = self.away_s(now_s)
        self.since_s, self.tries = None, 0
        return away_s
