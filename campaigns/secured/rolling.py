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
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import attrs
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from rich.markup import escape

from blumfeld.testing.cluster import LOOPBACK
from blumfeld.testing.process import NodeError, start_together
from blumfeld_kit.cluster import end_together
from campaigns.certificates import Authority, private
from campaigns.clients.access import Access
from campaigns.clients.load.groups import Groups
from campaigns.clients.load.load import TOPIC, Load, NoLoadError
from campaigns.clients.load.producers import LIBRDKAFKA, Librdkafka
from campaigns.cluster.phases import Phases, Report
from campaigns.cluster.wholeness import ASK_S, WHOLE_S, await_whole
from campaigns.figures import save
from campaigns.secured.identities import NODE, PASSWORD, STRANGER, USER, make_users
from campaigns.secured.nodes import Face, SecuredNode, bootstrap, secured_nodes, write_manifest
from campaigns.terminal import add_node_options, console_of, print_wrong, refused
from campaigns.waits import await_true

NODES = 3
PARTITIONS = 6
OWNED_S = 60.0
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


class Story:
    """The nodes of one run, their files, their clients."""

    def __init__(
        self, folder: Path, rate_per_s: float, laid: Sequence[str], *, dynamic: bool = False
    ) -> None:
        self.folder = folder
        self.dynamic = dynamic
        self.nodes = secured_nodes(NODES, folder, (OPEN, CONTROLLER, SECURE, CONTROLLER_SECURE), laid)
        self.signer = Authority("signer 1")
        make_users(folder)
        for node in self.nodes:
            self.give_certificate(node, self.signer)
            self.trust(node, self.signer)
        self.stage = PLAIN
        self.access = self.admin_access = Access(bootstrap(self.nodes, OPEN))
        self.load = Load(self.access.bootstrap, PARTITIONS, rate_per_s, make_producer=self._producer)
        self.groups = Groups(self.access.bootstrap, TOPIC, PARTITIONS)

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
        start_together(self.nodes, ())
        self.load.make_topic(NODES, {"min.insync.replicas": "2"})
        self.await_whole("the start")
        self.load.start()
        self.groups.start()
        self.await_owned("the start")

    def roll(self, stage: Stage) -> None:
        """Restart one node after the other with what a stage has, each when the cluster is whole again."""
        self.stage = stage
        for node in self.nodes:
            self.write(node)
            self.restart(node)

    def restart(self, node: SecuredNode) -> None:
        """Stop a node in good order, start it, and wait until the cluster is whole."""
        status = node.stop()
        if status:
            self.load.wrong.append(f"{node.name} ended with status {status}")
        node.start()
        self.await_whole(f"{node.name} of {self.stage}")

    def await_whole(self, words: str) -> None:
        """Wait until every broker is there and every replica in sync, and each partition takes records."""
        await_whole(self.admin, NODES, self.load, words)

    def await_owned(self, words: str) -> None:
        """Wait until each partition has an owner in each group."""
        if max(self.groups.await_owned(OWNED_S).values()) >= OWNED_S:
            self.load.wrong.append(f"{words}: partitions without an owner: {self.groups.describe()}")

    def admin(self, access: Access | None = None) -> Any:
        """Return an admin client that logs in as the nodes do."""
        given = self.admin_access if access is None else access
        return AdminClient({**LIBRDKAFKA, **given.librdkafka(), "bootstrap.servers": given.bootstrap})

    def add_credentials(self) -> None:
        """Give the nodes and the users credentials of SCRAM, by a listener in plain text yet."""
        admin = self.admin()
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        for user in (NODE, USER, STRANGER):
            wanted = [UserScramCredentialUpsertion(user, info, PASSWORD.encode())]
            for answer in admin.alter_user_scram_credentials(wanted).values():
                answer.result(ASK_S)

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
        if not self.load.await_acks(time.monotonic(), WHOLE_S):
            self.load.wrong.append("clients that log in: a partition takes no records")

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
        rights = [
            (ResourceType.TOPIC, TOPIC, AclOperation.WRITE),
            (ResourceType.TOPIC, TOPIC, AclOperation.READ),
            *((ResourceType.GROUP, group.name, AclOperation.READ) for group in self.groups.all),
        ]
        acls = [
            AclBinding(
                kind,
                name,
                ResourcePatternType.LITERAL,
                f"User:{USER}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for kind, name, operation in rights
        ]
        admin = self.admin()  # its answers come only while it lives
        for answer in admin.create_acls(acls, request_timeout=ASK_S).values():
            answer.result(ASK_S)

    def let_acls_decide(self) -> None:
        """Refuse what no ACL allows. A user without rights gets nowhere."""
        self.roll(ACLS_DECIDE)
        if not self.is_refused(replace(self.access, user=STRANGER)):
            self.load.wrong.append("a user without rights wrote a record")

    def is_refused(self, access: Access) -> bool:
        """Whether a client may write nothing."""
        wrong: list[Any] = []
        config = {**access.librdkafka(), "bootstrap.servers": access.bootstrap, "message.timeout.ms": 5_000}
        producer = Producer({**LIBRDKAFKA, **config})
        producer.produce("stray", b"x", on_delivery=lambda error, _: wrong.append(error))
        return producer.flush(ASK_S) > 0 or wrong[0] is not None

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
        self.restart(self.nodes[0])

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
        self.restart(self.nodes[1])

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

    def stop(self) -> None:
        """End all nodes."""
        end_together(self.nodes)


def _directory_id(node: SecuredNode) -> str:
    """Return an id in Kafka's form: 16 bytes in base64."""
    return base64.urlsafe_b64encode(bytes([node.id] * 16)).decode().rstrip("=")


def serial_at(node: SecuredNode, listener: str) -> int:
    """Return the serial number of the certificate that a listener shows; 0 if it shows none."""
    from cryptography import x509

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        suppress(OSError),
        socket.create_connection((LOOPBACK, node.ports[listener]), ASK_S) as plain,
        context.wrap_socket(plain) as encrypted,
    ):
        shown = encrypted.getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(shown).serial_number if shown else 0
    return 0


def run(story: Story, say: Callable[[str], None]) -> Report:
    """Run all phases, and make the account."""
    phases = Phases(story.load, say)
    is_whole = False
    old, new = story.signer, Authority("signer 2")
    try:
        story.start()
        time.sleep(5)
        phases.run("new listeners beside the old", lambda: story.roll(BESIDE))
        phases.run("credentials of SCRAM", story.add_credentials)
        phases.run("brokers dial each other by SASL_SSL", lambda: story.roll(BROKERS_MOVED))
        phases.run("controllers are dialled by SASL_SSL", lambda: story.roll(CONTROLLERS_MOVED))
        phases.run("clients move", lambda: story.move_clients(old))
        phases.run("old listeners gone", story.close_open_listeners)
        phases.run("ACLs on, none yet", story.add_acls)
        phases.run("ACLs decide", story.let_acls_decide)
        phases.run("another signer is trusted, too", lambda: story.add_signer(new))
        phases.run("clients trust it, too", lambda: story.move_clients(old, new))
        phases.run("certificates of the other signer, by file", lambda: story.change_files(new))
        phases.run("the old signer is trusted no more", lambda: story.drop_signer(new))
        phases.run("certificates by kafka-configs", story.change_keys)
        is_whole = True
    except (NodeError, KafkaException) as error:
        story.load.wrong.append(repr(error))
    finally:
        phases.finish(story.groups, is_whole=is_whole)
    return phases.report()


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every promise was kept, 1 if not, 2 for wrong input."""
    parser = argparse.ArgumentParser(prog="python -m campaigns secure-rolling", description=__doc__)
    parser.add_argument("--rate", type=float, default=300.0, help="records a second")
    parser.add_argument(
        "--dynamic", action="store_true", help="the log has the voters (KIP-853), not the manifests"
    )
    add_node_options(parser)
    given = parser.parse_args(arguments)
    console = console_of()
    with ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="blumfeld-secure-rolling-")
        folder = given.folder or Path(stack.enter_context(made))
        folder.mkdir(parents=True, exist_ok=True)
        story = Story(folder.resolve(), given.rate, given.set, dynamic=given.dynamic)
        stack.callback(story.stop)
        try:
            report = run(story, lambda line: console.print(escape(line)))
        except NoLoadError as error:
            return refused("secure-rolling", error)
    console.print(report.told)
    print_wrong(console, report.wrong)
    save(given.out, report)
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
