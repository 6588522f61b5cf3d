"""How the matrix's clients log in: the same settings in the words of each client. Without any they dial in plain text.

A step and the programs that it starts are processes of their own, so the settings come by the environment: the variable
:data:`VARIABLE` names a file with them, in JSON.
"""

from __future__ import annotations

import json
import os
import ssl
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from campaigns.clients.verdicts import NotOffered

VARIABLE = "BLUMFELD_ACCESS"
JAVA_FILE = "java.properties"
"""The same settings for Java's clients; it lies beside the file that the variable names."""
TOKEN = "OAUTHBEARER"
ALLOWED_URLS = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"
LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    TOKEN: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}


@dataclass(frozen=True)
class Access:
    """A protocol and a mechanism, with what they need. Paths are of PEM files."""

    bootstrap: str = ""
    """Where the clients dial; "" is where the matrix does."""
    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    user: str = ""
    password: str = ""
    token_file: str = ""
    """A file with the bearer token."""
    endpoint: str = ""
    """Where an issuer gives the token instead, for ``user`` and ``password`` as a client's id and secret."""
    login_options: str = ""
    """More options of Java's login module, each behind a space."""
    ca: str = ""
    certificate: str = ""
    """Shown to the broker, with ``key``; "" for none."""
    key: str = ""

    @property
    def by_tls(self) -> bool:
        """Whether bytes are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def token(self) -> str:
        """The bearer token."""
        return Path(self.token_file).read_text().strip()

    def save(self, folder: Path) -> dict[str, str]:
        """Write the files that clients read; return the environment of a step."""
        path = folder / "access.json"
        path.write_text(json.dumps(asdict(self)))
        (folder / JAVA_FILE).write_text("".join(f"{key}={value}\n" for key, value in self._java().items()))
        allowed = f"{ALLOWED_URLS}={self._token_url()}" if self.mechanism == TOKEN else ""
        return {VARIABLE: str(path), "JAVA_TOOL_OPTIONS": allowed}

    def _token_url(self) -> str:
        return self.endpoint or f"file://{self.token_file}"

    def librdkafka(self, *, program: bool = False) -> dict[str, Any]:
        """For confluent-kafka; for kcat as ``program``, which has no way to bring a token of a file."""
        if self.protocol == "PLAINTEXT":
            return {}
        given: dict[str, Any] = {"security.protocol": self.protocol}
        if self.by_tls:
            given["ssl.ca.location"] = self.ca
        if self.certificate:
            given |= {"ssl.certificate.location": self.certificate, "ssl.key.location": self.key}
        if self.mechanism:
            given["sasl.mechanism"] = self.mechanism
        if self.endpoint:
            given |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": self.user,
                "sasl.oauthbearer.client.secret": self.password,
                "sasl.oauthbearer.token.endpoint.url": self.endpoint,
                "https.ca.location": self.ca,
            }
        elif self.mechanism == TOKEN and not program:
            given["oauth_cb"] = lambda _: (self.token, 4_000_000_000.0)
        elif self.mechanism:
            given |= {"sasl.username": self.user, "sasl.password": self.password}
        return given

    def kafka_python(self) -> dict[str, Any]:
        """For kafka-python."""
        given = self._python()
        if self.by_tls:
            given["ssl_cafile"] = self.ca
        if self.certificate:
            given |= {"ssl_certfile": self.certificate, "ssl_keyfile": self.key}
        if self.mechanism == TOKEN:
            from kafka.net.sasl.oauth import AbstractTokenProvider

            provider = type("Provider", (AbstractTokenProvider,), {"token": lambda _: self.token})
            given["sasl_oauth_token_provider"] = provider()
        return given

    def aiokafka(self) -> dict[str, Any]:
        """For aiokafka."""
        given = self._python()
        if self.by_tls:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key)
            given["ssl_context"] = context
        if self.mechanism == TOKEN:
            from aiokafka.abc import AbstractTokenProvider

            async def token(_: Any) -> str:
                return self.token

            given["sasl_oauth_token_provider"] = type(
                "Provider", (AbstractTokenProvider,), {"token": token}
            )()
        return given

    def java_file(self) -> list[str]:
        """For a program of ours in Java: the path of its settings, or nothing."""
        if self.protocol == "PLAINTEXT":
            return []
        return [str(Path(os.environ[VARIABLE]).with_name(JAVA_FILE))]

    def java_options(self) -> list[str]:
        """For Kafka's tools."""
        return [word for path in self.java_file() for word in ("--command-config", path)]

    def to_json(self) -> dict[str, Any]:
        """For programs that are driven by JSON: the contents of the files in place of their paths."""
        if self.protocol == "PLAINTEXT":
            return {}
        self._check_file()
        read = {name: Path(path).read_text() for name, path in self._files() if path}
        return {
            "tls": self.by_tls,
            "mechanism": self.mechanism,
            "user": self.user,
            "password": self.password,
        } | read

    def _files(self) -> list[tuple[str, str]]:
        return [
            ("ca", self.ca),
            ("certificate", self.certificate),
            ("key", self.key),
            ("token", self.token_file),
        ]

    def _python(self) -> dict[str, Any]:
        if self.protocol == "PLAINTEXT":
            return {}
        self._check_file()
        given: dict[str, Any] = {"security_protocol": self.protocol}
        if self.mechanism:
            given["sasl_mechanism"] = self.mechanism
        if self.mechanism and self.mechanism != TOKEN:
            given |= {"sasl_plain_username": self.user, "sasl_plain_password": self.password}
        return given

    def _check_file(self) -> None:
        """:raises NotOffered: the client takes a token, and doesn't ask an issuer for it"""
        if self.endpoint:
            raise NotOffered("the client leaves it to its user to bring a token")

    def _java(self) -> dict[str, str]:
        given = {"security.protocol": self.protocol}
        if self.by_tls:
            given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca}
        if self.certificate:
            both = Path(self.certificate).with_suffix(".both.pem")
            both.write_text(Path(self.key).read_text() + Path(self.certificate).read_text())
            given |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(both)}
        if self.mechanism:
            login = self._jaas_options()
            given["sasl.mechanism"] = self.mechanism
            given["sasl.jaas.config"] = f"{LOGIN_MODULES[self.mechanism]} required{login};"
        if self.mechanism == TOKEN:
            given["sasl.oauthbearer.token.endpoint.url"] = self._token_url()
            given["sasl.login.callback.handler.class"] = (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
            )
        if self.endpoint:
            given["sasl.oauthbearer.client.credentials.client.id"] = self.user
            given["sasl.oauthbearer.client.credentials.client.secret"] = self.password
        return given

    def _jaas_options(self) -> str:
        if self.endpoint:
            return f' ssl.truststore.type="PEM" ssl.truststore.location="{self.ca}"'
        if self.mechanism == TOKEN:
            return ""
        return f' username="{self.user}" password="{self.password}"{self.login_options}'


def access() -> Access:
    """Return the access of this step."""
    path = os.environ.get(VARIABLE)
    return Access(**json.loads(Path(path).read_text())) if path else Access()
