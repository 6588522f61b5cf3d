"""Contexts of Python's ``ssl``: the parts that a server's and a client's share, and a client's own."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

import msgspec

from blumfeld.client.errors import NotSecuredError
from blumfeld.client.security.certificate import Certificate
from blumfeld.client.security.stores import Identity, Store, TlsConfigError, identity, trusted, with_path
from blumfeld.spi.runtime import Files

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
PASSWORD_BYTES_MAX = 1_023
"""OpenSSL takes no longer one."""
_PLAIN_THERE = "is that listener's security.protocol PLAINTEXT or SASL_PLAINTEXT?"
OPTIONS = ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION


class Made(msgspec.Struct, frozen=True):
    """A context, and the certificate that it shows."""

    context: ssl.SSLContext
    certificate: Certificate | None
    """``None`` for a client's context that shows none."""


def client_context(
    files: Files,
    keystore: Store,
    truststore: Store,
    *,
    checks_host: bool,
    versions: Sequence[str] = tuple(VERSIONS),
    ciphers: str | None = None,
    revocation_lists: Sequence[bytes] = (),
) -> Made:
    """Returns the context of a client. Without a truststore the system's certificates are trusted, as Java's are in
    Kafka.

    :param checks_host: whether the server's certificate must have the name that was dialled
    :param ciphers: OpenSSL's names of the suites before TLS 1.3; ``None`` for its default
    :param revocation_lists: in PEM
    :raises TlsConfigError: a file or a value can't be used
    """
    context = base_context(ssl.PROTOCOL_TLS_CLIENT, versions, ciphers)
    context.check_hostname = checks_host
    context.verify_mode = ssl.CERT_REQUIRED
    own = identity(files, keystore) if keystore.is_set else None
    if own is not None:
        show(context, own, keystore)
    if truststore.is_set:
        trust(files, context, truststore, revocation_lists)
    else:
        context.load_default_certs()
    return Made(context, None if own is None else own.certificate)


def base_context(protocol: int, versions: Sequence[str], ciphers: str | None) -> ssl.SSLContext:
    """Returns a context of these versions and suites, without keys.

    :raises TlsConfigError: OpenSSL hasn't got a suite
    """
    context = ssl.SSLContext(protocol)
    context.options |= OPTIONS
    ordered = sorted(versions)
    context.minimum_version, context.maximum_version = VERSIONS[ordered[0]], VERSIONS[ordered[-1]]
    if ciphers is not None:
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError:
            found = f"suites that this OpenSSL hasn't got: {ciphers}"
            raise TlsConfigError("ssl.cipher.suites", found, "one suite that it has") from None
    return context


def show(context: ssl.SSLContext, own: Identity, store: Store) -> None:
    """Let a context show a certificate.

    :raises TlsConfigError: the private key can't be read, or isn't that of the certificate
    """

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


def trust(files: Files, context: ssl.SSLContext, store: Store, revocation_lists: Sequence[bytes]) -> None:
    """Let a context trust the certificates of a truststore.

    :param revocation_lists: in PEM
    :raises TlsConfigError: a file can't be read, or holds something else
    """
    key = f"{store.key}.location" if store.location else f"{store.key}.certificates"
    try:
        context.load_verify_locations(cadata=trusted(files, store).decode("ascii", "ignore"))
        # As in Java, each certificate of the truststore is an anchor, also one that another has signed.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        for revoked in revocation_lists:
            with_path(revoked, context.load_verify_locations)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except ssl.SSLError as error:
        found = f"{store.location or 'the text'}: {_reason(error)}"
        raise TlsConfigError(key, found, "certificates in PEM or PKCS12") from None


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "unreadable").replace("_", " ").lower()


_REASONS = {
    "WRONG_VERSION_NUMBER": f"it speaks no TLS there: {_PLAIN_THERE}",
    "TLSV1_ALERT_UNKNOWN_CA": "it doesn't trust this client's certificate: its truststore lacks the signer",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it doesn't take this client's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it doesn't take this client's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that this client's certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it says that this client's certificate is revoked",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it demands a certificate, and this client showed none: ssl.keystore.location",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it found no version, suite or certificate to its liking",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it speaks neither TLS 1.2 nor TLS 1.3",
}
"""OpenSSL's reason → its words for a client."""
_UNSIGNED = frozenset((7, 18, 19, 20, 21))
"""OpenSSL's codes of a certificate whose signer isn't trusted, or only has the name of one that is."""


def failed_handshake(where: str, error: OSError) -> NotSecuredError:
    """Returns the words for a TLS connection that failed.

    :param where: the server's address
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        signed = "no certificate of ssl.truststore.location has signed it: " * (
            error.verify_code in _UNSIGNED
        )
        told = f"the server's certificate isn't accepted: {signed}{error.verify_message}"
    elif isinstance(error, TimeoutError):
        told = f"the server doesn't answer a TLS handshake: {_PLAIN_THERE}"
    elif isinstance(error, ssl.SSLEOFError | ConnectionError):
        told = f"the server closed the connection in the TLS handshake: {_PLAIN_THERE}"
    elif isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        told = (
            f"TLS with the server failed: {_REASONS.get(reason) or reason.replace('_', ' ').lower() or error}"
        )
    else:
        told = str(error)
    return NotSecuredError(where, told)
