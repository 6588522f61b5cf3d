"""The class that the entry point names."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from blumfeld.spi.hooks import Composition, hookimpl
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.security import Mechanisms

from .authenticator import AcmeAuthenticator
from .users import Users


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[security.plugin_options.acme_authenticator]`` of a manifest."""

    passwords: dict[str, str] = {}


class Plugin:
    """``acme_authenticator`` of a manifest. Making it opens nothing."""

    options_class: type[msgspec.Struct] = Options
    roles: tuple[str, ...] = ("authenticators",)
    requires_spi = "1.0"

    @hookimpl
    def blumfeld_authenticators(self, composition: Composition) -> Mechanisms:
        """Return SASL mechanisms by name: PLAIN, in place of that of the plug-in ``security``."""
        return mechanisms(composition.runtime, composition.options.passwords)


def mechanisms(runtime: Runtime, passwords: Mapping[str, str]) -> Mechanisms:
    """Return what makes the authenticator of one exchange."""
    users = Users(passwords)
    return {"PLAIN": lambda listener, address: AcmeAuthenticator(runtime, users)}
