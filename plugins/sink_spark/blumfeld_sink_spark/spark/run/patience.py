"""How long a live archive waits for a broker that is away, and when it asks again. Pure."""

from __future__ import annotations

import attrs

BACKOFF_S = 1.0
"""Before the first time that the broker is asked again; twice as long before each that follows."""
BACKOFF_MAX_S = 30.0
FOREVER = -1
"""``reconnect_timeout_ms`` without an end."""


@attrs.define
class Patience:
    """Of one run. No chance is in it: one archive asks one cluster, so there is no crowd to be spread out.

    :param timeout_ms: how long the broker may be away; 0 gives up at once, ``FOREVER`` never does
    """

    timeout_ms: int
    since_s: float | None = None
    """When it was first found away, by the clock that ``pause_s`` is given; None while it works."""
    tries: int = 0

    def pause_s(self, now_s: float) -> float | None:
        """How long to wait before the broker is asked again, now that it didn't answer; None to give up.

        The last pause is cut so that the broker is asked once more when the time is up.
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
        """Note that the broker didn't answer. Returns True where it did until now: an outage begins."""
        begins = self.since_s is None
        if begins:
            self.since_s = now_s
        return begins

    def away_s(self, now_s: float) -> float:
        """Since when it is away; 0 while it works."""
        return now_s - self.since_s if self.since_s is not None else 0.0

    def worked(self, now_s: float) -> float | None:
        """The broker answered: the next time counts from the start. How long it was away; None if it wasn't."""
        if self.since_s is None:
            return None
        away_s = self.away_s(now_s)
        self.since_s, self.tries = None, 0
        return away_s
