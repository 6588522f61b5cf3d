"""The throttled partitions of one fetcher (KIP-73): their quota, and when they are left out of a request."""

from __future__ import annotations

from blumfeld.spi.replication_quota import ReplicationQuota
from blumfeld_replication_isr.fetcher_rules import FetcherRules, Key, State
from blumfeld_replication_isr.follower import IsrFollower


class ThrottledFollowers:
    """Followers that were throttled when they began, or when their last bytes came."""

    def __init__(self, rules: FetcherRules, backoff_ms: float) -> None:
        self._rules = rules
        self._backoff_ms = backoff_ms
        self._followers: dict[Key, IsrFollower] = {}

    def __len__(self) -> int:
        """Number of throttled partitions."""
        return len(self._followers)

    def forget(self, key: Key) -> None:
        """Take note that a partition left the fetcher."""
        self._followers.pop(key, None)

    def quota_of(self, follower: IsrFollower) -> ReplicationQuota | None:
        """Returns the quota of a follower; ``None`` if it isn't throttled now."""
        quota = follower.host.quota
        if quota is None:
            self._followers.pop(follower.key, None)
        else:
            self._followers[follower.key] = follower
        return quota

    def hold(self, now_ms: float) -> None:
        """Leave throttled partitions out of the next request while the quota is exceeded.

        They are looked at again after ``replica.fetch.backoff.ms``, as in Kafka: the throttle may be taken away.
        """
        for follower in self._followers.values():
            quota = follower.host.quota
            if (
                quota is None
                or follower.has_caught_up
                or self._rules.state(follower.key) is not State.FETCHING
            ):
                continue
            if quota.is_exceeded(now_ms):
                until_ms = min(quota.ends_ms(now_ms), now_ms + self._backoff_ms)
                self._rules.delay(follower.key, follower.position(), until_ms)
