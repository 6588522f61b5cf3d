"""Counts of logins, for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from blumfeld.spi.hooks import Metric


class LoginCounts:
    """Counts of one node."""

    def __init__(self) -> None:
        self.logins: Counter[tuple[str, str, str]] = Counter()
        """(listener, mechanism, outcome) → logins. A client's text is never a label."""
        self.expired = 0
        """Connections that were closed because their session had expired."""

    def succeeded(self, listener: str, mechanism: str, *, again: bool) -> None:
        """Count a login, or a re-authentication."""
        self.logins[listener, mechanism, "renewed" if again else "succeeded"] += 1

    def failed(self, listener: str, mechanism: str) -> None:
        """Count a failed login or re-authentication."""
        self.logins[listener, mechanism, "failed"] += 1

    def metrics(self) -> Sequence[Metric]:
        """Returns the metrics."""
        return (
            Metric(
                "blumfeld_logins_total",
                "Logins by SASL: succeeded, renewed (KIP-368) and failed ones.",
                "counter",
                lambda: dict(self.logins),
                labels=("listener", "mechanism", "outcome"),
            ),
            Metric(
                "blumfeld_expired_sessions_closed_total",
                "Connections closed because their client did not log in again before its session ended.",
                "counter",
                lambda: self.expired,
            ),
        )
