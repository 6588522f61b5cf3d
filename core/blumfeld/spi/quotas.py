"""The quotas role: how much each client may take (KIP-13, KIP-124, KIP-599, KIP-612). A plug-in measures; the broker
throttles. Pure: times are given, nothing is sent.
"""

from __future__ import annotations

from typing import Protocol


class ClientQuotas(Protocol):
    """Made by ``blumfeld_make_quotas``. Called once a request or more, on the loop; must not block.

    A client is the name of its user (``Principal.name``) and its client id. A wait is in milliseconds; 0 is none. The
    broker says it in the answer's ``throttle_time_ms``, and reads nothing from the connection for so long (KIP-219).
    """

    generation: int
    """Changes before :meth:`limits_produce` may answer otherwise than before: with each quota that is set, changed or
    removed. The broker remembers the answer for a connection until then."""

    def limits_produce(self, user: str, client_id: str) -> bool:
        """Whether a Produce request of this client counts for any quota, of bytes or of time."""
        ...

    def may_produce(self, user: str, client_id: str, size_bytes: int, now_ms: float) -> bool:
        """Whether a Produce request of so many bytes leaves the client within its quotas, as far as is known before it
        is served. Counts nothing. The broker then counts the request, and its answer says no wait."""
        ...

    def produced(self, user: str, client_id: str, size_bytes: int, now_ms: float) -> float:
        """Count a Produce request of so many bytes; returns the wait."""
        ...

    def fetched(self, user: str, client_id: str, size_bytes: int, now_ms: float) -> float:
        """Count a Fetch answer of so many bytes; returns the wait behind it."""
        ...

    def fetch_bytes_max(self, user: str, client_id: str) -> float | None:
        """The most bytes that a Fetch answer may have, for its wait not to become too long; ``None`` for no limit. A
        batch that is larger is sent all the same, alone."""
        ...

    def busy(self, user: str, client_id: str, busy_ms: float, now_ms: float) -> float:
        """Count time that the loop worked on a request; returns the wait."""
        ...

    def mutated(self, user: str, client_id: str, count: int, now_ms: float, *, strict: bool) -> float | None:
        """Count partitions that are to be created or deleted; returns the wait.

        :param strict: ``None`` while there is a wait: refused with THROTTLING_QUOTA_EXCEEDED, and not counted
        """
        ...

    def mutation_throttle_ms(self, user: str, client_id: str, now_ms: float) -> float:
        """The wait until partitions may be created or deleted again."""
        ...

    def connected(self, host: str, now_ms: float) -> float:
        """Count a new connection of this address; returns the wait. If there is one, the connection is closed
        after it, unread."""
        ...
