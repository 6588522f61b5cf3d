"""Both servers with the same listeners, users and ACLs: plain text, TLS, and SCRAM with ACLs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka.admin import AdminClient

from blumfeld.client.security.scram import NONCE_BYTES, SHA_256, ScramClient, nonce_of
from blumfeld.testing.process import LOOPBACK, BrokerProcess, NodeProcess, free_port
from blumfeld.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from blumfeld.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from blumfeld.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from blumfeld_security.acls.composing import STANDARD_AUTHORIZER
from campaigns.certificates import Authority, private
from campaigns.clients.rights import give_credentials
from campaigns.raw_connection import RawConnection

LISTENERS = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", "TLS": "SSL", "SCRAM": "SASL_PLAINTEXT"}
"""Listeners with their protocols."""
PROTOCOLS = ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items())
WAYS = {"plain text": "PLAINTEXT", "TLS": "TLS", "SCRAM and ACLs": "SCRAM"}
"""Ways in, with their listeners. A client that doesn't log in is a super user on both servers."""
USER, PASSWORD = "alice", "correct horse"
KEYSTORE = "node.pem"
TOPICS = {"produce": "t", "fetch": "f"}
ACLS_AT_ONCE = 1_000
START_S = 180.0
TOPIC, LITERAL, ANY_HOST = 2, 3, "*"
READ, WRITE, ALLOW = 3, 4, 3


class SecuredServer:
    """One of the two servers."""

    def __init__(self, label: str, process: NodeProcess, ports: dict[str, int]) -> None:
        self.label = label
        self.process = process
        self._ports = ports
        self._salted: dict[tuple[bytes, int], bytes] = {}

    @property
    def bootstrap(self) -> str:
        """The listener in plain text."""
        return self._at("PLAINTEXT")

    def _at(self, listener: str) -> str:
        return f"{LOOPBACK}:{self._ports[listener]}"

    def prepare(self, acls: int) -> None:
        """Make the user, and so many ACLs: two of them are the user's, one for each topic."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        give_credentials(admin, [USER], PASSWORD, [SHA_256.name])
        with RawConnection(self.bootstrap, START_S) as connection:
            rows = list(_acls(acls))
            for at in range(0, acls, ACLS_AT_ONCE):
                request = CreateAclsRequest(creations=rows[at : at + ACLS_AT_ONCE])
                answer = connection.ask(request, 3, CreateAclsResponse)
                if any(result.error_code for result in answer.results):
                    raise RuntimeError(f"{self.label} took no ACL: {answer.results[0]}")

    def connect(self, way: str) -> RawConnection:
        """Return a connection by this way; the caller does TLS."""
        connection = RawConnection(self._at(WAYS[way]), START_S)
        if WAYS[way] == "SCRAM":
            self._log_in(connection)
        return connection

    def _log_in(self, connection: RawConnection) -> None:
        def step(token: bytes) -> bytes:
            answer = connection.ask(SaslAuthenticateRequest(auth_bytes=token), 1, SaslAuthenticateResponse)
            if answer.error_code:
                raise RuntimeError(f"{self.label} refuses the login: {answer.error_message}")
            return bytes(answer.auth_bytes)

        connection.ask(SaslHandshakeRequest(mechanism=SHA_256.name), 1, SaslHandshakeResponse)
        exchange = ScramClient(SHA_256, USER, nonce_of(os.urandom(NONCE_BYTES)))
        challenge = exchange.read(step(exchange.first()))
        key = (challenge.salt, challenge.iterations)
        if key not in self._salted:
            self._salted = {key: SHA_256.salted_password(PASSWORD, *key)}
        exchange.verify(step(exchange.proof(challenge, self._salted[key])))


def _acls(count: int) -> Iterator[AclCreation]:
    """Rights of a hundred other users to topics of their own, and those of the user."""
    for number in range(count - 2):
        yield _acl(f"topic-{number}", f"User:user-{number % 100}", READ if number % 2 else WRITE)
    yield _acl(TOPICS["produce"], f"User:{USER}", WRITE)
    yield _acl(TOPICS["fetch"], f"User:{USER}", READ)


def _acl(topic: str, principal: str, operation: int) -> AclCreation:
    return AclCreation(
        resource_type=TOPIC,
        resource_name=topic,
        resource_pattern_type=LITERAL,
        principal=principal,
        host=ANY_HOST,
        operation=operation,
        permission_type=ALLOW,
    )


def _ports() -> dict[str, int]:
    start = free_port(len(LISTENERS))
    return dict(zip(LISTENERS, range(start, start + len(LISTENERS)), strict=True))


def ours(folder: Path, transport: str) -> SecuredServer:
    """Return this build; it isn't started."""
    private(folder / KEYSTORE, Authority().leaf().pem())
    ports = _ports()
    rows = ", ".join(
        f'{{ name = "{name}", kind = "{"controller" if name == "CONTROLLER" else "broker"}", '
        f'bind = "{LOOPBACK}:{port}"{", inter_broker = true" if name == "PLAINTEXT" else ""} }}'
        for name, port in ports.items()
    )
    manifest = folder / "node.toml"
    manifest.write_text(f"""
[network]
plugin = "{transport}"
listeners = [{rows}]
[security]
plugin = "security"
[security.options.acls]
super_users = ["User:ANONYMOUS"]
[config]
"authorizer.class.name" = "{STANDARD_AUTHORIZER}"
"listener.security.protocol.map" = "{PROTOCOLS}"
"ssl.keystore.type" = "PEM"
"ssl.keystore.location" = "{folder / KEYSTORE}"
"sasl.enabled.mechanisms" = ["SCRAM-SHA-256"]
""")
    return SecuredServer("blumfeld", BrokerProcess(folder, manifest, ports["PLAINTEXT"]), ports)


def kafka(peer: Path, folder: Path) -> SecuredServer:
    """Return Apache Kafka; it isn't started."""
    private(folder / KEYSTORE, Authority().leaf().pem())
    ports = _ports()
    listeners = [f"{name}://{LOOPBACK}:{port}" for name, port in ports.items()]
    settings = {
        "listeners": ",".join(listeners),
        "advertised.listeners": ",".join(each for each in listeners if not each.startswith("CONTROLLER")),
        "controller.quorum.voters": f"1@{LOOPBACK}:{ports['CONTROLLER']}",
        "listener.security.protocol.map": PROTOCOLS,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.scram.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / KEYSTORE),
    }
    words = [f"{key}={value}" for key, value in settings.items()]
    command = [str(peer), "start", str(folder / "data"), str(ports["PLAINTEXT"]), *words]
    process = NodeProcess("Kafka", command, folder / "kafka.log", (LOOPBACK, ports["PLAINTEXT"]), START_S)
    return SecuredServer("Apache Kafka", process, ports)
