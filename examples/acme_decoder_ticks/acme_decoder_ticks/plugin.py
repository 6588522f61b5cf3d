"""What the entry point names."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from acme_decoder_ticks.decoder import TicksDecoder
from blumfeld.spi.decoders import Decoder
from blumfeld.spi.hooks import NoOptions, hookimpl


class Plugin:
    """``decoder_ticks``. Making it opens nothing."""

    options_class: type[msgspec.Struct] = NoOptions
    roles: tuple[str, ...] = ("decoders",)
    requires_spi = "1.0"

    @hookimpl
    def blumfeld_decoders(self) -> Sequence[Decoder]:
        """``acme-ticks``."""
        return (TicksDecoder(),)
