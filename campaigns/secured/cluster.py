"""Nodes with everything on: a listener for each protocol, SASL_SSL between them and to controllers, ACLs, the audit.

A listener in plain text is for the campaign itself, which looks behind the clients by it. ``User:ANONYMOUS``, which
comes in there, is a super user, as the nodes are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from confluent_kafka.admin import AdminClient

from blumfeld.testing.process import start_together
from blumfeld_kit.cluster import end_together
from campaigns.clients.access import TOKEN, Access
from campaigns.clients.rights import give_credentials, give_rights
from campaigns.secured.identities import (
    AUDIENCE,
    ISSUER,
    NODE,
    PASSWORD,
    STRANGER,
    USER,
    make_certificates,
    make_users,
)
from campaigns.secured.issuer import KEYS, TOKEN_PATH, Issuer
from campaigns.secured.nodes import Face, bootstrap, secured_nodes, write_manifest

BETWEEN = "SCRAM-SHA-512"
"""The mechanism between brokers. Controllers talk before there is metadata: they use PLAIN."""
SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAMS, TOKEN)
SASL = ("SASL_PLAINTEXT", "SASL_SSL")
LISTENERS = {"TLS": "SSL", "MUTUAL": "SSL", "CLEAR": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}
"""Listeners of clients, with their protocols."""
ENDPOINT = "OIDC"
"""OAUTHBEARER with a token of the issuer's endpoint; by the mechanism's own name it lies in a file."""
LOGINS = (*MECHANISMS, ENDPOINT)
WAYS = ("PLAINTEXT", "TLS", "mutual TLS", *(f"{name} {protocol}" for protocol in SASL for name in LOGINS))
"""The names of :meth:`SecuredCluster.accesses`."""
OPEN = "OPEN"
FACES = (
    Face(OPEN),
    *(Face(name, protocol) for name, protocol in LISTENERS.items()),
    Face("BROKERS", "SASL_SSL", inter_broker=True),
    Face("CONTROLLERS", "SASL_SSL", "controller"),
)


class SecuredCluster:
    """So many nodes in a folder, not started.

    :param laid: ``section.key=value`` with ``{id}`` for the node's, laid over the manifests
    :param everyone: whether everybody may use what has no ACL, and ``User:ANONYMOUS`` is no super user
    """

    def __init__(
        self,
        folder: Path,
        transport: str,
        count: int,
        laid: Sequence[str] = (),
        *,
        everyone: bool = False,
    ) -> None:
        self.folder = folder
        self._everyone = everyone
        make_certificates(folder)
        make_users(folder)
        self.issuer = Issuer(folder)
        self.nodes = secured_nodes(count, folder, [face.name for face in FACES], laid)
        for node in self.nodes:
            write_manifest(node, self.nodes, FACES, self._config(), self._sections(transport))
            node.format("--add-scram", f"{BETWEEN}=[name={NODE},password={PASSWORD}]")

    @property
    def bootstrap(self) -> str:
        """The listener in plain text."""
        return bootstrap(self.nodes, OPEN)

    def start(self) -> None:
        """Start the nodes. Give the users credentials of SCRAM, and one of them rights, as an administrator does.

        :raises NodeError: a node did not start
        """
        with mock.patch.dict(os.environ, {"SSL_CERT_FILE": str(self.folder / "signer.pem")}):  # the issuer's
            start_together(self.nodes, self.nodes)
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        give_credentials(admin, (USER, STRANGER, NODE), PASSWORD, SCRAMS)
        if not self._everyone:
            give_rights(admin, USER, RIGHTS)

    def stop(self) -> None:
        """End all nodes, and the issuer."""
        end_together(self.nodes)
        self.issuer.close()

    def said(self, text: str) -> int:
        """How often the nodes have said something."""
        return sum(node.printed_count(text) for node in self.nodes)

    def accesses(self, user: str = USER) -> dict[str, Access]:
        """The ways in, by name. The token in the file is of one user alone."""
        tls = {"ca": str(self.folder / "signer.pem")}
        ways = {
            "PLAINTEXT": Access(self.bootstrap),
            "TLS": Access(self.at("TLS"), "SSL", **tls),
            "mutual TLS": Access(self.at("MUTUAL"), "SSL", **tls, **self.shown(user)),
        }
        for listener in ("CLEAR", "BOTH"):
            for mechanism in MECHANISMS:
                protocol = LISTENERS[listener]
                login = {"user": user, "password": PASSWORD, "token_file": str(self.folder / "token")}
                more = tls if protocol == "SASL_SSL" else {}
                ways[f"{mechanism} {protocol}"] = Access(
                    self.at(listener), protocol, mechanism, **login, **more
                )
            ways[f"{ENDPOINT} {LISTENERS[listener]}"] = Access(
                self.at(listener),
                LISTENERS[listener],
                TOKEN,
                user,
                PASSWORD,
                endpoint=self.issuer.url + TOKEN_PATH,
                **tls,
            )
        return ways

    def shown(self, name: str) -> dict[str, str]:
        """Return the fields of an access that shows a certificate."""
        return {"certificate": str(self.folder / f"{name}.pem"), "key": str(self.folder / f"{name}.key")}

    def at(self, listener: str) -> str:
        """Return ``bootstrap.servers`` of a listener."""
        return bootstrap(self.nodes, listener)

    def _sections(self, transport: str) -> dict[str, Any]:
        options = {
            "plain_users": str(self.folder / "users.toml"),
            "peer_login": str(self.folder / "login.toml"),
            "failed_logins_max": 0,  # all clients come from one address, wrong ones beside right ones
            "acls": {
                "super_users": [f"User:{NODE}", *(() if self._everyone else ("User:ANONYMOUS",))],
                "allow_everyone_if_no_acl_found": self._everyone,
            },
            "audit": {"verdicts": "sampled"},
        }
        return {"network": {"plugin": transport}, "security": {"plugin": "security", "options": options}}

    def _config(self) -> dict[str, Any]:
        return {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "node.both.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "signer.pem"),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
            "sasl.enabled.mechanisms": list(MECHANISMS),
            "sasl.mechanism.inter.broker.protocol": BETWEEN,
            "sasl.mechanism.controller.protocol": "PLAIN",
            "sasl.oauthbearer.jwks.endpoint.url": self.issuer.url + KEYS,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": [AUDIENCE],
        }


RIGHTS = (
    *(
        ("TOPIC", "*", operation)
        for operation in ("READ", "WRITE", "CREATE", "DELETE", "ALTER", "ALTER_CONFIGS")
    ),
    *(("GROUP", "*", operation) for operation in ("READ", "DELETE")),
    ("TRANSACTIONAL_ID", "*", "WRITE"),
)
"""The rights of the user: those of the checks, and nothing on the cluster."""
