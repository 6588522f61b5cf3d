"""The class that the entry point names."""

from __future__ import annotations

import msgspec
from blumfeld.spi.hooks import Composition, hookimpl
from blumfeld.spi.quotas import ClientQuotas

from .quotas import AcmeQuotas


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[quotas.options]`` of a manifest."""

    produced_bytes_per_s: dict[str, float] = {}
    """User → rate."""


class Plugin:
    """``acme_quotas`` of a manifest. Making it opens nothing."""

    options_class: type[msgspec.Struct] = Options
    roles: tuple[str, ...] = ("quotas",)
    requires_spi = "1.0"

    @hookimpl
    def blumfeld_make_quotas(self, composition: Composition) -> ClientQuotas:
        """Return what counts what each client takes."""
        quotas = AcmeQuotas()
        for user, rate in composition.options.produced_bytes_per_s.items():
            quotas.limit("producer_byte_rate", user, rate)
        return quotas
