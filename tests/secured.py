"""A broker whose only listener is SASL_SSL with ACLs, and files of ``--command-config`` for it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.client.security.command_config import client_security
from blumfeld.client.security.scram import SHA_256, SHA_512, ScramMechanism
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.testing import EmbeddedBroker
from blumfeld.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from blumfeld_security.exchanges.passwords import PasswordHash, hash_password
from campaigns.certificates import Authority, private

AUTHORITY = Authority()
SERVER = AUTHORITY.leaf()
ADMIN, ALICE = "admin", "alice"
LISTENER = {"name": "CLIENTS", "bind": "127.0.0.1:0", "inter_broker": True}
ITERATIONS = 4_096
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def password_of(user: str) -> str:
    """The password of a user; it has the characters that JAAS and a file of properties escape."""
    return f'{user} "pw\\'


class Secured:
    """The files of a secured node, below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keystore = private(folder / "node.pem", SERVER.pem())
        self.signer = folder / "signer.pem"
        self.signer.write_bytes(AUTHORITY.pem)
        self.users = folder / "users.toml"
        self.login = folder / "login.toml"
        hashes = {user: _hash(user) for user in (ADMIN, ALICE)}
        self.users.write_text(
            "\n".join(["[users]", *(f"{user} = '{text}'" for user, text in hashes.items()), ""])
        )
        self.login.write_text(f"user = {ADMIN!r}\npassword = '{password_of(ADMIN)}'\n")
        for file in (self.users, self.login):
            file.chmod(0o600)

    def manifest(self, *listeners: dict[str, Any]) -> dict[str, Any]:
        """The sections of the manifest."""
        return {
            "network": {"listeners": list(listeners) or [LISTENER]},
            "security": {
                "plugin": "security",
                "options": {
                    "plain_users": str(self.users),
                    "peer_login": str(self.login),
                    "acls": {"super_users": [f"User:{ADMIN}"]},
                },
            },
        }

    def config(self, **more: Any) -> dict[str, Any]:
        """The section ``[config]``."""
        return {
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,CONTROLLER:SASL_SSL",
            "sasl.enabled.mechanisms": ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"],
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.signer),
            **more,
        }

    def manifest_file(self, port: int, *, nodes: int = 1, network: str = "net_asyncio") -> str:
        """Write a manifest of nodes whose listeners, also the controllers', are SASL_SSL; return its path."""
        lines = [
            f"nodes = {nodes}",
            f'node = {{ id = 1, roles = ["broker", "controller"], data_dir = "{self.folder}/data" }}',
            "[network]",
            f'plugin = "{network}"',
            "listeners = [",
            f'{{ name = "CLIENTS", kind = "broker", bind = "127.0.0.1:{port}", inter_broker = true }},',
            f'{{ name = "CONTROLLER", kind = "controller", bind = "127.0.0.1:{port + 1}" }},',
            "]",
            "[security]",
            'plugin = "security"',
            "[security.options]",
            f'plain_users = "{self.users}"',
            f'peer_login = "{self.login}"',
            "[security.options.acls]",
            f'super_users = ["User:{ADMIN}"]',
            "[config]",
            *(f'"{key}" = {json.dumps(value)}' for key, value in self.config().items()),
        ]
        path = self.folder / "nodes.toml"
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    def plain_login(self) -> dict[str, str]:
        """The keys of the administrator's login by PLAIN, as librdkafka spells them."""
        return {"sasl_username": ADMIN, "sasl_password": password_of(ADMIN)}

    def properties(self, name: str = "client.properties", /, **changed: str | None) -> str:
        """Write a file of ``--command-config`` and return its path.

        :param changed: key, with ``_`` for its dots → value; ``None`` leaves it out
        """
        escaped = password_of(ADMIN).replace("\\", "\\\\").replace('"', '\\"')
        values: dict[str, str | None] = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{MODULE} required username="{ADMIN}" password="{escaped}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.signer),
            **{key.replace("_", "."): value for key, value in changed.items()},
        }
        lines = [f"{key}={_escaped(value)}" for key, value in values.items() if value is not None]
        file = self.folder / name
        file.write_text("# of a test\n" + "\n".join(lines) + "\n")
        file.chmod(0o600)
        return str(file)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


def _hash(user: str) -> PasswordHash:
    return hash_password(password_of(user), user.encode() * 4)


def add_scram(host: str, port: int, config: str | None, *users: str) -> None:
    """Give users credentials of both SCRAM mechanisms, by the login of a file; PLAINTEXT without one."""
    security = client_security(config, RealFiles(), _fail)
    with BlockingConnection(host, port, "test", 20.0, security=security) as connection:
        for mechanism in (SHA_256, SHA_512):  # Kafka takes a user once in a request
            upsertions = [_upsertion(mechanism, user) for user in users]
            request = AlterUserScramCredentialsRequest(upsertions=upsertions)
            answer = connection.ask(request, AlterUserScramCredentialsResponse, 0)
            assert not any(result.error_code for result in answer.results), answer


def _upsertion(mechanism: ScramMechanism, user: str) -> ScramCredentialUpsertion:
    salt = secrets.token_bytes(16)
    return ScramCredentialUpsertion(
        name=user,
        mechanism=mechanism.number,
        iterations=ITERATIONS,
        salt=salt,
        salted_password=mechanism.salted_password(password_of(user), salt, ITERATIONS),
    )


def _fail(line: str) -> None:
    raise AssertionError(line)


@contextmanager
def secured_broker(folder: Path, **options: Any) -> Iterator[tuple[EmbeddedBroker, Secured]]:
    """A broker in this process. The administrator and Alice have credentials of PLAIN and SCRAM; Alice has no right.

    :param options: of ``EmbeddedBroker``
    """
    files = Secured(folder)
    with EmbeddedBroker(manifest=files.manifest(), config=files.config(), **options) as broker:
        plain = files.properties(
            "plain.properties",
            sasl_mechanism="PLAIN",
            sasl_jaas_config=None,
            **files.plain_login(),
        )
        add_scram(broker.host, broker.port, plain, ADMIN, ALICE)
        yield broker, files
