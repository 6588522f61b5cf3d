"""``python -m campaigns secured-tools``: Kafka's own tools on rights, users and delegation tokens, at each of three
secured nodes. What a tool did at one node is looked at by all, and tried by a client. Exit 1 if something failed.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import attrs
from confluent_kafka import KafkaError, Producer

from blumfeld.testing.process import NodeError
from campaigns.clients.access import JAVA_FILE, Access
from campaigns.clients.client import CheckFailed
from campaigns.clients.java import CONFIG_COMMAND, TOOLS, JavaTools, run_tool
from campaigns.clients.matrix import FAILED, OK, Cell, Row
from campaigns.clients.options import add_matrix_options, chosen
from campaigns.clients.telling import say, tell_end
from campaigns.clients.verdicts import require
from campaigns.secured.cluster import SecuredCluster
from campaigns.secured.identities import NODE, PASSWORD, STRANGER, USER
from campaigns.secured.nodes import SecuredNode
from campaigns.terminal import console_of, refused

LISTENER = "BOTH"
ADMINISTRATOR, LOGIN = "PLAIN SASL_SSL", "SCRAM-SHA-256 SASL_SSL"
"""How the tools and the clients come in."""
ACLS, TOKENS = f"{TOOLS}AclCommand", f"{TOOLS}DelegationTokenCommand"
SETTINGS = (
    'config."delegation.token.secret.key"="a key of this campaign"',
    'quotas.plugin="quotas"',
)
BY_TOKEN = ' tokenauth="true"'
"""Option of the login by a delegation token (KIP-48)."""
SEND_S = 30.0
RATE = "producer_byte_rate=1048576.0"
_HMAC = re.compile(r"^(\S{22}) +(\S{88}) +User:(\S+)", re.MULTILINE)
"""A token in what DelegationTokenCommand prints: its id, its secret, its owner."""


@attrs.frozen
class Bench:
    """One node that the tools dial, and another one."""

    cluster: SecuredCluster
    node: SecuredNode
    other: SecuredNode
    folder: Path

    def tool(self, tool: str, *options: str, at: SecuredNode | None = None) -> str:
        """Run a tool as a super user; return what it prints.

        :raises CheckFailed: it ended with another status than 0
        """
        access = self.cluster.accesses(NODE)[ADMINISTRATOR]
        access.save(self.folder)
        server = (at or self.node).at(LISTENER)
        config = str(self.folder / JAVA_FILE)
        return run_tool(tool, "--bootstrap-server", server, "--command-config", config, *options)

    def access(self, user: str, password: str) -> Access:
        """Return a login at the other node."""
        way = self.cluster.accesses()[LOGIN]
        return replace(way, bootstrap=self.other.at(LISTENER), user=user, password=password)

    def sends(self, access: Access, topic: str) -> str:
        """Send a record by librdkafka; return the name of the error, empty if it was taken."""
        answers: list[KafkaError | None] = []
        settings = {**access.librdkafka(), "bootstrap.servers": access.bootstrap, "log_level": 2}
        seen: list[str] = []
        producer = Producer({**settings, "error_cb": lambda error: seen.append(error.name())})
        producer.produce(topic, b"x", on_delivery=lambda error, _: answers.append(error))
        until = time.monotonic() + SEND_S
        while not answers and "_AUTHENTICATION" not in seen and time.monotonic() < until:
            producer.poll(0.2)
        seen += [error.name() for error in answers if error is not None]
        return ", ".join(seen) if seen or answers else f"no answer in {SEND_S:.0f} s"


def acls(bench: Bench) -> None:
    """A right is added, listed and removed; the client has it meanwhile."""
    topic = f"acl-{bench.node.id}"
    right = ("--allow-principal", f"User:{STRANGER}", "--producer", "--topic", topic)
    stranger = bench.access(STRANGER, PASSWORD)
    bench.tool(ACLS, "--add", *right)
    for node in bench.cluster.nodes:
        listed = bench.tool(ACLS, "--list", "--topic", topic, at=node)
        require(f"principal=User:{STRANGER}" in listed, f"{node.name} lists {listed}")
    require(not (error := bench.sends(stranger, topic)), f"with the right: {error}")
    bench.tool(ACLS, "--remove", "--force", *right, at=bench.other)
    listed = bench.tool(ACLS, "--list", "--topic", topic)
    require(STRANGER not in listed, f"behind the removal: {listed}")
    require("AUTHORIZATION_FAILED" in (error := bench.sends(stranger, topic)), f"without the right: {error}")


def users(bench: Bench) -> None:
    """A user gets credentials and a quota, is described, logs in, and loses both."""
    user, password = f"user-{bench.node.id}", "a password"
    named = ("--entity-type", "users", "--entity-name", user)
    change = partial(bench.tool, CONFIG_COMMAND, "--alter", *named)
    change("--add-config", f"SCRAM-SHA-256=[iterations=4096,password={password}]")
    change("--add-config", RATE)
    for node in bench.cluster.nodes:
        described = bench.tool(CONFIG_COMMAND, "--describe", *named, at=node)
        require(
            RATE in described and "SCRAM-SHA-256=iterations=4096" in described, f"{node.name}: {described}"
        )
    access = bench.access(user, password)
    require("AUTHORIZATION_FAILED" in (error := bench.sends(access, "none")), f"logged in: {error}")
    change("--delete-config", "producer_byte_rate", at=bench.other)
    change("--delete-config", "SCRAM-SHA-256", at=bench.other)
    described = bench.tool(CONFIG_COMMAND, "--describe", *named)
    require("SCRAM" not in described and RATE not in described, f"behind the deletion: {described}")
    require("_AUTHENTICATION" in (error := bench.sends(access, "none")), f"without credentials: {error}")


def tokens(bench: Bench) -> None:
    """A token is made, described, renewed and expired; Java logs in by it meanwhile. librdkafka knows no tokens."""
    made = bench.tool(TOKENS, "--create", "--max-life-time-period", "-1", *_owner(USER))
    found = _HMAC.search(made)
    require(found is not None, f"no token in {made}")
    assert found is not None
    token, secret, owner = found.groups()
    require(owner == USER, f"the owner is {owner}")
    for node in bench.cluster.nodes:
        described = bench.tool(TOKENS, "--describe", *_owner(USER), at=node)
        require(token in described, f"{node.name} describes {described}")
    login = replace(bench.access(token, secret), login_options=BY_TOKEN)
    _java_lists(bench, login)
    renewed = bench.tool(TOKENS, "--renew", "--renew-time-period", "-1", "--hmac", secret, at=bench.other)
    require("Completed renew operation" in renewed, renewed)
    bench.tool(TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", secret, at=bench.other)
    require(token not in bench.tool(TOKENS, "--describe", *_owner(USER)), "it is described when it has ended")
    try:
        _java_lists(bench, login)
    except CheckFailed as failure:
        require("SaslAuthenticationException" in str(failure), f"with the ended token: {failure}")
    else:
        raise CheckFailed("the ended token logs in")


def _owner(user: str) -> Sequence[str]:
    return ("--owner-principal", f"User:{user}")


def _java_lists(bench: Bench, login: Access) -> None:
    """:raises CheckFailed: the Java client isn't served"""
    login.save(bench.folder)
    run_tool(
        f"{TOOLS}TopicCommand",
        *("--bootstrap-server", login.bootstrap, "--command-config", str(bench.folder / JAVA_FILE), "--list"),
    )


CHECKS: Mapping[str, Callable[[Bench], None]] = {"acls": acls, "users": users, "tokens": tokens}


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all worked, 1 if something didn't, 2 if Java or the script that runs Kafka's tools is absent."""
    parser = argparse.ArgumentParser(prog="python -m campaigns secured-tools", description=__doc__)
    add_matrix_options(parser, (JavaTools.name,), CHECKS)
    given = parser.parse_args(arguments)
    console = console_of(160)
    rows: list[Row] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="blumfeld-tools-")))
        try:
            _, columns = chosen(given, (JavaTools.name,), CHECKS)
            if reason := JavaTools.absent():
                raise ValueError(reason)
            cluster = SecuredCluster(folder, "net_asyncio", 3, SETTINGS)
            stack.callback(cluster.stop)
            cluster.start()
        except (ValueError, NodeError, OSError) as error:
            return refused("secured-tools", error)
        for node, other in zip(cluster.nodes, (*cluster.nodes[1:], cluster.nodes[0]), strict=True):
            place = folder / f"tools{node.id}"
            place.mkdir()
            rows.append(Row(node.name))
            for name in columns:
                rows[-1].cells[name] = _cell(CHECKS[name], Bench(cluster, node, other, place))
                say(console, rows[-1], name, rows[-1].cells[name])
    return tell_end(console, {"": rows})


def _cell(check: Callable[[Bench], None], bench: Bench) -> Cell:
    began = time.monotonic()
    try:
        check(bench)
    except CheckFailed as failure:
        return Cell(FAILED, str(failure), time.monotonic() - began)
    return Cell(OK, "", time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
