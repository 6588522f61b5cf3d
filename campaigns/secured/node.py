"""A node with a listener for each protocol, and one in plain text for the campaign itself."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from blumfeld.testing.cluster import LOOPBACK
from blumfeld.testing.process import BrokerProcess, free_port
from campaigns.clients.access import TOKEN, Access
from campaigns.secured.identities import AUDIENCE, ISSUER, PASSWORD, USER, make_certificates, make_token

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", TOKEN)
LISTENERS = {"TLS": "SSL", "MUTUAL": "SSL", "CLEAR": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}
"""Listeners of clients, with their protocols."""


class SecuredNode:
    """One node, made in a folder and not started."""

    def __init__(self, folder: Path, transport: str) -> None:
        self.folder = folder
        make_certificates(folder)
        make_token(folder)
        names = ("OPEN", "CONTROLLER", *LISTENERS)
        self.ports = dict(zip(names, range(start := free_port(len(names)), start + len(names)), strict=True))
        self._write_users()
        manifest = folder / "node.toml"
        manifest.write_text(self._manifest(transport))
        self.process = BrokerProcess(folder, manifest, self.ports["OPEN"])

    def start(self) -> None:
        """Start it, and give the user credentials of SCRAM, as an administrator does.

        :raises NodeError: it did not start
        """
        self.process.start()
        client: Any = import_module("confluent_kafka.admin")
        admin = client.AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        for mechanism in (client.ScramMechanism.SCRAM_SHA_256, client.ScramMechanism.SCRAM_SHA_512):
            info = client.ScramCredentialInfo(mechanism, 4096)
            wanted = client.UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
            for answer in admin.alter_user_scram_credentials([wanted]).values():
                answer.result(30)

    @property
    def bootstrap(self) -> str:
        """The listener in plain text."""
        return self._at("OPEN")

    def accesses(self) -> dict[str, Access]:
        """The ways in, by name."""
        tls = {"ca": str(self.folder / "signer.pem")}
        shown = {"certificate": str(self.folder / f"{USER}.pem"), "key": str(self.folder / f"{USER}.key")}
        ways = {
            "TLS": Access(self._at("TLS"), "SSL", **tls),
            "mutual TLS": Access(self._at("MUTUAL"), "SSL", **tls, **shown),
        }
        for listener in ("CLEAR", "BOTH"):
            for mechanism in MECHANISMS:
                protocol = LISTENERS[listener]
                login = {"user": USER, "password": PASSWORD, "token_file": str(self.folder / "token")}
                more = tls if protocol == "SASL_SSL" else {}
                ways[f"{mechanism} {protocol}"] = Access(
                    self._at(listener), protocol, mechanism, **login, **more
                )
        return ways

    def _at(self, listener: str) -> str:
        return f"{LOOPBACK}:{self.ports[listener]}"

    def _write_users(self) -> None:
        hashing = [sys.executable, "-m", "blumfeld.cli.main", "security", "hash-password", "--user", USER]
        hashed = subprocess.run(
            hashing, input=PASSWORD, capture_output=True, text=True, check=True, timeout=60
        ).stdout
        users = self.folder / "users.toml"
        users.touch(mode=0o600)
        users.write_text(f"[users]\n{hashed}")

    def _manifest(self, transport: str) -> str:
        rows = [
            f'{{ name = "{name}", kind = "{"controller" if name == "CONTROLLER" else "broker"}", '
            f'bind = "{LOOPBACK}:{port}"{", inter_broker = true" if name == "OPEN" else ""} }}'
            for name, port in self.ports.items()
        ]
        protocols = ",".join(f"{name}:{LISTENERS.get(name, 'PLAINTEXT')}" for name in self.ports)
        mechanisms = ", ".join(f'"{name}"' for name in MECHANISMS)
        return f"""
[network]
plugin = "{transport}"
listeners = [{", ".join(rows)}]
[security]
plugin = "security"
[security.options]
plain_users = "{self.folder / "users.toml"}"
[config]
"group.initial.rebalance.delay.ms" = 0
"listener.security.protocol.map" = "{protocols}"
"ssl.keystore.type" = "PEM"
"ssl.keystore.location" = "{self.folder / "node.both.pem"}"
"ssl.truststore.type" = "PEM"
"ssl.truststore.location" = "{self.folder / "signer.pem"}"
"listener.name.mutual.ssl.client.auth" = "required"
"sasl.enabled.mechanisms" = [{mechanisms}]
"sasl.oauthbearer.jwks.endpoint.url" = "file://{self.folder / "keys.json"}"
"sasl.oauthbearer.expected.issuer" = "{ISSUER}"
"sasl.oauthbearer.expected.audience" = ["{AUDIENCE}"]
"""
