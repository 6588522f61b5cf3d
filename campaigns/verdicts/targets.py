"""The two servers: Apache Kafka and this build, with the same users of SASL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld.testing.process import LOOPBACK, NodeProcess, free_port
from blumfeld.wire.api import response_class
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest
from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from blumfeld.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from blumfeld.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from blumfeld.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from blumfeld_security.acls.composing import STANDARD_AUTHORIZER
from blumfeld_security.exchanges.passwords import hash_password
from campaigns.certificates import private
from campaigns.raw_connection import ConnectionEnded, RawConnection
from campaigns.verdicts.acl_sets import PRINCIPALS
from campaigns.verdicts.digest import digest
from campaigns.verdicts.requests import GROUPS, TOPICS, TRANSACTIONAL_IDS, Case

ADMIN = "admin"
"""The super user. It makes the topics and the ACLs."""
USERS = (*PRINCIPALS, ADMIN)
PROTOCOLS = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,USERS:SASL_PLAINTEXT,CUSERS:SASL_PLAINTEXT"
START_SECONDS_MAX = 180


class Server:
    """A server to play cases to. A connection is kept for each kind of listener, user and host."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._connections: dict[tuple[str, str, str], RawConnection] = {}

    def connect(self, kind: str, user: str, host: str) -> RawConnection:
        """Returns a new connection of the user, from this address."""
        raise NotImplementedError

    def ask(self, kind: str, user: str, host: str, message: Any, version: int) -> Any:
        """Returns the answer; :class:`ConnectionEnded` rises if there is none."""
        key = (kind, user, host)
        if key not in self._connections:
            self._connections[key] = self.connect(kind, user, host)
        try:
            return self._connections[key].ask(message, version, response_class(message.meta.key))
        except (ConnectionEnded, OSError):
            self._connections.pop(key).close()
            raise

    def verdict(self, case: Case, user: str, host: str) -> Any:
        """Returns what the answer to the case says, or how there was none."""
        try:
            return digest(self.ask(case.listener, user, host, case.message, case.version))
        except ConnectionEnded:
            return "the connection was closed"
        except TimeoutError:
            return "no answer"

    def prepare(self) -> tuple[dict[str, bytes], str]:
        """Create the topics. Returns their ids, and the cluster's."""
        # The cases' records have one timestamp, which is long past.
        kept = [CreatableTopicConfig(name="retention.ms", value="-1")]
        topics = [
            CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=kept) for name in TOPICS
        ]
        self.ask("broker", ADMIN, LOOPBACK, CreateTopicsRequest(topics=topics, timeout_ms=20_000), 7)
        while True:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in TOPICS])
            answer = self.ask("broker", ADMIN, LOOPBACK, asked, 12)
            if all(not topic.error_code and topic.partitions for topic in answer.topics):
                break
        self._warm_up()
        return {topic.name: topic.topic_id for topic in answer.topics}, answer.cluster_id

    def _warm_up(self) -> None:
        """Ask until the coordinators serve, whose topics are made by the first request."""
        for key_type, keys in ((0, GROUPS), (1, TRANSACTIONAL_IDS)):
            found = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
            self._until_served(found, 4)
        self._until_served(InitProducerIdRequest(transactional_id=None), 4)
        for transactional_id in TRANSACTIONAL_IDS:
            self._until_served(
                InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000), 4
            )
        topics = [
            OffsetCommitRequestTopic(name="t-a", partitions=[OffsetCommitRequestPartition(partition_index=0)])
        ]
        for group in GROUPS:
            self._until_served(OffsetCommitRequest(group_id=group, topics=topics), 8)

    def _until_served(self, message: Any, version: int) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            answer = repr(self.ask("broker", ADMIN, LOOPBACK, message, version))
            if not any(f"error_code={code}," in answer for code in (14, 15, 16)):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} doesn't serve: {answer}")
            time.sleep(0.1)

    def close(self) -> None:
        """Hang up."""
        for connection in self._connections.values():
            connection.close()


class SaslServer(Server):
    """A server whose users log in by PLAIN, each with its name as its password."""

    def __init__(self, name: str, ports: dict[str, int]) -> None:
        super().__init__(name)
        self._ports = ports

    def connect(self, kind: str, user: str, host: str) -> RawConnection:
        connection = RawConnection(f"{LOOPBACK}:{self._ports[kind]}", source_host=host)
        connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse)
        token = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}".encode())
        answer = connection.ask(token, 2, SaslAuthenticateResponse)
        if answer.error_code:
            raise ConnectionEnded(f"{self.name}: {user} could not log in: {answer.error_message}")
        return connection


@contextmanager
def kafka(peer: str, directory: Path) -> Iterator[SaslServer]:
    """Kafka with StandardAuthorizer; it ends with the block."""
    port = free_port(adjacent=4)
    users = " ".join(f'user_{name}="{name}"' for name in USERS)
    login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:ANONYMOUS;User:{ADMIN}",
        "listeners": f"PLAINTEXT://:{port},CONTROLLER://:{port + 1},USERS://:{port + 2},CUSERS://:{port + 3}".replace(
            "://", f"://{LOOPBACK}"
        ),
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port},USERS://{LOOPBACK}:{port + 2}",
        "controller.listener.names": "CONTROLLER,CUSERS",
        "listener.security.protocol.map": PROTOCOLS,
        "sasl.enabled.mechanisms": "PLAIN",
        "delegation.token.secret.key": ADMIN,
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "listener.name.users.plain.sasl.jaas.config": login,
        "listener.name.cusers.plain.sasl.jaas.config": login,
    }
    command = [
        peer,
        "start",
        str(directory),
        str(port),
        *(f"{key}={value}" for key, value in settings.items()),
    ]
    process = NodeProcess("Kafka", command, directory / "kafka.log", (LOOPBACK, port), START_SECONDS_MAX)
    directory.mkdir(parents=True, exist_ok=True)
    server = SaslServer("Kafka", {"broker": port + 2, "controller": port + 3})
    try:
        process.start()
        yield server
    finally:
        server.close()
        process.kill()


@contextmanager
def blumfeld(directory: Path) -> Iterator[SaslServer]:
    """This build with its security plug-in, in this process; it ends with the block."""
    directory.mkdir(parents=True)
    users = directory / "users.toml"
    lines = [f"{name} = '{hash_password(name, name.encode() * 4)}'" for name in USERS]
    private(users, "\n".join(["[users]", *lines, ""]).encode())
    listeners = [
        {"name": "PLAINTEXT", "bind": f"{LOOPBACK}:0", "inter_broker": True},
        {"name": "CONTROLLER", "kind": "controller", "bind": f"{LOOPBACK}:0"},
        {"name": "USERS", "bind": f"{LOOPBACK}:0"},
        {"name": "CUSERS", "kind": "controller", "bind": f"{LOOPBACK}:0"},
    ]
    options = {
        "plain_users": str(users),
        "acls": {"super_users": ["User:ANONYMOUS", f"User:{ADMIN}"]},
        "audit": {"verdicts": "none"},
    }
    broker = EmbeddedBroker(
        manifest={
            "network": {"listeners": listeners},
            "security": {"plugin": "security", "options": options},
            "quotas": {"plugin": "quotas"},
        },
        config={
            "auto.create.topics.enable": False,
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "listener.security.protocol.map": PROTOCOLS,
            "sasl.enabled.mechanisms": ["PLAIN"],
            "delegation.token.secret.key": ADMIN,
        },
    )
    with broker:
        ports = {listener.name: listener.port for listener in broker.node.listeners}
        server = SaslServer("Blumfeld", {"broker": ports["USERS"], "controller": ports["CUSERS"]})
        try:
            yield server
        finally:
            server.close()
