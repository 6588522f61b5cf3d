"""The class that the entry point names."""

from __future__ import annotations

import msgspec
from blumfeld.spi.hooks import Composition, hookimpl
from blumfeld.spi.security import Authorizer

from .authorizer import AcmeAuthorizer


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[security.plugin_options.acme_authorizer]`` of a manifest."""

    trusted: tuple[str, ...] = ()


class Plugin:
    """``acme_authorizer`` of a manifest. Making it opens nothing."""

    options_class: type[msgspec.Struct] = Options
    roles: tuple[str, ...] = ("authorizer",)
    requires_spi = "1.0"

    @hookimpl
    def blumfeld_make_authorizer(self, composition: Composition) -> Authorizer:
        """Return what decides in place of ACLs."""
        return AcmeAuthorizer(composition.options.trusted)
