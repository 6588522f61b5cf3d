"""Contexts of Python's ``ssl``, made of settings, keys and certificates."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence

import msgspec

from blumfeld.spi.runtime import Files
from blumfeld_security.tls.certificate import Certificate
from blumfeld_security.tls.material import Identity, identity, revoked, trusted, with_path
from blumfeld_security.tls.options import TlsOptions
from blumfeld_security.tls.settings import Store, TlsConfigError, TlsSettings

VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
PASSWORD_BYTES_MAX = 1_023
"""OpenSSL takes no longer one."""
SERVER_NAMES = "security.options.tls.server_names"
NO_OPTIONS = TlsOptions()
Choose = Callable[[ssl.SSLObject, str | None, ssl.SSLContext], None]
OPTIONS = ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION


class Made(msgspec.Struct, frozen=True):
    """A context, and the certificate that it shows."""

    context: ssl.SSLContext
    certificate: Certificate | None
    """``None`` for a context of connections to other nodes that shows none."""


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
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    own = identity(files, store)
    _show(context, own, store)
    context.verify_mode = VERIFY[settings.client_auth]
    if settings.client_auth != "none":
        _trust(files, context, settings.truststore, options.revocation_lists)
    return Made(context, own.certificate)


def _chooser(contexts: Mapping[str, ssl.SSLContext]) -> Choose:
    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        chosen = contexts.get((name or "").lower())
        if chosen is not None:
            connection.context = chosen

    return choose


def client_context(files: Files, settings: TlsSettings, options: TlsOptions = NO_OPTIONS) -> Made:
    """Returns the context for connections to other nodes. Without a truststore the system's certificates are trusted,
    as Java's are in Kafka.

    :raises TlsConfigError: a file or a value can't be used
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = settings.checks_host
    context.verify_mode = ssl.CERT_REQUIRED
    own = identity(files, settings.keystore) if settings.keystore.is_set else None
    if own is not None:
        _show(context, own, settings.keystore)
    if settings.truststore.is_set:
        _trust(files, context, settings.truststore, options.revocation_lists)
    else:
        context.load_default_certs()
    return Made(context, None if own is None else own.certificate)


def _context(protocol: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.options |= OPTIONS
    versions = sorted(settings.versions)
    context.minimum_version, context.maximum_version = VERSIONS[versions[0]], VERSIONS[versions[-1]]
    if settings.ciphers is not None:
        try:
            context.set_ciphers(settings.ciphers)
        except ssl.SSLError:
            found = f"suites that this OpenSSL hasn't got: {settings.ciphers}"
            raise TlsConfigError("ssl.cipher.suites", found, "one suite that it has") from None
    return context


def _show(context: ssl.SSLContext, own: Identity, store: Store) -> None:
    def load(path: str) -> None:
        # Without a password OpenSSL would ask at the terminal.
        context.load_cert_chain(path, password=own.password or "")

    key = f"{store.key}.location" if store.location else f"{store.key}.key"
    where = store.location or "the text"
    if len((own.password or "").encode()) > PASSWORD_BYTES_MAX:
        found = f"{where}, for whose private key the password has more than {PASSWORD_BYTES_MAX} bytes"
        raise TlsConfigError(key, found, "a key that ssl.key.password opens")
    try:
        with_path(own.pem, load)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            found = f"{where}, whose private key doesn't belong to its first certificate"
            raise TlsConfigError(key, found, "a key, then its own certificate, then those above it") from None
        found = f"{where}, whose private key can't be read ({_reason(error)})"
        raise TlsConfigError(key, found, "a key that ssl.key.password opens") from None


def _trust(files: Files, context: ssl.SSLContext, store: Store, revocation_lists: Sequence[str]) -> None:
    key = f"{store.key}.location" if store.location else f"{store.key}.certificates"
    try:
        context.load_verify_locations(cadata=trusted(files, store).decode("ascii", "ignore"))
        # As in Java, each certificate of the truststore is an anchor, also one that another has signed.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        for path in revocation_lists:
            with_path(revoked(files, path), context.load_verify_locations)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except ssl.SSLError as error:
        found = f"{store.location or 'the text'}: {_reason(error)}"
        raise TlsConfigError(key, found, "certificates in PEM or PKCS12") from None


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "unreadable").replace("_", " ").lower()
