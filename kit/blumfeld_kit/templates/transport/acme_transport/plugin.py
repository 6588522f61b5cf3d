"""The class that the entry point names."""

from __future__ import annotations

import msgspec
from blumfeld.spi.hooks import Composition, NoOptions, hookimpl
from blumfeld.spi.transport import Transport

from .transport import AcmeTransport


class Plugin:
    """``acme_transport`` of a manifest. Making it opens nothing."""

    options_class: type[msgspec.Struct] = NoOptions
    roles: tuple[str, ...] = ("network",)
    requires_spi = "1.0"

    @hookimpl
    def blumfeld_make_transport(self, composition: Composition) -> Transport:
        """Return the transport of a node."""
        return AcmeTransport(composition.runtime)
