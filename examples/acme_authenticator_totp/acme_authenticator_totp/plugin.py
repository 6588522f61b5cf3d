"""The plug-in: its options, and the mechanism that it brings."""

from __future__ import annotations

import base64
import binascii
import tomllib
from typing import Annotated

import msgspec

from acme_authenticator_totp.codes import TotpAuthenticator
from blumfeld.spi.hooks import Composition, CompositionRefused, hookimpl
from blumfeld.spi.runtime import Files
from blumfeld.spi.secret_files import BadSecretFile, read_secret_file
from blumfeld.spi.security import Mechanisms

ALLOWED = 'a file with a table [secrets]: NAME = "SECRET IN BASE32" for each user'
OPTION = "security.plugin_options.totp.secrets"


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[security.plugin_options.totp]``."""

    secrets: str
    """Path of the file with the users' secrets."""
    windows: Annotated[int, msgspec.Meta(ge=0, le=10)] = 1
    """Codes before and after the present one that are taken, too."""


class Plugin:
    """Named ``totp`` in a manifest."""

    options_class = Options
    roles = ("authenticators",)
    requires_spi = "1.0"

    @hookimpl
    def blumfeld_authenticators(self, composition: Composition) -> Mechanisms:
        """PLAIN, in place of the security plug-in's own."""
        options: Options = composition.options
        now_ms = composition.runtime.now_ms
        try:
            secrets = read_secrets(composition.runtime.files, options.secrets)
        except BadSecretFile as error:
            raise CompositionRefused(OPTION, str(error), ALLOWED) from None
        return {"PLAIN": lambda *_: TotpAuthenticator(secrets, now_ms, options.windows)}


def read_secrets(files: Files, path: str) -> dict[str, bytes]:
    """Returns each user's secret.

    :raises BadSecretFile: the file can't be read, may be read by others, or has another form. The error never repeats
        its content
    """
    try:
        document = tomllib.loads(read_secret_file(files, path))
        return {user: base64.b32decode(text, casefold=True) for user, text in document["secrets"].items()}
    except (ValueError, KeyError, AttributeError, TypeError, binascii.Error):
        raise BadSecretFile(f"{path}: of another form") from None
