"""The TLS settings of one listener, from Kafka's keys. Pure: it opens no file.

A key may have the prefix ``listener.name.<name>.``, which counts before the key alone.
"""

from __future__ import annotations

import msgspec

from blumfeld.client.security.stores import CONVERT, KEYSTORE, TRUSTSTORE, TYPES, Store, TlsConfigError
from blumfeld.client.security.tls import VERSIONS
from blumfeld.config.values import BrokerConfig
from blumfeld_security.tls.ciphers import SuiteError, openssl_names
from blumfeld_security.tls.principals import RuleError, Rules

CLIENT_AUTH = "ssl.client.auth"


class TlsSettings(msgspec.Struct, frozen=True):
    """The settings of a listener's TLS."""

    listener: str
    keystore: Store
    truststore: Store
    client_auth: str
    """``none``, ``requested`` or ``required``."""
    versions: tuple[str, ...]
    ciphers: str | None
    """OpenSSL's names of the suites before TLS 1.3; ``None`` for its default."""
    checks_host: bool
    """Whether this node compares the name in another node's certificate."""
    rules: str
    """``ssl.principal.mapping.rules``."""
    allows_other_names: tuple[bool, bool] = (False, False)
    """Whether a new keystore may have another distinguished name, and other alternative names."""

    def __repr__(self) -> str:
        return f"TlsSettings({self.listener})"


class _Reader:
    """Reads keys of one listener."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self._config = config
        self._listener = listener

    def name(self, key: str) -> str:
        """Returns the key with the prefix, if that is set, else the key."""
        return self._config.of_listener(self._listener, key)

    def text(self, key: str) -> str | None:
        """Returns the value; ``None`` for an empty one."""
        value = self._config.get(self.name(key))
        return value if isinstance(value, str) and value else None

    def list(self, key: str) -> tuple[str, ...]:
        """Returns a list; empty for null."""
        return self._config.list(self.name(key))

    def flag(self, key: str) -> bool:
        """Returns a yes or no."""
        return self._config.bool(self.name(key))


def settings_of(config: BrokerConfig, listener: str, *, with_sasl: bool, dials: bool = False) -> TlsSettings:
    """Returns the settings of a listener of the protocol SSL, or SASL_SSL (``with_sasl``).

    :param dials: for connections that this node opens: they need no certificate of their own
    :raises TlsConfigError: a value that can't be served, or a missing one
    """
    read = _Reader(config, listener)
    keystore, truststore = _keystore(read), _truststore(read)
    client_auth = _client_auth(read, with_sasl=with_sasl)
    if not keystore.is_set and not dials:
        found = f"nothing, and the listener {listener} speaks TLS"
        raise TlsConfigError(f"{KEYSTORE}.location", found, "the file with its private key and certificate")
    if client_auth != "none" and not truststore.is_set and not dials:
        found = f"nothing, and {read.name(CLIENT_AUTH)} is {client_auth}"
        allowed = "the file with the certificates that sign those of clients"
        raise TlsConfigError(f"{TRUSTSTORE}.location", found, allowed)
    versions, ciphers = _versions_and_ciphers(read)
    return TlsSettings(
        listener=listener,
        keystore=keystore,
        truststore=truststore,
        client_auth=client_auth,
        versions=versions,
        ciphers=ciphers,
        checks_host=_checks_host(read),
        rules=_rules(read),
        allows_other_names=(read.flag("ssl.allow.dn.changes"), read.flag("ssl.allow.san.changes")),
    )


def _client_auth(read: _Reader, *, with_sasl: bool) -> str:
    # As in Kafka: beside SASL a certificate is asked for only where the listener's own key says so.
    name = read.name(CLIENT_AUTH)
    if with_sasl and name == CLIENT_AUTH:
        return "none"
    return (read.text(CLIENT_AUTH) or "none").lower()


def _checked_kind(read: _Reader, key: str) -> str:
    name = read.name(f"{key}.type")
    kind = (read.text(f"{key}.type") or "JKS").upper()
    if kind not in TYPES:
        raise TlsConfigError(name, f"{kind} (JKS is Kafka's default)" if kind == "JKS" else kind, CONVERT)
    return kind


def _keystore(read: _Reader) -> Store:
    location, private_key = read.text(f"{KEYSTORE}.location"), read.text(f"{KEYSTORE}.key")
    chain = read.text(f"{KEYSTORE}.certificate.chain")
    prefix = read.name(f"{KEYSTORE}.location").removesuffix(f"{KEYSTORE}.location")
    if location is None and private_key is None and chain is None:
        return Store(KEYSTORE)
    kind = _checked_kind(read, KEYSTORE)
    if (private_key is None) != (chain is None):
        missing = "certificate.chain" if chain is None else "key"
        raise TlsConfigError(f"{prefix}{KEYSTORE}.{missing}", "nothing", "both the key and its certificates")
    if private_key is not None and (location is not None or kind != "PEM"):
        found = "a file beside the key in the configuration" if location else f"{kind} for a key in PEM"
        raise TlsConfigError(f"{prefix}{KEYSTORE}.{'location' if location else 'type'}", found, "one of both")
    return Store(
        prefix + KEYSTORE,
        kind=kind,
        location=location,
        password=read.text(f"{KEYSTORE}.password"),
        key_password=read.text("ssl.key.password"),
        private_key=private_key,
        certificates=chain,
    )


def _truststore(read: _Reader) -> Store:
    location = read.text(f"{TRUSTSTORE}.location")
    certificates = read.text(f"{TRUSTSTORE}.certificates")
    prefix = read.name(f"{TRUSTSTORE}.location").removesuffix(f"{TRUSTSTORE}.location")
    if location is None and certificates is None:
        return Store(TRUSTSTORE)
    kind = _checked_kind(read, TRUSTSTORE)
    if certificates is not None and (location is not None or kind != "PEM"):
        raise TlsConfigError(
            f"{prefix}{TRUSTSTORE}.certificates", "certificates beside a file", "one of both"
        )
    password = read.text(f"{TRUSTSTORE}.password")
    return Store(
        prefix + TRUSTSTORE, kind=kind, location=location, password=password, certificates=certificates
    )


def _versions_and_ciphers(read: _Reader) -> tuple[tuple[str, ...], str | None]:
    key = "ssl.enabled.protocols"
    versions = tuple(dict.fromkeys(read.list(key)))
    wrong = [version for version in versions if version not in VERSIONS]
    if wrong or not versions:
        raise TlsConfigError(read.name(key), ", ".join(wrong) or "nothing", "TLSv1.2, TLSv1.3")
    protocol = read.text("ssl.protocol")
    if protocol not in (*VERSIONS, "TLS"):
        raise TlsConfigError(read.name("ssl.protocol"), f"{protocol}", "TLSv1.2, TLSv1.3")
    suites = read.list("ssl.cipher.suites")
    if not suites:
        return versions, None
    try:
        usable, ciphers = openssl_names(suites)
    except SuiteError as error:
        raise TlsConfigError(read.name("ssl.cipher.suites"), str(error), "names as Java has them") from None
    left = tuple(version for version in versions if version in usable)
    if not left:
        found = f"suites of {', '.join(usable)} alone"
        raise TlsConfigError(read.name("ssl.cipher.suites"), found, f"suites of {', '.join(versions)}")
    return left, ciphers


def _checks_host(read: _Reader) -> bool:
    key = "ssl.endpoint.identification.algorithm"
    value = (read.text(key) or "").lower()
    if value not in ("https", ""):
        raise TlsConfigError(read.name(key), value, "https, or an empty text for no check")
    return value == "https"


def _rules(read: _Reader) -> str:
    key = "ssl.principal.mapping.rules"
    text = read.text(key) or ""
    try:
        Rules(text)
    except RuleError as error:
        allowed = "RULE:pattern/replacement/[LU] and DEFAULT, with commas between"
        raise TlsConfigError(read.name(key), str(error), allowed) from None
    return text
