"""The contract of all quotas."""

from __future__ import annotations

from typing import Any

from blumfeld.spi.quotas import ClientQuotas
from blumfeld_kit import QuotasContract

from acme_quotas import AcmeQuotas


class TestAcmeQuotas(QuotasContract):
    """All that quotas must hold. ``keys`` names those that yours has, if not all of Kafka's."""

    def make_quotas(self) -> ClientQuotas:
        """Return new ones, which limit nobody."""
        return AcmeQuotas()

    def limit(
        self, quotas: Any, key: str, rate: float, *, user: str | None = None, host: str | None = None
    ) -> None:
        """Limit a user, or an address."""
        quotas.limit(key, user or host or "", rate)
