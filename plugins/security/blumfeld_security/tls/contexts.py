"""Contexts of Python's ``ssl`` of a node, made of settings, keys and certificates."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping

from blumfeld.client.security import tls
from blumfeld.client.security.stores import Store, identity
from blumfeld.client.security.tls import Made, base_context, show, trust
from blumfeld.spi.runtime import Files
from blumfeld_security.tls.material import revoked
from blumfeld_security.tls.options import TlsOptions
from blumfeld_security.tls.settings import TlsSettings

VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
SERVER_NAMES = "security.options.tls.server_names"
NO_OPTIONS = TlsOptions()
Choose = Callable[[ssl.SSLObject, str | None, ssl.SSLContext], None]


def server_context(files: Files, settings: TlsSettings, options: TlsOptions = NO_OPTIONS) -> Made:
    """Returns the context for clients of a listener.

    :raises TlsConfigError: a file or a value can't be used
    """
    made = _showing(files, settings.keystore, settings, options)
    named = {
        name.lower(): _showing(files, Store(SERVER_NAMES, location=path), settings, options).context
        for name, path in options.server_names.items()
    }
    if named:
        made.context.sni_callback = _chooser(named)
    return made


def _showing(files: Files, store: Store, settings: TlsSettings, options: TlsOptions) -> Made:
    """Returns a context that shows this certificate. Each verifies clients by itself: OpenSSL takes the trusted
    certificates from the context that was chosen."""
    context = base_context(ssl.PROTOCOL_TLS_SERVER, settings.versions, settings.ciphers)
    own = identity(files, store)
    show(context, own, store)
    context.verify_mode = VERIFY[settings.client_auth]
    if settings.client_auth != "none":
        trust(files, context, settings.truststore, _revoked(files, options))
    return Made(context, own.certificate)


def _chooser(contexts: Mapping[str, ssl.SSLContext]) -> Choose:
    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        chosen = contexts.get((name or "").lower())
        if chosen is not None:
            connection.context = chosen

    return choose


def client_context(files: Files, settings: TlsSettings, options: TlsOptions = NO_OPTIONS) -> Made:
    """Returns the context for connections to other nodes.

    :raises TlsConfigError: a file or a value can't be used
    """
    return tls.client_context(
        files,
        settings.keystore,
        settings.truststore,
        checks_host=settings.checks_host,
        versions=settings.versions,
        ciphers=settings.ciphers,
        revocation_lists=_revoked(files, options),
    )


def _revoked(files: Files, options: TlsOptions) -> list[bytes]:
    return [revoked(files, path) for path in options.revocation_lists]
