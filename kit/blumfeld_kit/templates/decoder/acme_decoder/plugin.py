"""The class that the entry point names."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from blumfeld.spi.decoders import Decoder
from blumfeld.spi.hooks import NoOptions, hookimpl

from .decoder import AcmeDecoder


class Plugin:
    """``acme_decoder`` of the archive's settings. Making it opens nothing."""

    options_class: type[msgspec.Struct] = NoOptions
    roles: tuple[str, ...] = ("decoders",)
    requires_spi = "1.0"

    @hookimpl
    def blumfeld_decoders(self) -> Sequence[Decoder]:
        """Return the decoders that this plug-in brings."""
        return (AcmeDecoder(),)
