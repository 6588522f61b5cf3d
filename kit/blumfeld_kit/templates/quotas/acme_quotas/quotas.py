"""Users have a pace at which they may produce."""

from __future__ import annotations

WAIT_MS_MAX = 30_000.0
"""A client's request times out after so long. What it owes beyond stays owed."""
BURST_MS = 1_000.0
"""A client that rested may take so much at once as it gets in this time."""


class AcmeQuotas:
    """``ClientQuotas``. Asked at each request, on the broker's loop: it must not block."""

    def __init__(self) -> None:
        self.generation = 0
        """Another one with every limit: the broker remembers what ``limits_produce`` said until then."""
        self._rates: dict[tuple[str, str], float] = {}
        """(key, user) → so much a second. A key is Kafka's: ``producer_byte_rate``."""
        self._paid_ms: dict[tuple[str, str], float] = {}
        """(key, user) → the time at which what was taken is paid for."""

    def limit(self, key: str, user: str, rate: float) -> None:
        """Limit a user, or an address."""
        self._rates[key, user] = rate
        self.generation += 1

    def limits_produce(self, user: str, client_id: str) -> bool:
        """Return whether a Produce request of this client counts. WRITE HERE: also for ``request_percentage``."""
        return ("producer_byte_rate", user) in self._rates

    def may_produce(self, user: str, client_id: str, size_bytes: int, now_ms: float) -> bool:
        """Return whether so many bytes need no wait, without counting them."""
        key = "producer_byte_rate"
        return self._wait_ms(self._paid(key, user, size_bytes, now_ms), now_ms) == 0

    def produced(self, user: str, client_id: str, size_bytes: int, now_ms: float) -> float:
        """Count bytes; return the wait in ms."""
        return self._take("producer_byte_rate", user, size_bytes, now_ms)

    def fetched(self, user: str, client_id: str, size_bytes: int, now_ms: float) -> float:
        """WRITE HERE: ``consumer_byte_rate``."""
        return 0.0

    def fetch_bytes_max(self, user: str, client_id: str) -> float | None:
        """Return the most bytes of an answer, so that the wait behind it isn't too long."""
        return None

    def busy(self, user: str, client_id: str, busy_ms: float, now_ms: float) -> float:
        """WRITE HERE: ``request_percentage``."""
        return 0.0

    def mutated(self, user: str, client_id: str, count: int, now_ms: float, *, strict: bool) -> float | None:
        """WRITE HERE: ``controller_mutation_rate``; ``None`` if ``strict`` and there is a wait."""
        return 0.0

    def mutation_throttle_ms(self, user: str, client_id: str, now_ms: float) -> float:
        """WRITE HERE: the wait until partitions may be created again."""
        return 0.0

    def connected(self, host: str, now_ms: float) -> float:
        """WRITE HERE: ``connection_creation_rate``. One that must wait is closed, and doesn't count."""
        return 0.0

    def _take(self, key: str, user: str, count: float, now_ms: float) -> float:
        paid_ms = self._paid_ms[key, user] = self._paid(key, user, count, now_ms)
        return self._wait_ms(paid_ms, now_ms)

    def _paid(self, key: str, user: str, count: float, now_ms: float) -> float:
        """Return the time at which so much more will be paid for."""
        rate = self._rates.get((key, user))
        if rate is None:
            return now_ms
        return max(self._paid_ms.get((key, user), now_ms), now_ms) + count / rate * 1000

    def _wait_ms(self, paid_ms: float, now_ms: float) -> float:
        return min(max(paid_ms - now_ms - BURST_MS, 0.0), WAIT_MS_MAX)
