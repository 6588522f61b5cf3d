"""The class that the entry point names."""

from __future__ import annotations

import msgspec
from blumfeld.spi.groups import GroupProtocol
from blumfeld.spi.hooks import Composition, NoOptions, hookimpl

from .protocol import AcmeGroupProtocol


class Plugin:
    """``acme_group_protocol`` of a manifest. Making it opens nothing."""

    options_class: type[msgspec.Struct] = NoOptions
    roles: tuple[str, ...] = ("groups",)
    requires_spi = "1.0"

    @hookimpl
    def blumfeld_make_group_protocol(self, composition: Composition) -> GroupProtocol:
        """Return the group type."""
        return AcmeGroupProtocol()
