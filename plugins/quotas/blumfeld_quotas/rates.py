"""The measure of quotas. Pure: times are given."""

from __future__ import annotations


class TokenBucket:
    """Tokens that come at a rate, and that a burst may use. It may go below zero: a request is let through while there
    is any token, whatever it takes, and the next one waits.

    Kafka has it for the controller's mutations alone (KIP-599). Its other quotas are sums over eleven samples: a client
    that is above its quota gets nothing until the oldest sample goes, and then ten seconds' share at once. From a
    bucket it gets its rate at each moment, and exactly.

    :param burst_s: the seconds of the rate that it holds at most
    :param first_s: the seconds of the rate that it holds at first
    """

    __slots__ = ("_burst_s", "_filled_ms", "_tokens", "used_ms")

    def __init__(self, burst_s: float, first_s: float, per_s: float, now_ms: float) -> None:
        self._burst_s = burst_s
        self._tokens = first_s * per_s
        self._filled_ms = now_ms
        self.used_ms = now_ms
        """The time of the last use."""

    def take(self, count: float, per_s: float, now_ms: float) -> float:
        """Take tokens, down to any number below zero; returns :meth:`throttle_ms`."""
        self._fill(per_s, now_ms)
        self.used_ms = now_ms
        self._tokens -= count
        return self.throttle_ms(per_s, now_ms)

    def holds(self, count: float, per_s: float, now_ms: float) -> bool:
        """Whether it holds no less than nothing when so many are taken."""
        self._fill(per_s, now_ms)
        return self._tokens >= count

    def give_back(self, count: float) -> None:
        """Put back what was taken for nothing."""
        self._tokens += count

    def throttle_ms(self, per_s: float, now_ms: float) -> float:
        """Returns the time until it holds no less than nothing, and no more than that of a whole burst: the debt stays,
        and the next request waits again. 0 if it holds enough."""
        self._fill(per_s, now_ms)
        if self._tokens >= 0:
            return 0.0
        longest_ms = self._burst_s * 1_000
        return min(-self._tokens * 1_000 / per_s, longest_ms) if per_s > 0 else longest_ms

    def _fill(self, per_s: float, now_ms: float) -> None:
        grown = self._tokens + (now_ms - self._filled_ms) * per_s / 1_000
        self._tokens = min(grown, self._burst_s * per_s)
        self._filled_ms = now_ms
