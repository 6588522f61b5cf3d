"""Three nodes go from PLAINTEXT to SASL_SSL on all listeners under load, one node at a time, and change certificates.

Every record that was acknowledged is looked for at the end. docs/security.md has the steps for an operator.
"""

from __future__ import annotations

import argparse
import base64
import os
import socket
import ssl
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import attrs
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from cryptography import x509

from blumfeld.testing.cluster import LOOPBACK
from campaigns.certificates import Authority, private
from campaigns.clients.access import Access
from campaigns.clients.load.load import TOPIC
from campaigns.clients.load.producers import LIBRDKAFKA, Librdkafka
from campaigns.clients.rights import give_credentials, give_rights
from campaigns.cluster.story import ASK_S, WHOLE_S, Step, Story, run_campaign
from campaigns.secured.identities import NODE, PASSWORD, STRANGER, USER, make_users
from campaigns.secured.nodes import Face, SecuredNode, bootstrap, secured_nodes, write_manifest
from campaigns.terminal import add_node_options
from campaigns.waits import await_true

NODES = 3
OPEN, CONTROLLER, SECURE, CONTROLLER_SECURE = "OPEN", "CONTROLLER", "SECURE", "CONTROLLER_SECURE"
SCRAM = "SCRAM-SHA-512"
TAKEN = "TLS changed"
"""A node says so of each listener whose files it has read anew."""


@attrs.frozen
class Stage:
    """What the nodes are made of between two rollings."""

    between: str = OPEN
    """The listener of other brokers."""
    controllers: str = CONTROLLER
    """The listener at which controllers are dialled."""
    others: tuple[str, ...] = ()
    """Listeners that stand beside those two."""
    acls: str = ""
    """``open``: everybody may do what no ACL names; ``strict``: nobody may; or none: no authorizer."""

    @property
    def faces(self) -> list[Face]:
        """The listeners, those that are dialled first."""
        names = [self.between, self.controllers, *self.others]
        return [
            Face(
                name,
                "SASL_SSL" if name in (SECURE, CONTROLLER_SECURE) else "PLAINTEXT",
                "controller" if name in (CONTROLLER, CONTROLLER_SECURE) else "broker",
                name == self.between,
            )
            for name in names
        ]


PLAIN = Stage()
BESIDE = Stage(others=(SECURE, CONTROLLER_SECURE))
BROKERS_MOVED = Stage(SECURE, CONTROLLER, (OPEN, CONTROLLER_SECURE))
CONTROLLERS_MOVED = Stage(SECURE, CONTROLLER_SECURE, (OPEN, CONTROLLER))
CLOSED = Stage(SECURE, CONTROLLER_SECURE)
ACLS_ADDED = attrs.evolve(CLOSED, acls="open")
ACLS_DECIDE = attrs.evolve(CLOSED, acls="strict")


class SecureStory(Story[SecuredNode]):
    """Nodes that become secure, and their files."""

    def __init__(
        self, folder: Path, rate_per_s: float, laid: Sequence[str], *, dynamic: bool = False
    ) -> None:
        self.folder = folder
        self.dynamic = dynamic
        nodes = secured_nodes(NODES, folder, (OPEN, CONTROLLER, SECURE, CONTROLLER_SECURE), laid)
        self.access = Access(bootstrap(nodes, OPEN))
        super().__init__(nodes, self.access, rate_per_s, self._producer)
        self.signer = Authority("signer 1")
        make_users(folder)
        for node in self.nodes:
            self.give_certificate(node, self.signer)
            self.trust(node, self.signer)
        self.stage = PLAIN

    def steps(self) -> Sequence[Step]:
        """From plain text to SASL_SSL and ACLs, then other certificates."""
        old, new = self.signer, Authority("signer 2")
        return (
            ("new listeners beside the old", lambda: self.roll(BESIDE)),
            ("credentials of SCRAM", self.add_credentials),
            ("brokers dial each other by SASL_SSL", lambda: self.roll(BROKERS_MOVED)),
            ("controllers are dialled by SASL_SSL", lambda: self.roll(CONTROLLERS_MOVED)),
            ("clients move", lambda: self.move_clients(old)),
            ("old listeners gone", self.close_open_listeners),
            ("ACLs on, none yet", self.add_acls),
            ("ACLs decide", self.let_acls_decide),
            ("another signer is trusted, too", lambda: self.add_signer(new)),
            ("clients trust it, too", lambda: self.move_clients(old, new)),
            ("certificates of the other signer, by file", lambda: self.change_files(new)),
            ("the old signer is trusted no more", lambda: self.drop_signer(new)),
            ("certificates by kafka-configs", self.change_keys),
        )

    def _producer(self, *arguments: Any) -> Librdkafka:
        self.producer = Librdkafka(*arguments)
        return self.producer

    # Files

    def give_certificate(self, node: SecuredNode, signer: Authority, name: str = "node.pem") -> int:
        """Write a new key and certificate of a node; return its serial number."""
        leaf = signer.leaf(("CN", NODE))
        draft = node.folder / f"{name}.part"
        private(draft, leaf.pem())
        draft.replace(node.folder / name)
        return leaf.certificate.serial_number

    def trust(self, node: SecuredNode, *signers: Authority) -> None:
        """Write the signers that a node trusts."""
        draft = node.folder / "trusted.pem.part"
        draft.write_bytes(b"".join(signer.pem for signer in signers))
        draft.replace(node.folder / "trusted.pem")

    def write(self, node: SecuredNode) -> None:
        """Write a node's manifest for the present stage."""
        if self.stage == PLAIN:
            write_manifest(node, self.nodes, self.stage.faces, {}, {}, dynamic=self.dynamic)
            return
        options: dict[str, Any] = {
            "plain_users": str(self.folder / "users.toml"),
            "peer_login": str(self.folder / "login.toml"),
        }
        config = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(node.folder / "node.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(node.folder / "trusted.pem"),
            "sasl.enabled.mechanisms": ["PLAIN", SCRAM],
            "sasl.mechanism.inter.broker.protocol": SCRAM,
            "sasl.mechanism.controller.protocol": "PLAIN",
        }
        if self.stage.acls:
            config["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            options["acls"] = {
                "super_users": [f"User:{NODE}"],
                "allow_everyone_if_no_acl_found": self.stage.acls == "open",
            }
        sections = {"security": {"plugin": "security", "options": options}}
        write_manifest(node, self.nodes, self.stage.faces, config, sections, dynamic=self.dynamic)

    # Steps

    def start(self) -> None:
        """Start the nodes in plain text, and put them under load."""
        voters = ",".join(f"{node.id}@{node.at(CONTROLLER)}:{_directory_id(node)}" for node in self.nodes)
        for node in self.nodes:
            self.write(node)
            if self.dynamic:
                node.format("--initial-controllers", voters)
        super().start()

    def roll(self, stage: Stage) -> None:
        """Restart one node after the other with what a stage has, each when the cluster is whole again."""
        self.stage = stage
        for node in self.nodes:
            self.write(node)
            self.restart(node, f"of {stage}")

    def add_credentials(self) -> None:
        """Give the nodes and the users credentials of SCRAM, by a listener in plain text yet."""
        give_credentials(self.admin(), (NODE, USER, STRANGER), PASSWORD, [SCRAM])

    def move_clients(self, *signers: Authority) -> None:
        """Start the clients anew: they log in by SCRAM within TLS, and trust these signers."""
        ca = self.folder / "clients.pem"
        ca.write_bytes(b"".join(signer.pem for signer in signers))
        at = bootstrap(self.nodes, SECURE)
        self.access = Access(at, "SASL_SSL", SCRAM, USER, PASSWORD, ca=str(ca))
        self.admin_access = replace(self.access, mechanism="PLAIN", user=NODE)
        self.load.bootstrap, self.load.login = at, self.admin_access.librdkafka()
        os.environ.update(self.access.save(self.folder))
        self.producer.move(at, **self.access.librdkafka())
        self.groups.renew(at)
        self.await_owned("clients that log in")
        self.await_acks("clients that log in")

    def close_open_listeners(self) -> None:
        """Roll without the listeners in plain text."""
        self.roll(CLOSED)
        for node in self.nodes:
            for name in (OPEN, CONTROLLER):
                with suppress(OSError), socket.create_connection((LOOPBACK, node.ports[name]), 1):
                    self.load.wrong.append(f"{node.name} still listens at {name}")

    def add_acls(self) -> None:
        """Turn ACLs on where none yet means everybody, and give the user its rights."""
        self.roll(ACLS_ADDED)
        groups = [("GROUP", group.name, "READ") for group in self.groups.all]
        give_rights(self.admin(), USER, [("TOPIC", TOPIC, "WRITE"), ("TOPIC", TOPIC, "READ"), *groups])

    def let_acls_decide(self) -> None:
        """Refuse what no ACL allows. A user without rights gets nowhere."""
        self.roll(ACLS_DECIDE)
        if not self.is_refused(replace(self.access, user=STRANGER)):
            self.load.wrong.append("a user without rights wasn't refused a record")

    def is_refused(self, access: Access) -> bool:
        """Whether a broker refuses a client's record for want of a right."""
        wrong: list[Any] = []
        config = {**access.librdkafka(), "bootstrap.servers": access.bootstrap, "message.timeout.ms": 5_000}
        producer = Producer({**LIBRDKAFKA, **config})
        producer.produce("stray", b"x", on_delivery=lambda error, _: wrong.append(error))
        producer.flush(ASK_S)
        return [error.code() for error in wrong if error] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]

    # Certificates

    def add_signer(self, signer: Authority) -> None:
        """Let the nodes trust another signer, too; none restarts."""
        for node in self.nodes:
            self.await_taken(node, self.signer, signer)

    def change_files(self, signer: Authority) -> None:
        """Put certificates of another signer in the place of the files."""
        for node in self.nodes:
            serial = self.give_certificate(node, signer)
            for name in (SECURE, CONTROLLER_SECURE):
                self.await_serial(node, name, serial)
        self.await_whole("certificates of another signer")

    def drop_signer(self, signer: Authority) -> None:
        """Trust the old signer no more, and restart a node: all connections from it and to it are new."""
        for node in self.nodes:
            self.await_taken(node, signer)
        self.signer = signer
        self.restart(self.nodes[0], "without the old signer")

    def change_keys(self) -> None:
        """Name another file of a certificate by a key of the listener, as kafka-configs does."""
        for node in self.nodes:
            serial = self.give_certificate(node, self.signer, "other.pem")
            resource = ConfigResource(ResourceType.BROKER, str(node.id))
            key = f"listener.name.{SECURE.lower()}.ssl.keystore.location"
            path = str(node.folder / "other.pem")
            entry = ConfigEntry(key, path, incremental_operation=AlterConfigOpType.SET)
            resource.add_incremental_config(entry)
            admin = self.admin()
            for answer in admin.incremental_alter_configs([resource]).values():
                answer.result(ASK_S)
            self.await_serial(node, SECURE, serial)
        self.restart(self.nodes[1], "with another certificate by a key")

    def await_taken(self, node: SecuredNode, *signers: Authority) -> None:
        """Write the signers that a node trusts, and wait until it says of both its listeners that it has them."""
        before = node.printed_count(TAKEN)
        self.trust(node, *signers)
        if not await_true(lambda: node.printed_count(TAKEN) >= before + 2, WHOLE_S, 0.2):
            self.load.wrong.append(f"{node.name} doesn't take a changed file")

    def await_serial(self, node: SecuredNode, listener: str, serial: int) -> None:
        """Wait until a listener shows this certificate."""
        if not await_true(lambda: serial_at(node, listener) == serial, WHOLE_S, 0.5):
            self.load.wrong.append(f"{node.name} doesn't show its new certificate at {listener}")


def _directory_id(node: SecuredNode) -> str:
    """Return an id in Kafka's form: 16 bytes in base64."""
    return base64.urlsafe_b64encode(bytes([node.id] * 16)).decode().rstrip("=")


def serial_at(node: SecuredNode, listener: str) -> int:
    """Return the serial number of the certificate that a listener shows; 0 if it shows none."""
    with suppress(OSError):
        shown = ssl.get_server_certificate((LOOPBACK, node.ports[listener]), timeout=ASK_S)
        return x509.load_pem_x509_certificate(shown.encode()).serial_number
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every promise was kept, 1 if not, 2 for wrong input."""
    parser = argparse.ArgumentParser(prog="python -m campaigns secure-rolling", description=__doc__)
    parser.add_argument("--rate", type=float, default=300.0, help="records a second")
    parser.add_argument(
        "--dynamic", action="store_true", help="the log has the voters (KIP-853), not the manifests"
    )
    add_node_options(parser)
    given = parser.parse_args(arguments)

    def make_story(folder: Path) -> SecureStory:
        return SecureStory(folder, given.rate, given.set, dynamic=given.dynamic)

    return run_campaign("secure-rolling", given, make_story)


if __name__ == "__main__":
    sys.exit(main())
