"""The rate of copies to the store, or of reads from it: ``remote.log.manager.copy.max.bytes.per.second``. Pure."""

from __future__ import annotations


class CopyPace:
    """Says when the next bytes may go.

    In Kafka a copy begins while the average over ``quota.window.num`` windows is below the limit, and a segment counts
    whole when it begins. Here the windows are one span: what was not used in the last ``window_ms`` may be used at
    once, and a segment that is larger than that makes the next one wait until the average is right again.

    :param bytes_per_second: the limit; 2**63 - 1 is Kafka's default, no limit
    :param window_ms: ``quota.window.num`` times ``quota.window.size.seconds``
    """

    def __init__(self, bytes_per_second: int, window_ms: float) -> None:
        self.bytes_per_second = bytes_per_second
        """May be changed at any time; what is used already keeps its time."""
        self._window_ms = window_ms
        self._used_until_ms = float("-inf")
        """The time until which the bytes that went use up the limit."""

    def ready_at(self, now_ms: float, size_bytes: int) -> float:
        """Count ``size_bytes``, and return the time at which they may go: ``now_ms``, or later."""
        begin_ms = max(now_ms, self._used_until_ms)
        used_ms = size_bytes * 1000 / self.bytes_per_second
        self._used_until_ms = max(self._used_until_ms, now_ms - self._window_ms) + used_ms
        return begin_ms
