"""The class that the entry point names."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from blumfeld.spi.assignors import ConsumerAssignor
from blumfeld.spi.hooks import NoOptions, hookimpl

from .assignor import AcmeAssignor


class Plugin:
    """``acme_assignor`` of a manifest. Making it opens nothing."""

    options_class: type[msgspec.Struct] = NoOptions
    roles: tuple[str, ...] = ("assignors",)
    requires_spi = "1.0"

    @hookimpl
    def blumfeld_assignors(self) -> Sequence[ConsumerAssignor]:
        """Return the assignors that this plug-in brings."""
        return (AcmeAssignor(),)
