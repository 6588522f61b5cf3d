"""Keystores and truststores of a TLS client or server: read from files or texts, and checked. Errors name a file and a
reason.

A private key in PEM whose file other users may read is refused, as by ``ssh``.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Callable

import msgspec

from blumfeld.client.security.certificate import Certificate, MalformedError, in_pem, parse
from blumfeld.spi.runtime import Files
from blumfeld.spi.secret_files import BadSecretFile, check_mode

KEYSTORE, TRUSTSTORE = "ssl.keystore", "ssl.truststore"
TYPES = ("PEM", "PKCS12")
CONVERT = (
    "PEM or PKCS12; to convert it: keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12"
    " -deststoretype PKCS12"
)
KEY = re.compile(
    rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.+?-----END [A-Z0-9 ]*PRIVATE KEY-----\n?", re.DOTALL
)
_ONE_LINE = re.compile(r"(-----BEGIN [A-Z0-9 ]+-----)\s([A-Za-z0-9+/=\s]+)(-----END [A-Z0-9 ]+-----)")
FILE_BYTES_MAX = 16 << 20
"""No keystore is larger: another file was named."""


class TlsConfigError(Exception):
    """A setting can't be used.

    :param key: the key, with its prefix if it has one
    :param found: what is wrong; never a password or a key
    :param allowed: what would be right
    """

    def __init__(self, key: str, found: str, allowed: str) -> None:
        super().__init__(f'config."{key}": found {found}; allowed: {allowed}')
        self.key = key
        self.found = found
        self.allowed = allowed


class Store(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A keystore or a truststore: a file, or PEM texts in the configuration itself."""

    key: str
    """``ssl.keystore`` or ``ssl.truststore``, with the listener's prefix if any of its keys has it."""
    kind: str = "PEM"
    location: str | None = None
    password: str | None = None
    key_password: str | None = None
    private_key: str | None = None
    certificates: str | None = None

    def __repr__(self) -> str:
        return f"Store({self.key}, {self.kind}, {self.location})"

    @property
    def is_set(self) -> bool:
        """Whether there is one."""
        return self.location is not None or self.certificates is not None


class Identity(msgspec.Struct, frozen=True):
    """A private key with its certificates. It has no representation that shows the key."""

    pem: bytes
    """The key, then its certificate and those above it."""
    password: str | None
    certificate: Certificate

    def __repr__(self) -> str:
        return f"Identity({self.certificate.subject})"


def read_file(files: Files, store_key: str, path: str) -> bytes:
    """Returns the bytes of a file.

    :raises TlsConfigError: it can't be read
    """
    try:
        file = files.open(path, write=False)
        try:
            data = file.pread(FILE_BYTES_MAX + 1, 0)
        finally:
            file.close()
    except OSError as error:
        raise TlsConfigError(store_key, f"{path}: {error.strerror}", "a file that can be read") from None
    if len(data) > FILE_BYTES_MAX:
        raise TlsConfigError(
            store_key, f"{path}, which has more than {FILE_BYTES_MAX >> 20} MiB", "a keystore"
        )
    return data


def identity(files: Files, store: Store) -> Identity:
    """Returns the key and the certificates of a keystore.

    :raises TlsConfigError: the file can't be read, holds something else, or may be read by everybody
    """
    where = store.key if store.key.startswith("security.") else f"{store.key}.location"
    if store.location is None:
        pem = _lines(f"{store.private_key}\n{store.certificates}\n")
        return _identity_of_pem(pem, store, f"{store.key}.certificate.chain", "the text")
    data = read_file(files, where, store.location)
    if store.kind == "PKCS12":
        return _identity_of_pkcs12(data, store, where)
    made = _identity_of_pem(data, store, where, store.location)
    if b"ENCRYPTED" not in data:
        try:
            check_mode(files, store.location)
        except BadSecretFile as error:
            allowed = "a file of the broker's user, or a private key with a password"
            raise TlsConfigError(where, str(error), allowed) from None
    return made


def _identity_of_pem(pem: bytes, store: Store, key: str, where: str) -> Identity:
    found = KEY.search(pem)
    if found is None:
        raise TlsConfigError(
            key, f"{where}, in which there is no private key", "PEM: a key, and its certificates"
        )
    certificate = _first(pem, key, where)
    return Identity(pem, store.key_password or store.password, certificate)


def _lines(text: str) -> bytes:
    """Returns PEM texts of the configuration as OpenSSL reads them. As Kafka takes it, one may stand on one line, with
    blanks for the ends of its lines."""

    def wrapped(match: re.Match[str]) -> str:
        return "\n".join((match[1], *textwrap.wrap("".join(match[2].split()), 64), match[3], ""))

    return _ONE_LINE.sub(wrapped, text).encode()


def _first(pem: bytes, key: str, where: str) -> Certificate:
    try:
        certificates = in_pem(pem)
        if certificates:
            return parse(certificates[0])
    except MalformedError as error:
        raise TlsConfigError(key, f"{where}: {error}", "certificates in PEM") from None
    if pem[:4] == b"\xfe\xed\xfe\xed" or pem[:1] == b"\x30":
        raise TlsConfigError(key, f"{where}, which is a keystore of Java or PKCS12", "PEM, as its type says")
    raise TlsConfigError(key, f"{where}, in which there is no certificate", "certificates in PEM")


def _pkcs12(data: bytes, store: Store, key: str) -> tuple[bytes | None, list[bytes]]:
    """Returns the private key in PEM (``None`` for none) and the certificates in PEM, the key's own first."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        kind = f"{store.key}.type"
        raise TlsConfigError(
            kind,
            "PKCS12, for which the package cryptography is missing",
            "PEM; or pip install 'blumfeld[pkcs12]'",
        ) from None
    password = None if store.password is None else store.password.encode()
    try:
        loaded = pkcs12.load_pkcs12(data, password)
    except (ValueError, UnsupportedAlgorithm):
        found = f"{store.location}, which this password doesn't open, or which is no PKCS12"
        raise TlsConfigError(key, found, f"a PKCS12 file, and its {store.key}.password") from None
    pem = serialization.Encoding.PEM
    own = [] if loaded.cert is None else [loaded.cert]
    certificates = [one.certificate.public_bytes(pem) for one in (*own, *loaded.additional_certs)]
    if loaded.key is None:
        return None, certificates
    plain = serialization.NoEncryption()
    return loaded.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain), certificates


def _identity_of_pkcs12(data: bytes, store: Store, key: str) -> Identity:
    private, certificates = _pkcs12(data, store, key)
    if private is None or not certificates:
        found = f"{store.location}, in which there is no private key with its certificate"
        raise TlsConfigError(key, found, "a keystore; certificates alone are a truststore")
    pem = b"".join((private, *certificates))
    return Identity(pem, None, _first(pem, key, str(store.location)))


def trusted(files: Files, store: Store) -> bytes:
    """Returns the trusted certificates of a truststore, in PEM.

    :raises TlsConfigError: the file can't be read, or holds no certificate
    """
    if store.location is None:
        pem, key, where = _lines(store.certificates or ""), f"{store.key}.certificates", "the text"
    else:
        key, where = f"{store.key}.location", store.location
        pem = read_file(files, key, where)
        if store.kind == "PKCS12":
            pem = b"".join(_pkcs12(pem, store, key)[1])
    _first(pem, key, where)
    return pem


def with_path(data: bytes, use: Callable[[str], None]) -> None:
    """Call ``use`` with the path of a file that has these bytes and that no other process can open: Python's ``ssl``
    reads a key from files alone."""
    fd = os.memfd_create("blumfeld-tls", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        use(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
