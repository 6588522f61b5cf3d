"""The file of ``--command-config``: a client's properties, with the keys of Kafka's tools or of librdkafka.

Only keys of TLS and SASL are taken. A key that would have no effect is refused.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from blumfeld.client.security.properties import JaasError, read_jaas, read_properties
from blumfeld.client.security.sasl import MECHANISMS, OAUTHBEARER, PLAIN, Credentials
from blumfeld.client.security.scram import TOKEN_AUTH
from blumfeld.client.security.stores import (
    CONVERT,
    KEYSTORE,
    TRUSTSTORE,
    TYPES,
    Store,
    TlsConfigError,
    read_file,
    trusted,
)
from blumfeld.client.security.tls import client_context
from blumfeld.spi.runtime import Files
from blumfeld.spi.secret_files import BadSecretFile, check_mode

OPTION, METAVAR = "--command-config", "FILE"
HELP = "A client's properties, as Kafka's tools take them: TLS and a login for brokers that ask for them."
"""The option of the commands that dial a broker."""
PROTOCOL = "security.protocol"
WITH_TLS, WITH_SASL = ("SSL", "SASL_SSL"), ("SASL_PLAINTEXT", "SASL_SSL")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISM, JAAS, TOKEN_URL = "sasl.mechanism", "sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url"
CALLBACK_HANDLER = "sasl.login.callback.handler.class"
BEARER_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
HOST_CHECK = "ssl.endpoint.identification.algorithm"
SASL_KEYS = (MECHANISM, JAAS, "sasl.username", "sasl.password", TOKEN_URL, CALLBACK_HANDLER)
TLS_KEYS = (
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.ca.location",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.certificate.location",
    "ssl.key.location",
    HOST_CHECK,
)
KEYS = (PROTOCOL, *SASL_KEYS, *TLS_KEYS)
"""Every key that a file may have. ``ssl.ca.location``, ``ssl.certificate.location``, ``ssl.key.location``,
``sasl.username`` and ``sasl.password`` are librdkafka's, the others are Kafka's."""
ALIASES = {"sasl.mechanisms": MECHANISM}
SECRETS = frozenset(
    (
        JAAS,
        "sasl.password",
        "ssl.truststore.password",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.key.password",
    )
)
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_MODULES = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}


class CommandConfigError(Exception):
    """The file can't be used. The text names the file and the key, and never repeats a secret."""

    def __init__(self, source: str, key: str, found: str, allowed: str) -> None:
        at = f"{source}: {key}" if key else source
        super().__init__(f"{at}: found {found}; allowed: {allowed}")


class ClientSecurity(NamedTuple):
    """What a client does on a new connection before its first request: TLS, then a login."""

    protocol: str = "PLAINTEXT"
    """One of :data:`PROTOCOLS`."""
    context: ssl.SSLContext | None = None
    """``None`` without TLS."""
    credentials: Callable[[], Credentials] | None = None
    """Returns what the client logs in by now: a token is read from its file each time. It may raise
    :class:`CommandConfigError`. ``None`` without SASL."""


PLAINTEXT = ClientSecurity()


class CommandConfig(NamedTuple):
    """The values of a file, checked. No file of keys has been opened."""

    source: str
    """The file's name in errors."""
    values: Mapping[str, str]
    """Key → value; an alias stands under the key that it means."""

    def __repr__(self) -> str:
        return f"CommandConfig({self.source}, {', '.join(self.values)})"

    @property
    def protocol(self) -> str:
        """``security.protocol``; Kafka's default is PLAINTEXT."""
        return self.values.get(PROTOCOL, "PLAINTEXT").upper()

    @property
    def mechanism(self) -> str:
        """``sasl.mechanism``; empty without one."""
        return self.values.get(MECHANISM, "").upper()

    @property
    def token_file(self) -> str:
        """The path of OAUTHBEARER's token; empty for another mechanism."""
        return unquote(urlsplit(self.values.get(TOKEN_URL, "")).path)

    def credentials(self) -> Credentials | None:
        """Returns user and password; ``None`` where there are none: without SASL, and for OAUTHBEARER.

        :raises CommandConfigError: they are missing, or belong to another mechanism
        """
        if self.protocol not in WITH_SASL or self.mechanism == OAUTHBEARER:
            return None
        return self._jaas_credentials() if JAAS in self.values else self._own_credentials()

    def _own_credentials(self) -> Credentials:
        for key in ("sasl.username", "sasl.password"):
            if not self.values.get(key):
                raise self._wrong(key, "nothing", f"both sasl.username and sasl.password, or {JAAS}")
        return self._named(self.values["sasl.username"], self.values["sasl.password"], {})

    def _jaas_credentials(self) -> Credentials:
        if two := [key for key in ("sasl.username", "sasl.password") if key in self.values]:
            raise self._wrong(two[0], f"a login beside {JAAS}", "one of both")
        try:
            module, options = read_jaas(self.values[JAAS])
        except JaasError as error:
            raise self._wrong(JAAS, str(error), self._jaas_form()) from None
        self._check_module(module)
        known = {"username", "password", *(() if self.mechanism == PLAIN else (TOKEN_AUTH,))}
        if unknown := sorted(options.keys() - known):
            raise self._wrong(JAAS, f"the option {unknown[0]}, which has no effect", ", ".join(sorted(known)))
        if not options.get("username") or not options.get("password"):
            raise self._wrong(JAAS, "no username or no password", self._jaas_form())
        is_token = options.get(TOKEN_AUTH, "false").lower() == "true"
        return self._named(options["username"], options["password"], {TOKEN_AUTH: "true"} if is_token else {})

    def _named(self, user: str, password: str, extensions: dict[str, str]) -> Credentials:
        if "\0" in user + password:
            raise self._wrong(PROTOCOL, "a user or a password with a NUL", "text without one")
        return Credentials(self.mechanism, user, password, extensions)

    def _check_module(self, module: str) -> None:
        if module != self._module().rpartition(".")[2]:
            raise self._wrong(JAAS, f"{module} with {MECHANISM}={self.mechanism}", self._jaas_form())

    def _module(self) -> str:
        return _MODULES.get(self.mechanism, SCRAM_MODULE)

    def _jaas_form(self) -> str:
        options = "" if self.mechanism == OAUTHBEARER else ' username="…" password="…"'
        return f"{self._module()} required{options};"

    def _wrong(self, key: str, found: str, allowed: str) -> CommandConfigError:
        return CommandConfigError(self.source, key, found, allowed)

    # For a connection of this build's own client

    def client_security(self, files: Files) -> ClientSecurity:
        """Read the files of keys.

        :raises CommandConfigError: one can't be used
        """
        context = None
        if self.protocol in WITH_TLS:
            try:
                context = client_context(
                    files, self._keystore(files), self._truststore(files), checks_host=self.checks_host
                ).context
            except TlsConfigError as error:
                raise self._wrong(error.key, error.found, error.allowed) from None
        return ClientSecurity(self.protocol, context, self._login(files))

    def _login(self, files: Files) -> Callable[[], Credentials] | None:
        if self.protocol not in WITH_SASL:
            return None
        credentials = self.credentials()
        return partial(self._token, files) if credentials is None else lambda: credentials

    def _token(self, files: Files) -> Credentials:
        try:
            token = read_file(files, TOKEN_URL, self.token_file).decode("ascii", "replace").strip()
        except TlsConfigError as error:
            raise self._wrong(TOKEN_URL, error.found, error.allowed) from None
        if not token:
            raise self._wrong(TOKEN_URL, f"{self.token_file}, which is empty", "the file of a token")
        return Credentials(OAUTHBEARER, "", token)

    @property
    def checks_host(self) -> bool:
        """Whether the server's certificate must have the name that was dialled."""
        return self.values.get(HOST_CHECK, "https").lower() == "https"

    def _truststore(self, files: Files) -> Store:
        location = self.values.get("ssl.truststore.location") or self.values.get("ssl.ca.location")
        return Store(
            TRUSTSTORE,
            kind=self._kind(files, TRUSTSTORE, location),
            location=location,
            password=self.values.get("ssl.truststore.password"),
            certificates=self.values.get("ssl.truststore.certificates"),
        )

    def _keystore(self, files: Files) -> Store:
        key: str | None
        chain: str | None
        if "ssl.key.location" in self.values:
            key, chain = (
                read_file(files, name, self.values[name]).decode("ascii", "replace")
                for name in ("ssl.key.location", "ssl.certificate.location")
            )
        else:
            key, chain = (self.values.get(f"{KEYSTORE}.{part}") for part in ("key", "certificate.chain"))
        location = self.values.get("ssl.keystore.location")
        return Store(
            KEYSTORE,
            kind=self._kind(files, KEYSTORE, location),
            location=location,
            password=self.values.get("ssl.keystore.password"),
            key_password=self.values.get("ssl.key.password"),
            private_key=key,
            certificates=chain,
        )

    def _kind(self, files: Files, store: str, location: str | None) -> str:
        """Returns the kind of a store. Without a type its first bytes tell: Kafka's default is JKS, which names no form
        that is served here, and Java reads a PKCS12 file under that name."""
        named = self.values.get(f"{store}.type", "").upper()
        if named and named != "JKS":
            return named
        if location is None:
            return "PEM"
        first = read_file(files, f"{store}.location", location)[:4]
        if first == b"\xfe\xed\xfe\xed":
            raise TlsConfigError(
                f"{store}.location", f"{location}, which is a keystore of Java (JKS)", CONVERT
            )
        return "PKCS12" if first[:1] == b"\x30" else "PEM"

    # For other clients

    def kafka(self, files: Files) -> dict[str, str]:
        """Returns the same for a client in Java. A store's type is named: Java's default reads no PEM.

        :raises CommandConfigError: it can't be said there, or a store can't be read
        """
        if "ssl.key.location" in self.values:
            raise self._wrong(
                "ssl.key.location", "a key of librdkafka's", "ssl.keystore.location with the type PEM"
            )
        given = {key: value for key, value in self.values.items() if key not in _LIBRDKAFKA}
        if (location := self.values.get("ssl.ca.location")) is not None:
            given |= {"ssl.truststore.location": location, "ssl.truststore.type": "PEM"}
        given |= self._kinds(files)
        if given.get(HOST_CHECK, "").lower() == "none":
            given[HOST_CHECK] = ""
        if (own := self.credentials()) is not None and JAAS not in given:
            given[JAAS] = (
                f"{self._module()} required username={_quoted(own.user)} password={_quoted(own.secret)};"
            )
        return given

    def _kinds(self, files: Files) -> dict[str, str]:
        try:
            return {
                f"{store}.type": self._kind(files, store, self.values.get(f"{store}.location"))
                for store, text in ((KEYSTORE, "key"), (TRUSTSTORE, "certificates"))
                if f"{store}.location" in self.values or f"{store}.{text}" in self.values
            }
        except TlsConfigError as error:
            raise self._wrong(error.key, error.found, error.allowed) from None

    def librdkafka(self, files: Files) -> dict[str, Any]:
        """Returns the same for a client of librdkafka's, as confluent-kafka takes it.

        :raises CommandConfigError: it can't be said there, or a file can't be read
        """
        given: dict[str, Any] = {PROTOCOL: self.protocol}
        if self.protocol in WITH_TLS:
            given |= self._librdkafka_tls(files)
        if self.protocol in WITH_SASL:
            given[MECHANISM] = self.mechanism
            own = self.credentials()
            if own is None:
                given["oauth_cb"] = partial(self._librdkafka_token, files)
            elif own.extensions:
                raise self._wrong(JAAS, f"{TOKEN_AUTH}, which librdkafka lacks", "a user's own password")
            else:
                given |= {"sasl.username": own.user, "sasl.password": own.secret}
        return given

    def _librdkafka_tls(self, files: Files) -> dict[str, str]:
        given = {HOST_CHECK: "https" if self.checks_host else "none"}
        try:
            truststore = self._truststore(files)
            if truststore.location is not None and truststore.kind == "PEM":
                given["ssl.ca.location"] = truststore.location
            elif truststore.is_set:
                given["ssl.ca.pem"] = trusted(files, truststore).decode("ascii", "ignore")
            return given | self._librdkafka_keystore(self._keystore(files))
        except TlsConfigError as error:
            raise self._wrong(error.key, error.found, error.allowed) from None

    def _librdkafka_keystore(self, own: Store) -> dict[str, str]:
        secret = own.key_password or own.password
        password = {"ssl.key.password": secret} if secret else {}
        if not own.is_set:
            return {}
        if own.location is None:
            return {
                "ssl.key.pem": own.private_key or "",
                "ssl.certificate.pem": own.certificates or "",
                **password,
            }
        if own.kind == "PEM":
            return {"ssl.key.location": own.location, "ssl.certificate.location": own.location, **password}
        return {"ssl.keystore.location": own.location, "ssl.keystore.password": own.password or ""}

    def _librdkafka_token(self, files: Files, _: str) -> tuple[str, float]:
        token = self._token(files).secret
        return token, _expires_s(token)


_LIBRDKAFKA = frozenset(("ssl.ca.location", "sasl.username", "sasl.password"))


def _quoted(text: str) -> str:
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(plain, escaped)  # the end of a line ends a text in quotes, too
    return f'"{text}"'


def _expires_s(token: str) -> float:
    """Returns the end of a token (``exp``), in seconds since the epoch. librdkafka asks for it, and for another token
    before."""
    try:
        claims = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return float(_NO_END_S)


_NO_END_S = 1 << 40
"""The end of a token that names none: the server alone knows."""


def read_command_config(path: str, files: Files) -> CommandConfig:
    """Returns the file's values, checked. No file of keys is opened.

    :raises CommandConfigError: the file can't be read, or a key or a value can't be used
    """
    try:
        text = files.read_bytes(path).decode(
            "utf-8-sig"
        )  # editors of Windows put a mark before the first key
    except OSError as error:
        raise CommandConfigError(path, "", error.strerror or str(error), "a file of properties") from None
    except UnicodeDecodeError:
        raise CommandConfigError(path, "", "bytes that aren't UTF-8", "a file of properties") from None
    values: dict[str, str] = {}
    for entry in read_properties(text):
        key = ALIASES.get(entry.key, entry.key)
        if key in values:
            raise CommandConfigError(path, f"line {entry.line}: {_shown(key)}", "it twice", "once")
        values[key] = entry.value
    return command_config(path, values)


def command_config(source: str, values: Mapping[str, str]) -> CommandConfig:
    """Returns these values, checked.

    :param source: where they stand, for errors
    :raises CommandConfigError: one can't be used, or has no effect
    """
    config = CommandConfig(source, values)
    for key, found, allowed in _faults(config):
        raise CommandConfigError(source, key, found, allowed)
    config.credentials()
    return config


Fault = tuple[str, str, str]
"""The key, what was found, what is allowed."""


def _faults(config: CommandConfig) -> Iterator[Fault]:
    values, protocol = config.values, config.protocol
    for key in values:
        if key not in KEYS:
            yield _shown(key), "a key that has no effect here", ", ".join((*KEYS, *ALIASES))
    if protocol not in PROTOCOLS:
        yield PROTOCOL, protocol, ", ".join(PROTOCOLS)
    for keys, having, what in ((TLS_KEYS, WITH_TLS, "TLS"), (SASL_KEYS, WITH_SASL, "SASL")):
        for key in keys:
            if key in values and protocol not in having:
                yield (
                    key,
                    f"it with {PROTOCOL}={protocol}, which has no {what}",
                    f"it with {' or '.join(having)}",
                )
    if protocol in WITH_SASL:
        yield from _sasl_faults(config)
    if protocol in WITH_TLS:
        yield from _tls_faults(values)


def _shown(key: str) -> str:
    """Returns a key in words. What no key looks like may be a token, or a line of a private key whose lines lack the
    backslash at their end."""
    return key if _A_KEY.fullmatch(key) else f"{key[:8]!r}…"


_A_KEY = re.compile(r"[a-z][a-z0-9._-]{,59}")


def _sasl_faults(config: CommandConfig) -> Iterator[Fault]:
    values = config.values
    if config.mechanism not in MECHANISMS:
        found = config.mechanism or "nothing (Kafka's default is GSSAPI)"
        yield MECHANISM, found, ", ".join(MECHANISMS)
    if config.mechanism != OAUTHBEARER:
        for key in (TOKEN_URL, CALLBACK_HANDLER):
            if key in values:
                yield key, f"it with {MECHANISM}={config.mechanism}", f"it with {OAUTHBEARER}"
        return
    for key in ("sasl.username", "sasl.password"):
        if key in values:
            yield key, f"it with {MECHANISM}={OAUTHBEARER}", f"{TOKEN_URL}=file:///PATH/OF/TOKEN"
    if urlsplit(values.get(TOKEN_URL, "")).scheme != "file":
        yield TOKEN_URL, values.get(TOKEN_URL) or "nothing", "file:///PATH/OF/TOKEN"
    if values.get(CALLBACK_HANDLER, BEARER_HANDLER) != BEARER_HANDLER:
        yield CALLBACK_HANDLER, values[CALLBACK_HANDLER], BEARER_HANDLER
    if JAAS in values:
        yield from _bearer_jaas_faults(values[JAAS])


def _bearer_jaas_faults(text: str) -> Iterator[Fault]:
    allowed = f"{_MODULES[OAUTHBEARER]} required;"
    try:
        login = read_jaas(text)
    except JaasError as error:
        yield JAAS, str(error), allowed
        return
    if login.module != _MODULES[OAUTHBEARER].rpartition(".")[2] or login.options:
        yield JAAS, f"{login.module} with {', '.join(login.options) or 'no option'}", allowed


def _tls_faults(values: Mapping[str, str]) -> Iterator[Fault]:
    for key in TLS_KEYS:
        if values.get(key) == "" and key != HOST_CHECK and not key.endswith(".password"):
            yield key, "nothing", "a value; or leave the key out"
    for first, others in _ALONE.items():
        for other in others:
            if first in values and other in values:
                yield other, f"it beside {first}", "one of both"
    for key, needs in _NEEDS.items():
        if key in values and not any(need in values for need in needs):
            yield key, f"it without {' or '.join(needs)}", f"both, or neither: {key} has no effect alone"
    for store in (KEYSTORE, TRUSTSTORE):
        kind = values.get(f"{store}.type", "PEM").upper()
        if kind not in (*TYPES, "JKS"):
            yield f"{store}.type", kind, ", ".join(TYPES)
    if values.get(HOST_CHECK, "https").lower() not in ("https", "none", ""):
        yield HOST_CHECK, values[HOST_CHECK], "https, or none or nothing for no check"


_ALONE = {
    "ssl.truststore.location": ("ssl.truststore.certificates", "ssl.ca.location"),
    "ssl.truststore.certificates": ("ssl.ca.location",),
    "ssl.keystore.location": ("ssl.keystore.key", "ssl.key.location"),
    "ssl.keystore.key": ("ssl.key.location",),
}
"""Key → keys that say the same in another way."""
_STORES = ("ssl.keystore.location", "ssl.keystore.key")
_NEEDS = {
    "ssl.truststore.type": ("ssl.truststore.location", "ssl.truststore.certificates"),
    "ssl.truststore.password": ("ssl.truststore.location",),
    "ssl.keystore.type": _STORES,
    "ssl.keystore.password": ("ssl.keystore.location",),
    "ssl.keystore.key": ("ssl.keystore.certificate.chain",),
    "ssl.keystore.certificate.chain": ("ssl.keystore.key",),
    "ssl.key.password": (*_STORES, "ssl.key.location"),
    "ssl.key.location": ("ssl.certificate.location",),
    "ssl.certificate.location": ("ssl.key.location",),
}
"""Key → keys without which it has no effect."""


def client_security(path: str | None, files: Files, warn: Callable[[str], None]) -> ClientSecurity:
    """Returns what the file of ``--command-config`` says; PLAINTEXT without one.

    :param warn: called with a line if the file has a secret and every user of the machine may read it
    :raises CommandConfigError: the file, or a file of keys that it names, can't be used
    """
    if path is None:
        return PLAINTEXT
    config = read_command_config(path, files)
    if (warning := open_secrets(config, files)) is not None:
        warn(warning)
    return config.client_security(files)


def open_secrets(config: CommandConfig, files: Files) -> str | None:
    """Returns a warning about a file that has a secret and that every user of the machine may read; ``None`` if nothing
    is wrong."""
    secrets = [key for key in config.values if key in SECRETS]
    if not secrets:
        return None
    try:
        check_mode(files, config.source)
    except BadSecretFile as error:
        return f"warning: {error}. It has {', '.join(secrets)}"
    return None
