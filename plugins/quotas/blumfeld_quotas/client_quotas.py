"""What each client has taken, and how long it waits: implements ``spi.quotas.ClientQuotas``."""

from __future__ import annotations

from blumfeld.spi.cluster import ClusterImage, ImageDelta
from blumfeld.spi.hooks import Composition
from blumfeld_quotas.entities import (
    CONNECTIONS,
    FETCHED,
    MUTATIONS,
    PRODUCED,
    REQUEST,
    SECTION,
    Limit,
    Quotas,
    SharedBy,
    connection_limit,
    limit_of,
)
from blumfeld_quotas.rates import TokenBucket

REQUEST_THROTTLE_MS_MAX = 1_000.0
"""The longest wait for request time: one sample, as in Kafka."""
UNUSED_MS = 3_600_000.0
"""The time after which a bucket that nobody used is forgotten, as Kafka's sensors are."""
BUCKETS_MAX = 50_000
"""Buckets of one kind. Beyond it those that were not used for longest are forgotten first, for a client may send any
number of client ids."""
_UNKNOWN = Limit(0.0, (None, None))
"""Stands for a client whose limit was not looked up. It is compared by identity."""
FIRST_S = 1.0
"""Seconds of its rate that a new client may take at once."""


class ClientQuotas:
    """The quotas of one node: each broker measures what its own clients take, as in Kafka."""

    def __init__(self, composition: Composition) -> None:
        config = composition.config
        samples, sample_s = config.int("quota.window.num"), config.int("quota.window.size.seconds")
        self._burst_s = float(max(samples - 1, 1) * sample_s)
        """Seconds of its rate that a client may take at once after a rest: Kafka's window."""
        samples, sample_s = (
            config.int("controller.quota.window.num"),
            config.int("controller.quota.window.size.seconds"),
        )
        self._mutation_burst_s = float(samples * sample_s)
        self.generation = 0
        self._quotas: Quotas = {}
        self._limits: dict[tuple[str, str, str], Limit | None] = {}
        """(key, user, client id) → its limit, for :attr:`_quotas`."""
        self._producing: dict[tuple[str, str], bool] = {}
        """(user, client id) → whether its Produce requests count, for :attr:`_quotas`."""
        self._buckets = {key: Buckets() for key in (PRODUCED, FETCHED, REQUEST, MUTATIONS, CONNECTIONS)}
        self.throttled = dict.fromkeys(self._buckets, 0)
        """Times that a client was told to wait, by the quota."""
        self.counted = dict.fromkeys(self._buckets, 0.0)
        """What clients with a quota took, by the quota, in its unit. A connection that is to be closed isn't in it."""
        composition.metadata.subscribe(self._step)

    def limits_produce(self, user: str, client_id: str) -> bool:
        """As ``ClientQuotas.limits_produce``. Each Produce request asks."""
        counts = self._producing.get((user, client_id))
        if counts is None:
            if len(self._producing) >= BUCKETS_MAX:
                self._producing.clear()
            limits = (self._limit(key, user, client_id) for key in (PRODUCED, REQUEST))
            counts = self._producing[user, client_id] = any(limit is not None for limit in limits)
        return counts

    def may_produce(self, user: str, client_id: str, size_bytes: int, now_ms: float) -> bool:
        """As ``ClientQuotas.may_produce``."""
        for key, count in ((PRODUCED, size_bytes), (REQUEST, 0)):
            limit = self._limit(key, user, client_id)
            if limit is not None:
                bucket = self._bucket(key, limit.shared_by, limit.value, now_ms)
                if not bucket.holds(count, limit.value, now_ms):
                    return False
        return True

    def produced(self, user: str, client_id: str, size_bytes: int, now_ms: float) -> float:
        """As ``ClientQuotas.produced``."""
        return self._counted(PRODUCED, user, client_id, size_bytes, now_ms)

    def fetched(self, user: str, client_id: str, size_bytes: int, now_ms: float) -> float:
        """As ``ClientQuotas.fetched``."""
        return self._counted(FETCHED, user, client_id, size_bytes, now_ms)

    def fetch_bytes_max(self, user: str, client_id: str) -> float | None:
        """As ``ClientQuotas.fetch_bytes_max``."""
        limit = self._limit(FETCHED, user, client_id)
        return None if limit is None else limit.value * self._burst_s

    def busy(self, user: str, client_id: str, busy_ms: float, now_ms: float) -> float:
        """As ``ClientQuotas.busy``: the limit is a percentage of one thread."""
        waits_ms = self._counted(REQUEST, user, client_id, busy_ms / 10.0, now_ms)
        return min(waits_ms, REQUEST_THROTTLE_MS_MAX)

    def mutated(self, user: str, client_id: str, count: int, now_ms: float, *, strict: bool) -> float | None:
        """As ``ClientQuotas.mutated``."""
        if strict and self.mutation_throttle_ms(user, client_id, now_ms):
            self.throttled[MUTATIONS] += 1
            return None
        return self._counted(MUTATIONS, user, client_id, count, now_ms)

    def mutation_throttle_ms(self, user: str, client_id: str, now_ms: float) -> float:
        """As ``ClientQuotas.mutation_throttle_ms``."""
        limit = self._limit(MUTATIONS, user, client_id)
        bucket = None if limit is None else self._buckets[MUTATIONS].get(limit.shared_by)
        return 0.0 if bucket is None or limit is None else bucket.throttle_ms(limit.value, now_ms)

    def connected(self, host: str, now_ms: float) -> float:
        """As ``ClientQuotas.connected``."""
        per_s = connection_limit(self._quotas, host)
        if per_s is None:
            return 0.0
        bucket = self._bucket(CONNECTIONS, (host, None), per_s, now_ms)
        waits_ms = bucket.take(1, per_s, now_ms)
        if waits_ms:
            bucket.give_back(1)  # the connection will be closed
            self.throttled[CONNECTIONS] += 1
        else:
            self.counted[CONNECTIONS] += 1
        return waits_ms

    def _counted(self, key: str, user: str, client_id: str, count: float, now_ms: float) -> float:
        limit = self._limit(key, user, client_id)
        if limit is None:
            return 0.0
        waits_ms = self._bucket(key, limit.shared_by, limit.value, now_ms).take(count, limit.value, now_ms)
        self.counted[key] += count
        self.throttled[key] += waits_ms > 0
        return waits_ms

    def _bucket(self, key: str, shared_by: SharedBy, per_s: float, now_ms: float) -> TokenBucket:
        bucket = self._buckets[key].use(shared_by, now_ms)
        if bucket is None:
            mutations = key == MUTATIONS
            burst_s = self._mutation_burst_s if mutations else self._burst_s
            bucket = TokenBucket(burst_s, burst_s if mutations else FIRST_S, per_s, now_ms)
            self._buckets[key].add(shared_by, bucket)
        return bucket

    def _step(self, image: ClusterImage, delta: ImageDelta) -> None:
        if delta.first or SECTION in delta.section_records:
            self.generation += 1
            self._quotas = image.section(SECTION)
            self._limits.clear()
            self._producing.clear()

    def _limit(self, key: str, user: str, client_id: str) -> Limit | None:
        if not self._quotas:
            return None
        asked = (key, user, client_id)
        limit = self._limits.get(asked, _UNKNOWN)
        if limit is _UNKNOWN:
            if len(self._limits) >= BUCKETS_MAX:
                self._limits.clear()
            limit = self._limits[asked] = limit_of(self._quotas, key, user, client_id)
        return limit


class Buckets:
    """Buckets by what they are shared by. The one that was used last stands last."""

    def __init__(self) -> None:
        self._by: dict[SharedBy, TokenBucket] = {}

    def get(self, shared_by: SharedBy) -> TokenBucket | None:
        """Returns the bucket, if there is one."""
        return self._by.get(shared_by)

    def use(self, shared_by: SharedBy, now_ms: float) -> TokenBucket | None:
        """Returns the bucket, if there is one. Two that nobody used for an hour are forgotten meanwhile."""
        bucket = self._by.pop(shared_by, None)
        for _ in range(2):
            oldest = next(iter(self._by), None)
            if oldest is None or now_ms - self._by[oldest].used_ms <= UNUSED_MS:
                break
            del self._by[oldest]
        if bucket is not None:
            self._by[shared_by] = bucket
        return bucket

    def add(self, shared_by: SharedBy, bucket: TokenBucket) -> None:
        """Keep a new bucket, and forget the oldest if there are too many."""
        self._by[shared_by] = bucket
        if len(self._by) > BUCKETS_MAX:
            del self._by[next(iter(self._by))]
